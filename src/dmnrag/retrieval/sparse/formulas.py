"""BM25 as pure functions, each with its source. Knows nothing of files, documents or queries.

SCORE(Dmn+q, D) = sum over the terms t of the query of
IDF(t) * f(t,D) * (k1+1) / (f(t,D) + k1*(1 - b + b*|D|/avgdl))      (Zhang et al. 2025, eq. 2)
"""

from math import log
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]

_EXACT_BELOW = 24
"""Lucene's SmallFloat: 255 byte values less the 231 codes that a 4-bit float of an int needs."""
_KEPT_BITS = 4


def idf(n_documents: int, document_frequency: int) -> float:
    """ln(1 + (N-n+0.5)/(n+0.5)), above 0 for every n <= N (Lucene, BM25Similarity.idf)."""
    return log(1 + (n_documents - document_frequency + 0.5) / (document_frequency + 0.5))


def length_factor(lengths: Integers, average_length: float, k1: float, b: float) -> Floats:
    """k1*(1 - b + b*|D|/avgdl), the part of eq. 2's denominator that depends on the document alone.

    `average_length` must be above 0 (it is 0 only where no document has a term).
    """
    factors: Floats = k1 * (1 - b + b * (lengths.astype(np.float64) / average_length))
    return factors


def term_score(weighted_idf: float | Floats, frequencies: Integers, length_factors: Floats, k1: float) -> Floats:
    """One term's summand of eq. 2 in each document; `weighted_idf` is IDF(t) times t's count in the query.

    It is below `weighted_idf * (k1 + 1)` however often the term occurs.
    """
    # In place and in this order: this line runs over every posting of a query.
    score: Floats = frequencies / (frequencies + length_factors)
    score *= weighted_idf * (k1 + 1)
    return score


def lucene_length(lengths: Integers) -> npt.NDArray[np.int64]:
    """|D| as Lucene keeps it in one byte: exact to 39, then 24 + the 4 highest bits of the rest.

    Source: Lucene, SmallFloat.intToByte4 and byte4ToInt. Always rounds down.
    """
    exact = np.asarray(lengths, dtype=np.int64)
    rest = np.maximum(exact - _EXACT_BELOW, 0)
    bit_length = np.frexp(rest.astype(np.float64))[1].astype(np.int64)
    dropped = np.maximum(bit_length - _KEPT_BITS, 0)
    return np.where(exact < _EXACT_BELOW, exact, _EXACT_BELOW + ((rest >> dropped) << dropped))
