"""Two results folders: what is better, worse or not shown to differ in the second.

Arms are matched by everything that they are; where that leaves one arm of the same corpus, row, LLM and generation
on either side, these two are compared as well and what differs is said. Questions are matched by id, text and right
answers: others take no part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from dmnrag.experiments.records import Cell
from dmnrag.experiments.reporting.entries import mean_entry
from dmnrag.experiments.reporting.families import ROUGES, Family, Pair, tested, tested_length_matched
from dmnrag.experiments.reporting.methods_tables import differences_table
from dmnrag.experiments.reporting.panels import telling_apart
from dmnrag.experiments.reporting.study import Arm, Columns, Corpus, Study
from dmnrag.experiments.reporting.table import Entry, Table
from dmnrag.experiments.score import LENGTH
from dmnrag.experiments.statistics import Contrast, corrected, resamples_for, summarise

BEFORE, AFTER = "before", "after"
_LISTED = 5


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between the folders, of one arm or retrieval system in one metric."""

    corpus: str
    label: str
    contrast: Contrast
    """after - before."""

    @property
    def text(self) -> str:
        """One line."""
        c = self.contrast
        bounds = "" if c.low is None or c.high is None else f" [{c.low * 100:+.2f}, {c.high * 100:+.2f}]"
        p = "" if c.p_holm is None else f", p {c.p_holm:.4f} (Holm)"
        return f"{self.corpus}, {self.label}, {c.metric}: {c.difference * 100:+.2f}{bounds} points{p}, n {c.n}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that the comparison of two folders says."""

    before: Study
    after: Study
    tables: tuple[Table, ...]
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    """What could not be compared, and why."""

    @property
    def regressions(self) -> list[Change]:
        """What is significantly worse in the second folder."""
        return [change for change in self.changes if change.contrast.verdict == "lower"]

    @property
    def improvements(self) -> list[Change]:
        """What is significantly better in the second folder."""
        return [change for change in self.changes if change.contrast.verdict == "higher"]


def compare_studies(before: Study, after: Study) -> Comparison:
    """Paired tests over the questions that both folders have, corrected as one family."""
    notes: list[str] = []
    pairs: list[Pair] = []
    for corpus in after.corpora:
        former = next((c for c in before.corpora if c.name == corpus.name), None)
        if former is None:
            notes.append(f"corpus {corpus.name} is in the second folder alone")
            continue
        pairs += _corpus_pairs(former, corpus, notes)
    missing = {c.name for c in before.corpora} - {c.name for c in after.corpora}
    notes += [f"corpus {name} is in the first folder alone" for name in sorted(missing)]
    family = tested(pairs, ROUGES)
    tables = [_means_table(pairs)] if pairs else []
    if family:
        matched = tested_length_matched(pairs)
        tables.append(differences_table("answers-differences", "Answers: after − before", family, matched))
    retrieval = _retrieval_family(before, after)
    if retrieval:
        tables.append(differences_table("retrieval-differences", "Retrieval: after − before", retrieval))
    changes = [Change(key[0], key[1], c) for found in (family, retrieval) for key, c in found.items()]
    return Comparison(before, after, tuple(tables), tuple(changes), tuple(notes))


def _corpus_pairs(former: Corpus, corpus: Corpus, notes: list[str]) -> list[Pair]:
    places = _shared_places(former, corpus)
    if len(places) < len(corpus.questions) or len(places) < len(former.questions):
        notes.append(
            f"{corpus.name}: {len(places):,} questions are the same in both folders "
            f"({len(former.questions):,} before, {len(corpus.questions):,} after); the others take no part"
        )
    if not places:
        return []
    shared = replace(corpus, questions=tuple(corpus.questions[j] for _, j in places), arms=(), retrieval=None)
    labels = _labels(corpus.arms)
    pairs = []
    for old, new in _matched_arms(former.arms, corpus.arms, corpus.name, notes):
        first, second = _restricted(old, [i for i, _ in places]), _restricted(new, [j for _, j in places])
        if not (first.complete and second.complete):
            notes.append(f"{corpus.name}, {labels[new.cell]}: incomplete, not compared")
            continue
        pairs.append(Pair(shared, second, first, (AFTER, BEFORE), labels[new.cell] + _differing(old.cell, new.cell)))
    return pairs


def _shared_places(former: Corpus, corpus: Corpus) -> list[tuple[int, int]]:
    known = {(e.query.query_id, e.query.text, e.references): i for i, e in enumerate(former.questions)}
    found = ((known.get((e.query.query_id, e.query.text, e.references)), j) for j, e in enumerate(corpus.questions))
    return [(i, j) for i, j in found if i is not None]


def _restricted(arm: Arm, places: Sequence[int]) -> Arm:
    """The arm over some of its questions."""
    values: Columns = {metric: tuple(column[i] for i in places) for metric, column in arm.values.items()}
    answers = tuple(tuple(texts[i] for i in places) for texts in arm.answers)
    answered = min(sum(text is not None for text in texts) for texts in answers)
    return replace(arm, n=len(places), answered=answered, values=values, answers=answers)


def _matched_arms(before: Sequence[Arm], after: Sequence[Arm], corpus: str, notes: list[str]) -> list[tuple[Arm, Arm]]:
    pairs, old, new = _match(list(before), list(after), _identity)
    further, old, new = _match(old, new, _place)
    for which, arms, left in (("first", before, old), ("second", after, new)):
        if left:
            labels = _labels(arms)
            names = "; ".join(labels[arm.cell] for arm in left[:_LISTED])
            more = f" and {len(left) - _LISTED} more" if len(left) > _LISTED else ""
            notes.append(f"{corpus}: in the {which} folder alone: {names}{more}")
    return pairs + further


def _match(
    before: list[Arm], after: list[Arm], key: Callable[[Arm], object]
) -> tuple[list[tuple[Arm, Arm]], list[Arm], list[Arm]]:
    """Arms whose key stands once on either side, and those that are left."""
    old, new = _once(before, key), _once(after, key)
    pairs = [(old[k], new[k]) for k in new if k in old]
    matched = {id(arm) for pair in pairs for arm in pair}
    return pairs, [a for a in before if id(a) not in matched], [a for a in after if id(a) not in matched]


def _once(arms: Sequence[Arm], key: Callable[[Arm], object]) -> dict[object, Arm]:
    keys = [key(arm) for arm in arms]
    return {k: arm for k, arm in zip(keys, arms, strict=True) if keys.count(k) == 1}


def _identity(arm: Arm) -> object:
    cell = arm.cell
    return replace(cell, id="", repeat=0, table=(), evidence=None, parameters=replace(cell.parameters, seed=None))


def _place(arm: Arm) -> object:
    return arm.cell.row, arm.cell.llm, arm.cell.generation


def _labels(arms: Sequence[Arm]) -> dict[Cell, str]:
    """A name for each arm of a corpus: as short as no other arm has it."""
    groups: dict[str, list[Arm]] = {}
    for arm in arms:
        groups.setdefault(_short_label(arm.cell), []).append(arm)
    return {
        arm.cell: ", ".join(filter(None, (short, more)))
        for short, group in groups.items()
        for arm, more in zip(group, telling_apart(group), strict=True)
    }


def _short_label(cell: Cell) -> str:
    parts = [cell.row, cell.llm, cell.generation if cell.generation == "lora" else None]
    if cell.domain == "wrong":
        parts.append(f"domain wrong for {cell.domain_noise:.0%}")
    elif cell.domain == "inferred":
        parts.append("domain inferred")
    elif cell.domain == "none" and cell.layer is not None:  # answers made elsewhere: nothing is known of domains
        parts.append("no domain")
    for name in ("temperature", "top_k"):
        value = getattr(cell.parameters, name)
        parts.append(None if value is None else f"{name} {value:g}")
    return ", ".join(part for part in parts if part)


def _differing(old: Cell, new: Cell) -> str:
    """What is not the same in two arms that stand in the same place."""
    skipped = {"id", "repeat", "table", "parameters"}
    names = [f.name for f in fields(Cell) if f.name not in skipped]
    found = [f"{n} {getattr(old, n)} → {getattr(new, n)}" for n in names if getattr(old, n) != getattr(new, n)]
    found += [
        f"{f.name} {getattr(old.parameters, f.name)} → {getattr(new.parameters, f.name)}"
        for f in fields(new.parameters)
        if f.name != "seed" and getattr(old.parameters, f.name) != getattr(new.parameters, f.name)
    ]
    return f" ({'; '.join(found)})" if found else ""


def _means_table(pairs: Sequence[Pair]) -> Table:
    metrics = (*ROUGES, LENGTH)
    columns: list[tuple[str, ...]] = [("corpus",), ("arm",)]
    columns += [(metric.partition(" (")[0], which) for metric in metrics for which in (BEFORE, AFTER)]
    rows = []
    for pair in pairs:
        entries: list[Entry] = [mean_entry(pair.corpus, arm, m) for m in metrics for arm in (pair.b, pair.a)]
        rows.append((pair.corpus.name, pair.setting, *entries))
    return Table("answers", "Answers, over the questions that both have", tuple(columns), tuple(rows))


def _retrieval_family(before: Study, after: Study) -> Family:
    """Systems that both folders measured on the same number of questions with the same groups."""
    rows: list[tuple[str, str, Contrast]] = []
    for corpus in after.corpora:
        old = next((c.retrieval for c in before.corpora if c.name == corpus.name), None)
        new = corpus.retrieval
        if old is None or new is None or old.clusters != new.clusters:
            continue
        for system in [s for s in new.values if s in old.values]:
            values = {AFTER: new.values[system], BEFORE: old.values[system]}
            resamples = resamples_for(len(new.values) * len(new.values[system]))
            found = summarise(values, new.clusters, [(AFTER, BEFORE)], resamples=resamples)
            rows += [(corpus.name, system, contrast) for contrast in found.comparisons]
    adjusted = corrected([contrast for _, _, contrast in rows])
    return {(c, s, AFTER, BEFORE, new.metric): new for (c, s, _), new in zip(rows, adjusted, strict=True)}
