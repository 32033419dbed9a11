"""From DPR instances to batches: which passages a step sees, and which of them are right for which question.

Every passage of a batch is a candidate for each of its questions: other rows' golds are the in-batch negatives
(Karpukhin et al. 2020), mined negatives serve all rows. A passage that is right for a question never counts as wrong
for it: the positive of another row with the same question, a passage whose text equals one of the question's
positives, one of a document that the instance lists as right (`right_ids`). Knows texts and numbers, nothing of
models.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dmnrag.data.comparable import comparable
from dmnrag.data.exchange import DprContext, DprInstance
from dmnrag.training.settings import DprSettings

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Row:
    """A training question; its passages by number."""

    question: int
    positives: tuple[int, ...]
    negatives: tuple[int, ...]
    hard_negatives: tuple[int, ...]
    right: frozenset[int]
    """Content keys of everything that is right for it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A compiled training set: each distinct text once."""

    questions: list[str]
    passages: list[str]
    keys: list[int]
    """Content key of each passage: equal where the texts say the same, whatever their titles."""
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step sees."""

    questions: Numbers
    """(n_rows,) numbers of question texts."""
    passages: Numbers
    """(n_passages,) numbers of passage texts, each once."""
    targets: Numbers
    """(n_rows,) where in `passages` the positive of each row stands."""
    masked: Mask
    """(n_rows, n_passages) True where a passage other than the target is right for the row too."""


def question_text(instance: DprInstance, *, with_domain: bool) -> str:
    """What the encoder reads of a question; the labels as a search puts them in front."""
    return (",".join(instance.domain) if with_domain else "") + instance.question


def passage_text(context: DprContext) -> str:
    """What the encoder reads of a passage: the title, where there is one, on a line of its own, and the text."""
    return f"{context.title}\n{context.text}" if context.title else context.text


def compile_rows(instances: Sequence[DprInstance], settings: DprSettings) -> Rows:
    """Number the texts and find what is right for each question."""
    numbering = _Numbering()
    right_by_question: dict[str, set[int]] = {}
    found = []
    for instance in instances:
        lists = (instance.positive_ctxs, instance.negative_ctxs, instance.hard_negative_ctxs)
        positives, negatives, hard = (tuple(map(numbering.passage, contexts)) for contexts in lists)
        question = numbering.question(question_text(instance, with_domain=settings.domain_in_question))
        right = right_by_question.setdefault(comparable(instance.question), set())
        right.update(numbering.key_of[number] for number in positives)
        found.append((Row(question, positives, negatives, hard, frozenset()), right, _right_ids(instance)))
    by_id = numbering.keys_by_id
    rows = [
        replace(row, right=frozenset(right).union(*(by_id.get(passage_id, ()) for passage_id in passage_ids)))
        for row, right, passage_ids in found
    ]
    return Rows(list(numbering.questions), list(numbering.passages), numbering.key_of, rows)


class _Numbering:
    """Gives each distinct text a number, and each passage a key of what it says."""

    def __init__(self) -> None:
        self.questions: dict[str, int] = {}
        self.passages: dict[str, int] = {}
        self.key_of: list[int] = []
        self.keys_by_id: dict[str, set[int]] = {}
        self._keys: dict[str, int] = {}

    def question(self, text: str) -> int:
        return self.questions.setdefault(text, len(self.questions))

    def passage(self, context: DprContext) -> int:
        number = self.passages.setdefault(passage_text(context), len(self.passages))
        if number == len(self.key_of):
            self.key_of.append(self._keys.setdefault(comparable(context.text), len(self._keys)))
        # A document's further answers are passages `ID#2`, `ID#3`, ...
        for passage_id in {context.passage_id, context.passage_id.rpartition("#")[0]} - {""}:
            self.keys_by_id.setdefault(passage_id, set()).add(self.key_of[number])
        return number


def _right_ids(instance: DprInstance) -> list[str]:
    """Documents that the set's maker knows to be right for the question: its own and its re-posts'."""
    listed = instance.extra.get("right_ids")
    if not isinstance(listed, list):
        return []
    return [name for name in (instance.extra.get("query_id"), *listed) if isinstance(name, str)]


def n_batches(rows: Rows, settings: DprSettings) -> int:
    """Steps of one epoch."""
    return -(-len(rows.rows) // settings.batch_size)


def epoch_batches(rows: Rows, settings: DprSettings, epoch: int) -> Iterator[Batch]:
    """The batches of an epoch (from 0), the same for the same seed: rows in random order, in parts of like size."""
    order = np.random.default_rng((settings.seed, epoch)).permutation(len(rows.rows))
    for part in np.array_split(order, n_batches(rows, settings)):
        yield _batch(rows, [rows.rows[i] for i in part], settings, epoch)


def _batch(rows: Rows, chosen: Sequence[Row], settings: DprSettings, epoch: int) -> Batch:
    golds = [row.positives[epoch % len(row.positives)] for row in chosen]
    places = {number: place for place, number in enumerate(dict.fromkeys(golds))}
    for row in chosen:
        for candidates, n_wanted in (
            (row.negatives, settings.negatives),
            (row.hard_negatives, settings.hard_negatives),
        ):
            for number in _turn(candidates, n_wanted, epoch):
                places.setdefault(number, len(places))
    passages = np.array(list(places), np.int64)
    targets = np.array([places[gold] for gold in golds], np.int64)
    keys = [rows.keys[number] for number in places]
    masked = np.array([[key in row.right for key in keys] for row in chosen], np.bool_)
    masked[np.arange(len(chosen)), targets] = False
    return Batch(np.array([row.question for row in chosen], np.int64), passages, targets, masked)


def _turn(candidates: Sequence[int], n_wanted: int, epoch: int) -> list[int]:
    """The next `n_wanted` of a list in each epoch, from its start again when it ends."""
    n_taken = min(n_wanted, len(candidates))
    return [candidates[(epoch * n_wanted + i) % len(candidates)] for i in range(n_taken)]
