"""What a results folder holds, in the shape that tables need: corpora with their arms.

An arm is a way of answering: one cell, or the cells that differ in the seed of sampling alone. Its value for a
question is the mean over these, so that a question counts once whatever the number of repeats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from dmnrag.experiments.reporting.measures.agreement import DOMAIN_AGREEMENT
from dmnrag.experiments.reporting.measures.agreement_file import Agreement, read_agreement
from dmnrag.experiments.results import Cell, CorpusCard, Cost, Evidence, ResultsFolder, Retrieval
from dmnrag.experiments.score_folder import ANSWERS
from dmnrag.types import Example

Columns = Mapping[str, tuple[float | None, ...]]
"""metric -> a value per question, in the order of the corpus's questions."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A way of answering, over the questions of one corpus."""

    cell: Cell
    """Of the first repeat."""
    n: int
    answered: int
    """In the repeat that has fewest answers."""
    values: Columns
    """Empty where a question lacks its answer: means over the others would not be the arm's."""
    repeat_means: Mapping[str, tuple[float, ...]]
    """metric -> the mean of each repeat."""
    answers: tuple[tuple[str | None, ...], ...]
    """For each repeat the text for each question; None where there is none."""
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    """query_id -> the documents it was given."""

    @property
    def complete(self) -> bool:
        """Whether every question has its answer in every repeat."""
        return bool(self.values) and self.answered == self.n

    @property
    def repeats(self) -> int:
        """Number of seeds."""
        return len(self.answers)

    def seed_spread(self, metric: str) -> float | None:
        """Standard deviation of the mean over seeds; None with one."""
        means = self.repeat_means.get(metric, ())
        return stdev(means) if len(means) > 1 else None

    def measured(self, more: Columns) -> "Arm":
        """The same with further values, where it is complete."""
        return replace(self, values={**self.values, **more}) if self.complete else self


@dataclass(frozen=True, slots=True)
class Corpus:
    """The questions of one corpus and all arms over them."""

    card: CorpusCard
    questions: tuple[Example, ...]
    arms: tuple[Arm, ...]
    retrieval: Retrieval | None
    references_agreement: float | None = None
    """Share of the right answers in which the classifier sees their domain; None where it was not measured."""

    @property
    def name(self) -> str:
        """As the spec calls it."""
        return self.card.name

    @property
    def clusters(self) -> list[str]:
        """Group of near-identical posts of each question."""
        return [example.cluster or example.query.query_id for example in self.questions]


@dataclass(frozen=True, slots=True)
class Study:
    """A whole results folder."""

    path: Path
    spec: Mapping[str, Any]
    env: Mapping[str, Any]
    cost: Cost
    corpora: tuple[Corpus, ...]

    @property
    def arms(self) -> list[Arm]:
        """Those of all corpora."""
        return [arm for corpus in self.corpora for arm in corpus.arms]

    @property
    def foreign(self) -> bool:
        """Whether the answers were made elsewhere."""
        return ANSWERS in self.spec

    @property
    def stand_ins(self) -> list[str]:
        """LLMs and encoders of the spec that are made for tests and answer without understanding."""
        llms = [f"LLM {llm['name']}" for llm in self.spec.get("llm", ()) if (llm["model"] or llm["name"]) == "fake"]
        named = [corpus for corpus in self.spec.get("corpus", ()) if corpus.get("encoder") == "fake"]
        return llms + [f"encoder of {corpus['name']}" for corpus in named]

    @property
    def name(self) -> str:
        """The folder's."""
        return self.path.resolve().name


def read_study(folder: ResultsFolder) -> Study:
    """Everything that reports need; cells that are not finished are arms without values.

    Raises:
        DataError: a file is missing or damaged; names it.
    """
    cells = folder.cells()
    corpora = tuple(_read_corpus(folder, name, [c for c in cells if c.corpus == name]) for name in folder.corpora())
    return Study(folder.path, folder.spec, folder.env, folder.cost(), corpora)


def _read_corpus(folder: ResultsFolder, name: str, cells: Sequence[Cell]) -> Corpus:
    questions = tuple(folder.questions(name))
    groups: dict[Cell, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_without_seed(cell), []).append(cell)
    agreement = read_agreement(folder, name)
    arms = tuple(
        _read_arm(folder, sorted(group, key=lambda c: c.repeat), questions, agreement) for group in groups.values()
    )
    of_references = _means([agreement.references]) if agreement is not None else []
    return Corpus(folder.card(name), questions, arms, folder.retrieval(name), *of_references)


def _without_seed(cell: Cell) -> Cell:
    return replace(cell, id="", repeat=0, table=(), parameters=replace(cell.parameters, seed=None))


def _read_arm(
    folder: ResultsFolder, cells: Sequence[Cell], questions: Sequence[Example], agreement: Agreement | None
) -> Arm:
    metrics = [folder.metrics(cell) for cell in cells]
    answers = []
    for cell in cells:
        given = {row.query_id: None if row.error else row.answer for row in folder.predictions(cell)}
        answers.append(tuple(given.get(example.query.query_id) for example in questions))
    finished = [found for found in metrics if found is not None and found.complete]
    whole = len(finished) == len(cells)
    common = [m for m in finished[0].values if all(m in f.values for f in finished)] if whole else []
    table = tuple(dict.fromkeys(name for cell in cells for name in cell.table))
    arm = Arm(
        replace(cells[0], table=table),
        len(questions),
        min(sum(text is not None for text in texts) for texts in answers),
        {m: mean_over_repeats([f.values[m] for f in finished]) for m in common},
        {m: tuple(_means([f.values[m] for f in finished])) for m in common},
        tuple(answers),
        {row.query_id: row for row in folder.evidence(cells[0])},
    )
    known = [agreement.cells.get(cell.id) if agreement is not None else None for cell in cells]
    # Values that rest on other answers than those that are there now say nothing of these.
    current = [k.values for k, f in zip(known, finished, strict=whole) if k is not None and k.inputs == f.inputs]
    return arm.measured({DOMAIN_AGREEMENT: mean_over_repeats(current)}) if len(current) == len(cells) else arm


def mean_over_repeats(columns: Sequence[Sequence[float | None]]) -> tuple[float | None, ...]:
    """The mean over repeats of each question; None where a repeat has no value."""
    return tuple(
        None if any(v is None for v in row) else fmean(v for v in row if v is not None)
        for row in zip(*columns, strict=True)
    )


def _means(columns: Sequence[Sequence[float | None]]) -> list[float]:
    kept = [[v for v in column if v is not None] for column in columns]
    return [fmean(values) for values in kept if values]
