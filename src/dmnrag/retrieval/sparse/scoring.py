"""Scores one segment's documents for one query, and leaves out what cannot be among the best k.

Pure numpy over postings; knows nothing of files, ids or domains. Terms are added up from the one that can
add most to the one that can add least. Once the k-th best document has more than all terms to come can
add, no new document can reach the best k: the remaining terms, the frequent ones with the long lists,
are looked up for the few documents still in the race (MaxScore; Turtle and Flood 1995). This saves nine
tenths of the additions and changes no score: every document's summands are added in the same order.
"""

from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmnrag.retrieval.sparse import formulas
from dmnrag.retrieval.sparse.formulas import Floats, Integers

Mask = npt.NDArray[np.bool_]

_CHECK_COST = 16
"""Looking for the k-th best reads a score in a sixteenth of the time that adding a posting takes: it pays
before a term with more postings than a sixteenth of the documents."""

_BLOCKS_PER_HIT = 8
_BLOCK = 64
"""Below this many scores a block, sorting out the k-th highest itself is as fast."""

_FEW = 256
"""So many documents are looked up in all remaining terms sooner than sorted out between one term and the next."""

_ROUNDING = 1 - 1e-9
"""Sums of a few hundred float64 are off by less; a document at the border stays in the race."""


class ScoredTerm(NamedTuple):
    """A term of a query with its postings in one segment."""

    weight: float
    """Its count in the query times its IDF."""
    docs: npt.NDArray[np.int32]
    """(n_postings,) ascending."""
    counts: Integers
    """(n_postings,)"""


def best_documents(
    terms: Sequence[ScoredTerm], length_factors: Floats, k1: float, k: int, allowed: Mask | None
) -> tuple[npt.NDArray[np.int64], Floats]:
    """The k best documents by eq. 2, and maybe some more, in no order.

    Args:
        terms: sorted by falling weight, so that the order of addition is the same in every index.
        length_factors: (n_documents,) see `formulas.length_factor`.
        k1: of eq. 2.
        k: how many best documents must be among those returned, with all that tie with the last.
        allowed: (n_documents,) False for documents that must not be found; None allows all.

    Returns:
        (n_found,) documents and (n_found,) their scores, all above 0.
    """
    scores = np.zeros(len(length_factors))
    bounds = list(accumulate((term.weight * (k1 + 1) for term in reversed(terms)), initial=0.0))[::-1]
    n_added, floor = 0, 0.0
    while n_added < len(terms):
        together = _short_terms(terms, n_added, len(scores) // _CHECK_COST)
        if not together and bounds[n_added] < bounds[0] - bounds[n_added]:
            floor = _kth_at_least(scores, k)
            if bounds[n_added] < floor * _ROUNDING:
                break
        upto = n_added + max(together, 1)
        _add(scores, terms[n_added:upto], length_factors, k1, allowed)
        n_added = upto
    else:
        floor = _kth_at_least(scores, k)
    needed = (floor - bounds[n_added]) * _ROUNDING
    found = np.flatnonzero(scores >= needed if needed > 0 else scores > 0)
    of_found = scores[found]
    while n_added < len(terms) and len(found) > _FEW:
        _add_looked_up(of_found, found, terms[n_added : n_added + 1], length_factors, k1)
        n_added += 1
        kept = of_found >= (_kth_at_least(of_found, k) - bounds[n_added]) * _ROUNDING
        found, of_found = found[kept], of_found[kept]
    if n_added < len(terms):
        _add_looked_up(of_found, found, terms[n_added:], length_factors, k1)
    return found, of_found


def _short_terms(terms: Sequence[ScoredTerm], first: int, longest: int) -> int:
    """How many terms from `first` on have at most `longest` postings each."""
    return sum(1 for _ in takewhile(lambda term: len(term.docs) <= longest, terms[first:]))


def _add(scores: Floats, terms: Sequence[ScoredTerm], length_factors: Floats, k1: float, allowed: Mask | None) -> None:
    """Add the summands of some terms to the scores of all their allowed documents."""
    # Positions of the machine's own width index faster than 32 bits.
    docs = np.concatenate([term.docs for term in terms]).astype(np.intp)  # (n_postings,)
    counts = np.concatenate([term.counts for term in terms])
    weights = np.repeat([term.weight for term in terms], [len(term.docs) for term in terms])
    if allowed is not None:
        kept = allowed[docs]
        docs, counts, weights = docs[kept], counts[kept], weights[kept]
    # Adds one after the other, so a document of several terms gets them in the order of the terms.
    np.add.at(scores, docs, formulas.term_score(weights, counts, length_factors[docs], k1))


def _kth_at_least(scores: Floats, k: int) -> float:
    """A number that k scores reach: the k-th highest of the maxima of blocks, or exactly the k-th highest."""
    n_blocks = _BLOCKS_PER_HIT * k
    width = len(scores) // n_blocks
    if width >= _BLOCK:
        scores = scores[: n_blocks * width].reshape(n_blocks, width).max(axis=1)
    if len(scores) < k:
        return 0.0
    return float(np.partition(scores, len(scores) - k)[len(scores) - k])


def _add_looked_up(
    scores: Floats, docs: npt.NDArray[np.int64], terms: Sequence[ScoredTerm], length_factors: Floats, k1: float
) -> None:
    """Add some terms' summands to the scores of a few documents, found by halving in the terms' postings."""
    wanted = docs.astype(np.int32)
    factors = length_factors[docs]
    for term in terms:
        position = term.docs.searchsorted(wanted)
        has_term = term.docs.take(position, mode="clip") == wanted  # beyond the last posting stands another document
        counts = term.counts.take(position, mode="clip") * has_term  # a count of 0 adds exactly 0
        scores += formulas.term_score(term.weight, counts, factors, k1)
