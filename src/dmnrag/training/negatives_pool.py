"""The documents that a training set is made of: which of them ask the same, and how their texts compare.

Texts are compared by letters and digits (`dmnrag.data.comparable`). Documents have a position, their place in the
pool. Knows no settings, no encoder and no ranking.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

from dmnrag.data.comparable import comparable
from dmnrag.data.reposts import repost_groups
from dmnrag.errors import DataError
from dmnrag.types import Document

SAME_QUESTION = 0.85
"""Jaccard index from which another document's answer is right for a question. Between 0.7, where re-posts begin, and
this, half of the real pairs tell one story and ask for something else; from here on none of those read did."""

SAME_ANSWER = 0.5
"""A further positive that is as near as this to another one teaches nothing new."""

SHORTEST_PART = 8
"""Letters: shorter texts (a bare yes, the name of an illness) stand in any answer, so only equality counts."""

_BIGRAMS_KEPT = 1 << 14
"""Sets of texts that are compared again and again; 5 kB each."""


class Pool:
    """Documents whose answers may stand as passages."""

    def __init__(self, documents: Sequence[Document]) -> None:
        """`documents` with different ids, each with a question and an answer.

        Raises:
            DataError: an id is given twice.
        """
        self.documents = documents
        self.position: dict[str, int] = {d.doc_id: i for i, d in enumerate(documents)}
        if len(self.position) < len(documents):
            raise DataError(f"{len(documents) - len(self.position):,} documents are given twice; ids must be unique")
        self.by_id = sorted(range(len(documents)), key=lambda i: documents[i].doc_id)
        """Positions in the order of their ids: what is drawn by it does not depend on the order of the documents."""
        self.questions: list[str] = [comparable(d.question) for d in documents]
        self.answers: list[tuple[str, ...]] = [tuple(map(comparable, d.answers)) for d in documents]
        self._bigrams = lru_cache(maxsize=_BIGRAMS_KEPT)(_bigrams)

    def __len__(self) -> int:
        return len(self.documents)

    @cached_property
    def _groups(self) -> list[int]:
        return repost_groups([d.question for d in self.documents], [d.answers for d in self.documents])

    @cached_property
    def _members(self) -> dict[int, list[int]]:
        members: dict[int, list[int]] = {}
        for position in self.by_id:
            members.setdefault(self._groups[position], []).append(position)
        return members

    def reposts(self, position: int) -> list[int]:
        """Positions of the documents that post the same case again, by id, without the document itself."""
        return [other for other in self._members[self._groups[position]] if other != position]

    def is_repost(self, one: int, other: int) -> bool:
        """Whether two documents are of one group of re-posts."""
        return self._groups[one] == self._groups[other]

    def jaccard(self, one: str, other: str) -> float:
        """Of the character bigrams of two comparable texts; 1 where they are equal."""
        if one == other:
            return 1.0
        ours, theirs = self._bigrams(one), self._bigrams(other)
        common = len(ours & theirs)
        return common / (len(ours) + len(theirs) - common) if common else 0.0

    def further_answers(self, position: int) -> Iterator[tuple[int, int]]:
        """(position, number of the answer) of everything right for a question beside its gold, each once in meaning.

        First the document's own further answers, then those of documents that ask the same (`SAME_QUESTION`).
        """
        others = [i for i in self.reposts(position) if self._asks_same(position, i)]
        seen = [self.answers[position][0]]
        for owner in (position, *others):
            for number, form in enumerate(self.answers[owner]):
                if all(self.jaccard(form, known) < SAME_ANSWER for known in seen):
                    seen.append(form)
                    yield owner, number

    def _asks_same(self, one: int, other: int) -> bool:
        return self.jaccard(self.questions[one], self.questions[other]) >= SAME_QUESTION


def contains(text: str, part: str) -> bool:
    """Whether a comparable text holds another one that is long enough to mean something, or equals it."""
    return text == part or (len(part) >= SHORTEST_PART and part in text)


def _bigrams(form: str) -> frozenset[str]:
    return frozenset(form[i : i + 2] for i in range(len(form) - 1))
