"""Training and test documents without leakage.

No question and no answer of the test split may enter the index, an answer that also stands in a test row
included (Zhang et al. 2025). Re-posts stay on one side by their groups (`dmnrag.data.reposts`); what remains,
short stock answers and the like, is taken out of training and counted.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from dmnrag.data.comparable import comparable
from dmnrag.errors import ConfigError, DataError
from dmnrag.types import Document, Example, Query


@dataclass(frozen=True, slots=True)
class Leakage:
    """Training documents that hold a text of the test split."""

    by_question: tuple[str, ...]
    """doc_ids whose question equals a test question."""
    by_answer: tuple[str, ...]
    """doc_ids of which an answer equals a test reference."""

    def __bool__(self) -> bool:
        return bool(self.by_question or self.by_answer)

    @property
    def doc_ids(self) -> frozenset[str]:
        """All of them."""
        return frozenset((*self.by_question, *self.by_answer))


@dataclass(frozen=True, slots=True)
class Split:
    """Documents for the index and examples to test it with."""

    train: list[Document]
    test: list[Example]
    dropped: Leakage
    """Documents taken out of both sides, because a text of theirs stands in the test."""
    n_groups: int
    """Groups of near-identical posts over all rows."""
    largest_group: int


def split_documents(
    documents: Sequence[Document],
    test_size: float = 0.0,
    seed: int = 0,
    *,
    groups: Sequence[int] | None = None,
) -> Split:
    """Random split by group, the same for the same documents, size and seed on every machine.

    Groups are taken in random order into the test until it holds `test_size` of the rows, rounded; one that
    would make it larger is passed over. So the test is never larger, and a group larger than the test is in
    training.

    Args:
        documents: all rows.
        test_size: share of the rows, 0 (everything is training) to below 1.
        seed: of the random order.
        groups: group of each document; those of one group stay together. None: every document by itself.

    Raises:
        ConfigError: test_size out of range, or groups that do not fit the documents.
        DataError: the test would hold no row although it should, or the training none.
    """
    if not 0 <= test_size < 1:
        raise ConfigError(f"test size {test_size!r}: allowed is 0 (no test split) to below 1, as a share of the rows")
    if groups is None:
        groups = range(len(documents))
    if len(groups) != len(documents):
        raise ConfigError(f"{len(groups)} group numbers for {len(documents)} documents: one for each is needed")
    members: dict[int, list[int]] = {}
    for position, group in enumerate(groups):
        members.setdefault(group, []).append(position)
    largest = max(map(len, members.values()), default=0)
    chosen = _choose(members, round(test_size * len(documents)), seed)
    test = [_example(documents[i], groups[i]) for i in range(len(documents)) if i in chosen]
    rest = [document for i, document in enumerate(documents) if i not in chosen]
    leakage = find_leakage(rest, test)
    train = [document for document in rest if document.doc_id not in leakage.doc_ids]
    if test_size and not (test and train):
        raise DataError(
            f"test size {test_size} of {len(documents):,} documents in {len(members):,} groups (largest:"
            f" {largest:,}) leaves {len(train):,} for training and {len(test):,} for the test:"
            " give more data or another size"
        )
    return Split(train, test, leakage, len(members), largest)


def find_leakage(train: Sequence[Document], test: Sequence[Example]) -> Leakage:
    """Training documents with a question or an answer of the test, compared by letters and digits."""
    if not test:
        return Leakage((), ())
    questions = {comparable(example.query.text) for example in test}
    answers = {comparable(reference) for example in test for reference in example.references}
    return Leakage(
        by_question=tuple(d.doc_id for d in train if comparable(d.question) in questions),
        by_answer=tuple(d.doc_id for d in train if any(comparable(answer) in answers for answer in d.answers)),
    )


def _choose(members: dict[int, list[int]], wanted: int, seed: int) -> set[int]:
    """Positions of whole groups, at most `wanted`. random.Random(int) does not depend on the hash seed."""
    order = list(members.values())
    random.Random(seed).shuffle(order)
    chosen: set[int] = set()
    for group in order:
        if len(chosen) + len(group) <= wanted:
            chosen.update(group)
    return chosen


def _example(document: Document, group: int) -> Example:
    query = Query(document.doc_id, document.question, document.domain)
    return Example(query, references=document.answers, cluster=str(group))
