"""Where hard negatives come from: the first layer's rankings of the training questions, or another ranking.

Knows indexes and ranks; what a right answer is, the guards know. Searching is nearly all of the time that a
training set without an encoder takes, so it is what several workers share.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from dmnrag.errors import IndexFolderError
from dmnrag.index import Index
from dmnrag.types import JOINT, PLAIN, DomainUse, Hit, Query

Rank = Callable[[Sequence[Query], int], Sequence[Sequence[Hit]]]
"""A ranking of documents for each query, best first, at most so many."""

Scored = list[tuple[str, float]]
"""(doc_id, score), best first."""

QUERIES_AT_ONCE = 256
"""Rankings are made and used in parts of this size, so that memory does not grow with the questions."""


@dataclass(frozen=True, slots=True)
class Searcher:
    """Ranks queries by the first layer of an index."""

    index: Index
    use: DomainUse

    def __call__(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """The k best documents of each query."""
        return self.index.sparse.search(queries, k, use=self.use)


def first_layer(index: Index, *, joint: bool) -> Searcher:
    """The first layer's ranking, with the domain or without it."""
    return Searcher(index, JOINT if joint else PLAIN)


def rankings(rank: Rank, queries: Sequence[Query], k: int, workers: int = 1) -> Iterator[list[Scored]]:
    """The rankings of all queries in order, in parts of `QUERIES_AT_ONCE`.

    Several workers share the work where `rank` is the first layer of an index; each opens the index by itself. Other
    rankings hold a model and are asked by this process.

    Raises:
        IndexFolderError: the index got a new generation meanwhile, so that workers see other documents.
    """
    parts = [queries[start : start + QUERIES_AT_ONCE] for start in range(0, len(queries), QUERIES_AT_ONCE)]
    if workers > 1 and len(parts) > 1 and isinstance(rank, Searcher):
        yield from _with_workers(rank, parts, k, min(workers, len(parts)))
        return
    for part in parts:
        yield [_scored(hits) for hits in rank(part, k)]


def tail_places(length: int, first_rank: int, last_rank: int) -> range:
    """Places (from 0) of a ranked list's tail.

    The tail is ranks `first_rank` to `last_rank` (from 1); a list shorter than `last_rank` is cut in the same
    proportion, so the tail of 100 hits by ranks 51 to 200 is ranks 26 to 100.
    """
    length = min(length, last_rank)
    return range((first_rank - 1) * length // last_rank, length)


def _scored(hits: Sequence[Hit]) -> Scored:
    return [(hit.doc_id, hit.score) for hit in hits]


def _with_workers(rank: Searcher, parts: list[Sequence[Query]], k: int, workers: int) -> Iterator[list[Scored]]:
    generation = rank.index.manifest.generation
    # Not forked: a parent that has loaded torch holds threads and locks that a copy of it would wait for.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _open_index, (rank.index.folder, generation, rank.use, k))
    with pool:
        yield from pool.map(_search_part, parts)


_worker: list[tuple[Searcher | None, int]] = []
"""In a worker process: what it searches, None where the index is not the parent's any more, and k."""


def _open_index(folder: Path, generation: int, use: DomainUse, k: int) -> None:
    index = Index.open(folder)
    _worker[:] = [(Searcher(index, use) if index.manifest.generation == generation else None, k)]


def _search_part(queries: Sequence[Query]) -> list[Scored]:
    ((searcher, k),) = _worker
    if searcher is None:
        raise IndexFolderError("the index changed while its training questions were searched; start again")
    return [_scored(hits) for hits in searcher(queries, k)]
