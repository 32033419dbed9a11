"""Tables beside the paper's: retrieval, documents given, more than ROUGE, domain noise, seeds, data, cost."""

from collections.abc import Callable, Mapping, Sequence

from dmnrag.experiments.reporting.entries import (
    ABSENT,
    INTERVALS_NOTE,
    POINTS,
    mark_of,
    mean_entry,
    n_note,
)
from dmnrag.experiments.reporting.families import ROUGES, Family
from dmnrag.experiments.reporting.measures.agreement import DOMAIN_AGREEMENT
from dmnrag.experiments.reporting.measures.diversity import distinct_overall
from dmnrag.experiments.reporting.measures.more import DISTINCT_1, DISTINCT_2, SUPPORTED
from dmnrag.experiments.reporting.methods_tables import corpora_of, incomplete_notes
from dmnrag.experiments.reporting.panels import Panel, domain_text
from dmnrag.experiments.reporting.study import Arm, Corpus, Study
from dmnrag.experiments.reporting.table import Entry, Figure, Table
from dmnrag.experiments.score import LENGTH
from dmnrag.experiments.statistics import Evaluation
from dmnrag.grounding.support import calibration
from dmnrag.methods import BASELINE

_DOCUMENT_METRICS = ("same-domain@", "recall@", "MRR@", "nDCG@")
_MOST_LABELS = 30
"""Rows of the data card; the rest is one line."""


def retrieval_table(corpus: Corpus, evaluation: Evaluation, name: str) -> Table:
    """Systems down, measures across, on all held-out questions; no LLM is involved."""
    metrics = list(dict.fromkeys(row.metric for row in evaluation.rows))
    found = {(row.name, row.metric): row for row in evaluation.rows}
    rows = []
    for system in dict.fromkeys(row.name for row in evaluation.rows):
        entries: list[Entry] = []
        for metric in metrics:
            row = found.get((system, metric))
            entries.append(ABSENT if row is None else _scaled(row.mean, row.low, row.high))
        rows.append((system, *entries))
    note = f"n = {evaluation.n:,} held-out questions, in points from 0 to 100. {INTERVALS_NOTE}"
    title = f"Retrieval on {corpus.name}, without an LLM"
    return Table(name, title, (("system",), *((metric,) for metric in metrics)), tuple(rows), (note,))


def beyond_table(study: Study, panel: Panel, name: str, family: Family) -> Table:
    """Domain agreement, support by documents, diversity and length of each row, zero-shot."""
    corpora = corpora_of(study, panel)
    metrics = [m for m in (DOMAIN_AGREEMENT, SUPPORTED, DISTINCT_1, DISTINCT_2) if _has(panel.arms, m)]
    columns: list[tuple[str, ...]] = [("method",)]
    for corpus in corpora:
        columns += [(corpus.name, metric) for metric in (*metrics, "distinct-2 over all answers", LENGTH)]
    rows = []
    for row in panel.rows:
        entries: list[Entry] = []
        for corpus in corpora:
            arm = panel.find(corpus.name, row)
            for metric in metrics:
                mark = mark_of(family, (corpus.name, "zero-shot", row, BASELINE.name, metric))
                entries.append(mean_entry(corpus, arm, metric, mark))
            entries += [_distinct_over_all(arm), mean_entry(corpus, arm, LENGTH)]
        rows.append((row, *entries))
    notes = [
        n_note(corpora),
        *(_NOTES[metric](corpora) for metric in metrics if metric in _NOTES),
        _DISTINCT_NOTE,
        INTERVALS_NOTE,
    ]
    title = panel.titled("More than ROUGE")
    return Table(name, title, tuple(columns), tuple(rows), (*notes, *incomplete_notes(corpora, panel)))


def given_table(study: Study, panel: Panel, name: str) -> Table | None:
    """How good the documents are that each row was given; None where nothing can be said of any."""
    corpora = corpora_of(study, panel)
    places = [
        (corpus, metric)
        for corpus in corpora
        for metric in _document_metrics([arm for arm in panel.arms if arm.cell.corpus == corpus.name])
    ]
    if not places:
        return None
    columns: list[tuple[str, ...]] = [("method",), *((corpus.name, metric) for corpus, metric in places)]
    controls = {arm.cell.row for arm in panel.arms if arm.cell.control is not None}
    rows = [
        (row, *(mean_entry(corpus, panel.find(corpus.name, row), metric) for corpus, metric in places))
        for row in panel.rows
        if row not in controls
    ]
    title = panel.titled("The documents that were given")
    return Table(name, title, tuple(columns), tuple(rows), (n_note(corpora), INTERVALS_NOTE))


def noise_table(study: Study, arms: Sequence[Arm], llm: str, name: str) -> Table:
    """ROUGE-1 and ROUGE-L of each method with right, inferred, wrong and absent domains."""
    sources = list(dict.fromkeys(domain_text(arm) for arm in arms))
    corpora = [corpus for corpus in study.corpora if any(arm.cell.corpus == corpus.name for arm in arms)]
    metrics = (ROUGES[0], ROUGES[2])
    rows = []
    for method in dict.fromkeys(arm.cell.row for arm in arms):
        for source in sources:
            found = [
                next(
                    (
                        arm
                        for arm in arms
                        if (arm.cell.corpus, arm.cell.row, domain_text(arm)) == (corpus.name, method, source)
                    ),
                    None,
                )
                for corpus in corpora
            ]
            if any(found):
                entries = [
                    mean_entry(c, arm, metric) for c, arm in zip(corpora, found, strict=True) for metric in metrics
                ]
                rows.append((method, source, *entries))
    columns = [("method",), ("domain",), *((c.name, m.partition(" (")[0]) for c in corpora for m in metrics)]
    title = f"Domains that are right, wrong or absent: {llm}"
    return Table(name, title, tuple(columns), tuple(rows), (n_note(corpora), INTERVALS_NOTE))


def seeds_table(study: Study, name: str) -> Table | None:
    """Spread over seeds of the arms that were sampled more than once; None where none was."""
    rows = []
    for arm in study.arms:
        if arm.repeats > 1 and arm.complete:
            spreads = [arm.seed_spread(metric) for metric in ROUGES]
            entries = [ABSENT if s is None else Figure(s * POINTS) for s in spreads]
            cell = arm.cell
            parameters = ", ".join(
                f"{key} {value}"
                for key, value in (("temperature", cell.parameters.temperature), ("top_k", cell.parameters.top_k))
                if value is not None
            )
            settings = ", ".join(filter(None, (parameters, _other_domain(arm)))) or "default"
            rows.append((cell.corpus, cell.llm or "", cell.row, settings, str(arm.repeats), *entries))
    if not rows:
        return None
    columns: list[tuple[str, ...]] = [("corpus",), ("LLM",), ("method",), ("setting",), ("seeds",)]
    columns += [("standard deviation over seeds", m.partition(" (")[0]) for m in ROUGES]
    note = "Standard deviation of the mean over seeds, in points. Every figure elsewhere is the mean over the seeds."
    return Table(name, "Spread of sampled decoding", tuple(columns), tuple(rows), (note,))


def data_table(corpus: Corpus, name: str) -> Table:
    """The data card: labels of the index with their documents and questions asked."""
    asked: dict[tuple[str, ...], int] = {}
    for example in corpus.questions:
        asked[example.query.domain] = asked.get(example.query.domain, 0) + 1
    labels = {tuple(domain): count for domain, count in corpus.card.labels}
    order = sorted({*labels, *asked}, key=lambda d: (-labels.get(d, 0), -asked.get(d, 0), d))
    rows = [(" > ".join(d) or "none", str(labels.get(d, 0)), str(asked.get(d, 0))) for d in order[:_MOST_LABELS]]
    rest = order[_MOST_LABELS:]
    if rest:
        rows.append(
            (f"{len(rest):,} more", str(sum(labels.get(d, 0) for d in rest)), str(sum(asked.get(d, 0) for d in rest)))
        )
    card = corpus.card
    note = (
        f"{card.documents:,} documents in the index, {card.held_out:,} questions held out, {card.sampled:,} of them "
        f"asked. Index generation {card.generation}, fingerprint {card.fingerprint[:12]}."
    )
    return Table(
        name, f"Data: {corpus.name}", (("domain",), ("documents",), ("questions asked",)), tuple(rows), (note,)
    )


def cost_table(study: Study, name: str) -> Table | None:
    """Time and tokens of each cell that asked an LLM; None where nothing was recorded."""
    rows: list[tuple[Entry, ...]] = []
    for cell_id, cost in study.cost.cells.items():
        counts = [f"{n:,}" for n in (cost.generated, cost.from_cache, cost.prompt_tokens, cost.completion_tokens)]
        rows.append((cell_id, Figure(cost.seconds, decimals=1), *counts))
    rows += [(step, Figure(seconds, decimals=1), "", "", "", "") for step, seconds in study.cost.steps.items()]
    if not rows:
        return None
    columns = (
        "cell or step",
        "seconds",
        "answers generated",
        "taken from another cell",
        "prompt tokens",
        "answer tokens",
    )
    return Table(name, "Cost", tuple((c,) for c in columns), tuple(rows))


def _other_domain(arm: Arm) -> str:
    return "" if arm.cell.domain == "given" else f"domain {domain_text(arm)}"


def _agreement_note(corpora: Sequence[Corpus]) -> str:
    ceilings = [f"{c.name} {c.references_agreement:.0%}" for c in corpora if c.references_agreement is not None]
    return (
        f"{DOMAIN_AGREEMENT}: share of the answers in which a classifier, trained on the index's answers, sees the "
        f"question's domain; names of domains are cut out before. In the right answers it sees it in "
        f"{', '.join(ceilings) or 'an unknown share'}."
    )


def _support_note(_: Sequence[Corpus]) -> str:
    found = calibration()
    return (
        f"{SUPPORTED}: share of an answer's clauses of which at least {found.threshold:.0%} of the character bigrams "
        f"stand in one of its documents, calibrated on {found.n} clauses marked by hand (accuracy on clauses left out "
        f"{found.accuracy:.0%}). It sees words, not meaning."
    )


_NOTES: Mapping[str, Callable[[Sequence[Corpus]], str]] = {DOMAIN_AGREEMENT: _agreement_note, SUPPORTED: _support_note}
_DISTINCT_NOTE = "distinct-n: different n-grams over all n-grams; it falls with length. Length: characters."


def _has(arms: Sequence[Arm], metric: str) -> bool:
    return any(metric in arm.values for arm in arms)


def _document_metrics(arms: Sequence[Arm]) -> list[str]:
    """Their names hold the k of the arms: `same-domain@3`, `recall@3`."""
    return list(dict.fromkeys(m for arm in arms for m in arm.values if m.startswith(_DOCUMENT_METRICS)))


def _distinct_over_all(arm: Arm | None) -> Entry:
    if arm is None or not arm.complete:
        return ABSENT
    values = [distinct_overall([text or "" for text in texts], 2) for texts in arm.answers]
    kept = [value for value in values if value is not None]
    return Figure(sum(kept) / len(kept) * POINTS) if kept else ABSENT


def _scaled(mean: float, low: float | None, high: float | None) -> Figure:
    return Figure(mean * POINTS, None if low is None else low * POINTS, None if high is None else high * POINTS)
