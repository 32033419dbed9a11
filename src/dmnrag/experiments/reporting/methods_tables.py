"""Tables 3 to 6 of the paper, and beside each the differences with their tests."""

from collections.abc import Sequence

from dmnrag.experiments.reporting.entries import (
    HIGHER,
    INTERVALS_NOTE,
    LOWER,
    POINTS_NOTE,
    detectable_entry,
    difference_entry,
    family_note,
    incomplete_text,
    mark_of,
    mean_entry,
    n_note,
    p_entry,
    verdict_text,
)
from dmnrag.experiments.reporting.families import ROUGES, Family
from dmnrag.experiments.reporting.panels import Panel
from dmnrag.experiments.reporting.study import Corpus, Study
from dmnrag.experiments.reporting.table import Entry, Table
from dmnrag.experiments.score import LENGTH
from dmnrag.methods import BASELINE

_CHARACTER_ROUGES = tuple(name.replace("word", "character") for name in ROUGES)


def scores_table(
    study: Study, panel: Panel, name: str, title: str, family: Family, more_notes: Sequence[str] = ()
) -> Table:
    """Rows are methods; for each corpus, zero-shot and LoRA side by side, ROUGE-1, 2, L by word and the length."""
    corpora = corpora_of(study, panel)
    marked = any(contrast.verdict != "not shown" and key[3] == BASELINE.name for key, contrast in family.items())
    notes = [n_note(corpora), POINTS_NOTE, INTERVALS_NOTE]
    if marked:
        notes.append(
            f"{HIGHER.strip()} {LOWER.strip()}: significantly above or below {BASELINE.name} after Holm's correction; "
            "a figure without a sign is not shown to differ."
        )
    notes += [*more_notes, *incomplete_notes(corpora, panel)]
    return _table(panel, corpora, name, title, (*ROUGES, LENGTH), family, notes)


def characters_table(study: Study, panel: Panel, name: str, title: str) -> Table:
    """The same rows by character. Figures by word and by character do not compare."""
    corpora = corpora_of(study, panel)
    notes = [n_note(corpora), "ROUGE is F1 over characters, in points from 0 to 100.", INTERVALS_NOTE]
    return _table(panel, corpora, name, title, _CHARACTER_ROUGES, {}, notes)


def differences_table(name: str, title: str, family: Family, matched: Family | None = None) -> Table:
    """A row per test: difference, corrected p, what could have been detected, and the difference at equal length."""
    columns = [("corpus",), ("setting",), ("difference",), ("metric",), ("n",), ("points",), ("p (Holm)",)]
    columns += [("detectable",), ("verdict",)]
    if matched is not None:
        columns += [("length-matched points",), ("length-matched verdict",)]
    rows = []
    for key, contrast in family.items():
        corpus, setting, a, b, metric = key
        row: list[Entry] = [corpus, setting, f"{a} − {b}", metric, str(contrast.n), difference_entry(contrast)]
        row += [p_entry(contrast), detectable_entry(contrast), verdict_text(contrast)]
        if matched is not None:
            at_length = matched.get(key)
            row += [difference_entry(at_length), verdict_text(at_length) if at_length else "–"]
        rows.append(tuple(row))
    notes = [family_note(family), INTERVALS_NOTE]
    if matched is not None:
        notes.append(
            "Length-matched: the longer of two answers is cut to the shorter one's length, so nothing is won by "
            "saying more; corrected as a family of its own."
        )
    return Table(name, title, tuple(columns), tuple(rows), tuple(notes))


def incomplete_notes(corpora: Sequence[Corpus], panel: Panel) -> list[str]:
    """A line for each arm that cannot be averaged."""
    names = {corpus.name for corpus in corpora}
    return [
        f"{arm.cell.corpus}, {arm.cell.row}, {arm.cell.generation}: {incomplete_text(arm)}: not averaged, not compared."
        for arm in panel.arms
        if not arm.complete and arm.cell.corpus in names
    ]


def corpora_of(study: Study, panel: Panel) -> list[Corpus]:
    """The corpora of a panel, in the study's order."""
    return [corpus for corpus in study.corpora if corpus.name in panel.corpora()]


def _table(
    panel: Panel,
    corpora: Sequence[Corpus],
    name: str,
    title: str,
    metrics: Sequence[str],
    family: Family,
    notes: Sequence[str],
) -> Table:
    places = [(corpus, generation) for corpus in corpora for generation in panel.generations(corpus.name)]
    # Of answers whose LLM is not known, "zero-shot" would say something that is not known either.
    shown = {"lora": "LoRA", "zero-shot": "zero-shot" if panel.llm else ""}
    columns = [
        tuple(filter(None, (corpus.name, shown[generation], _short(metric))))
        for corpus, generation in places
        for metric in metrics
    ]
    rows = []
    for row in panel.rows:
        entries = [
            mean_entry(
                corpus,
                panel.find(corpus.name, row, generation),
                metric,
                mark_of(family, (corpus.name, generation, row, BASELINE.name, metric)),
            )
            for corpus, generation in places
            for metric in metrics
        ]
        rows.append((row, *entries))
    return Table(name, title, (("method",), *columns), tuple(rows), tuple(notes))


def _short(metric: str) -> str:
    return metric.partition(" (")[0]
