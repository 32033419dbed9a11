"""Which domains gain and which lose: the difference from the baseline inside each domain."""

from collections.abc import Sequence

from dmnrag.experiments.reporting.entries import INTERVALS_NOTE, POINTS, difference_entry
from dmnrag.experiments.reporting.families import ROUGES
from dmnrag.experiments.reporting.panels import Panel
from dmnrag.experiments.reporting.study import Arm, Corpus
from dmnrag.experiments.reporting.table import Entry, Figure, Table
from dmnrag.experiments.statistics import contrast
from dmnrag.types import Example

_METRIC = ROUGES[0]
_MOST_DOMAINS = 30
NO_DOMAIN = "none"


def domains_table(corpus: Corpus, panel: Panel, reference: str, name: str) -> Table | None:
    """Domains down, rows across: zero-shot ROUGE-1 minus the reference row's; None without two rows or domains."""
    base = panel.find(corpus.name, reference)
    arms = [
        arm
        for row in panel.rows
        if row != reference and (arm := panel.find(corpus.name, row)) is not None and _METRIC in arm.values
    ]
    places = _places(corpus.questions)
    if base is None or _METRIC not in base.values or not arms or len(places) < 2:
        return None
    shown = sorted(places, key=lambda d: (-len(places[d]), d))[:_MOST_DOMAINS]
    rows = [_row(corpus, base, arms, domain, places[domain]) for domain in shown]
    columns = [("domain",), ("n",), (reference,), *((f"{arm.cell.row} − {reference}",) for arm in arms)]
    notes = [
        f"{_METRIC}, zero-shot, points. {INTERVALS_NOTE}",
        "Many small groups: intervals are not corrected for their number, and no difference here is tested.",
    ]
    if len(places) > len(shown):
        notes.append(f"The {len(shown)} most frequent of {len(places)} domains.")
    return Table(name, panel.titled(f"By domain, {corpus.name}"), tuple(columns), tuple(rows), tuple(notes))


def domain_of(example: Example) -> str:
    """The most specific label."""
    return example.query.domain[-1] if example.query.domain else NO_DOMAIN


def _places(questions: Sequence[Example]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for i, example in enumerate(questions):
        found.setdefault(domain_of(example), []).append(i)
    return found


def _row(corpus: Corpus, base: Arm, arms: Sequence[Arm], domain: str, places: Sequence[int]) -> tuple[Entry, ...]:
    clusters = [corpus.clusters[i] for i in places]
    own = [base.values[_METRIC][i] for i in places]
    kept = [value for value in own if value is not None]
    entries: list[Entry] = [domain, str(len(places)), Figure(sum(kept) / len(kept) * POINTS) if kept else "–"]
    for arm in arms:
        theirs = [arm.values[_METRIC][i] for i in places]
        found = contrast((arm.cell.row, base.cell.row), _METRIC, (theirs, own), clusters)
        entries.append(difference_entry(found))
    return tuple(entries)
