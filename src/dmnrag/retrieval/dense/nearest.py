"""Nearest rows of mapped matrices by inner product, exactly, with FAISS. Knows rows, not documents.

FAISS's float32 sums differ in the last digits with the size of the batch and the place of a row, so
what it gives are candidates with a floor; `inner_products` gives the scores that count.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmnrag._optional import require
from dmnrag.protocols import FloatMatrix

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

_MOSTLY_KEPT = 0.5
"""When a filter keeps more rows than this share, all are compared and the others dropped: copying the
kept ones would cost more than comparing the rest."""

_COPIED_AT_ONCE = 65_536
"""Kept rows copied together at once: 100 MB of 384 numbers."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows that may be among the nearest."""

    rows: Rows
    """(n_queries, n_candidates), -1 where there are fewer; in no order."""
    floor: Scores
    """(n_queries,) no kept row outside `rows` scores above this; -inf where every kept row is in."""


def inner_products(query: npt.NDArray[np.float32], vectors: FloatMatrix) -> Scores:
    """The score of each row (n_rows,).

    Summed in double precision row by row and rounded, so that equal rows score the same wherever they
    stand and whatever else is asked.
    """
    products = vectors.astype(np.float64)
    products *= query
    scores: Scores = products.sum(axis=1).astype(np.float32)
    return scores


def nearest_rows(
    queries: FloatMatrix, vectors: FloatMatrix, depth: int, kept: Mask | None, first_row: int
) -> Candidates:
    """The candidates among the rows of one matrix.

    Args:
        queries: (n_queries, dimension).
        vectors: (n_rows, dimension).
        depth: rows wanted for each query.
        kept: (n_rows,) False where a row does not count; None keeps all.
        first_row: added to the row numbers in the result.
    """
    found = [_scan(queries, block, depth, numbers) for block, numbers in _blocks(vectors, kept)]
    rows = np.concatenate([f.rows for f in found], axis=1) if found else np.empty((len(queries), 0), np.int64)
    floor = np.max([f.floor for f in found], axis=0) if found else np.full(len(queries), -np.inf, np.float32)
    if kept is not None:
        rows = np.where((rows >= 0) & kept[rows], rows, -1)
    return Candidates(np.where(rows >= 0, rows + first_row, -1), floor)


def join(found: list[Candidates]) -> Candidates:
    """The candidates of several matrices together."""
    return Candidates(np.concatenate([f.rows for f in found], axis=1), np.max([f.floor for f in found], axis=0))


def _blocks(vectors: FloatMatrix, kept: Mask | None) -> Iterator[tuple[FloatMatrix, Rows | None]]:
    """Matrices to compare with their row numbers; None numbers them from 0."""
    if kept is None or kept.mean() > _MOSTLY_KEPT:
        yield vectors, None
        return
    rows = np.flatnonzero(kept)
    for start in range(0, len(rows), _COPIED_AT_ONCE):
        chosen = rows[start : start + _COPIED_AT_ONCE]
        yield vectors[chosen], chosen


def _scan(queries: FloatMatrix, block: FloatMatrix, depth: int, numbers: Rows | None) -> Candidates:
    faiss = require("faiss", "dense")
    depth = min(depth, len(block))
    scores, rows = faiss.knn(queries, block, depth, metric=faiss.METRIC_INNER_PRODUCT)
    exhausted = depth == len(block)
    floor = np.full(len(queries), -np.inf, np.float32) if exhausted else scores[:, -1]
    return Candidates(rows if numbers is None else numbers[rows], floor)
