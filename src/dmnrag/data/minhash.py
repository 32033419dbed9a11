"""Candidates for near-identical texts without comparing all pairs: MinHash with banding (Broder 1997).

Texts are sets of character bigrams. A band of r hash minima agrees for two sets with probability J^r (J: the
Jaccard index); two texts are candidates when any band agrees. There are as many bands as make a pair at the
threshold a candidate with probability 0.99. Candidates are then compared exactly, so nothing wrong gets in.

Cost: linear in characters times hashes (about 220), plus the candidates, which are bounded: in a bucket each
text meets only the next `_WINDOW` ones. Everything is fixed by constants, so results repeat.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dmnrag.errors import ConfigError

Codes = npt.NDArray[np.uint32]
Pairs = npt.NDArray[np.int64]

_MISSED = 0.01
"""Share of pairs at exactly the threshold that banding may miss; nearer pairs are missed far less."""
_MOST_ROWS = 6
_BAND_CHANCE = 0.1
"""Rows per band are chosen so that one band agrees with about this chance at the threshold."""
_WINDOW = 30
"""Texts of a bucket that each one meets. Larger buckets are template texts; other bands part them."""
_SEED = 20250301
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_CHUNK_TEXTS = 1 << 14
_CHUNK_CODES = 1 << 17
_CHUNK_PAIRS = 1 << 18


class BigramSets:
    """Character bigrams of texts as sets, in one flat array.

    Two 16-bit halves make a code, the first without its top bit: the few characters that fold together
    (Hangul with Chinese, for one) do not meet in one corpus, so the sets are exact in practice.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.codes, self.starts = _bigrams(texts)
        """`codes` (n_codes,): sorted within a text, none twice; `starts` (n_texts + 1,): where it begins."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def jaccard(self, pairs: Pairs) -> npt.NDArray[np.float64]:
        """Exact Jaccard index of each pair (n_pairs, 2); 0 where a text has no bigram."""
        from scipy.sparse import csr_matrix

        columns = self.codes.astype(np.int32)
        matrix: Any = csr_matrix(
            (np.ones(len(columns), np.int8), columns, self.starts.astype(np.int64)),
            shape=(len(self), 2**31 - 1),
        )
        sizes = np.diff(self.starts)
        result = np.zeros(len(pairs))
        for begin in range(0, len(pairs), _CHUNK_PAIRS):
            left, right = pairs[begin : begin + _CHUNK_PAIRS].T
            common = np.diff(matrix[left].multiply(matrix[right]).indptr)
            union = sizes[left] + sizes[right] - common
            result[begin : begin + len(left)] = common / np.maximum(union, 1)
        return result


def near_pairs(texts: Sequence[str], threshold: float) -> Pairs:
    """Pairs (n_pairs, 2) of positions whose bigram sets have a Jaccard index of at least `threshold`.

    Texts of fewer than two characters have no bigram and are in no pair. Give each distinct text once: equal
    texts fill buckets.

    Raises:
        ConfigError: a threshold not above 0.3 and at most 1; below, banding finds every pair a candidate.
    """
    if not 0.3 < threshold <= 1:
        raise ConfigError(f"threshold {threshold!r} for near-identical texts: allowed is above 0.3, at most 1")
    sets = BigramSets(texts)
    pairs = _candidates(sets, threshold)
    return pairs[sets.jaccard(pairs) >= threshold] if len(pairs) else pairs


def _bigrams(texts: Sequence[str]) -> tuple[Codes, npt.NDArray[np.int64]]:
    """Sorted distinct codes of all texts (n_codes,), and where each text's begin (n_texts + 1,)."""
    parts, counts = [np.empty(0, np.uint32)], [np.zeros(1, np.int64)]
    for begin in range(0, len(texts), _CHUNK_TEXTS):
        codes, owned = _bigrams_of_few(texts[begin : begin + _CHUNK_TEXTS])
        parts.append(codes)
        counts.append(owned)
    return np.concatenate(parts), np.cumsum(np.concatenate(counts))


def _bigrams_of_few(texts: Sequence[str]) -> tuple[Codes, npt.NDArray[np.int64]]:
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    joined = "".join(texts).encode("utf-32-le", errors="surrogatepass")
    characters = np.frombuffer(joined, np.uint32)
    owners = np.repeat(np.arange(len(texts), dtype=np.uint64), lengths)
    within = owners[:-1] == owners[1:]
    codes = ((characters[:-1] & np.uint32(0x7FFF)) << np.uint32(16)) | (characters[1:] & np.uint32(0xFFFF))
    keys = (owners[:-1][within] << np.uint64(32)) | codes[within]
    keys.sort()
    keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))] if len(keys) else keys
    owned = np.bincount((keys >> np.uint64(32)).astype(np.int64), minlength=len(texts))
    return (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32), owned


def _plan(threshold: float) -> tuple[int, int]:
    """(bands, rows per band) for a threshold."""
    if threshold == 1:
        return 1, _MOST_ROWS
    rows = min(_MOST_ROWS, max(1, round(math.log(_BAND_CHANCE) / math.log(threshold))))
    return math.ceil(math.log(_MISSED) / math.log1p(-(threshold**rows))), rows


def _candidates(sets: BigramSets, threshold: float) -> Pairs:
    bands, rows = _plan(threshold)
    filled = np.flatnonzero(np.diff(sets.starts))
    mixed = _mix(sets.codes)
    generator = np.random.default_rng(_SEED)
    found: npt.NDArray[np.int64] = np.empty(0, np.int64)
    for _ in range(bands):
        keys = np.zeros(len(filled), np.uint64)
        for factor, offset in generator.integers(0, 2**32, size=(rows, 2), dtype=np.uint32):
            keys = keys * _GOLDEN + _minima(mixed, sets.starts[filled], factor | np.uint32(1), offset)
        # Pairs are kept as one number each and merged after every band, so that memory holds each pair once.
        found = np.union1d(found, _bucket_pairs(keys, filled, len(sets)))
    return np.stack(np.divmod(found, max(1, len(sets))), axis=1)


def _mix(codes: Codes) -> Codes:
    """A fixed permutation of 32-bit numbers that looks random (the last steps of MurmurHash3)."""
    mixed: Codes = codes.copy()
    mixed ^= mixed >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed


def _minima(codes: Codes, starts: npt.NDArray[np.int64], factor: np.uint32, offset: np.uint32) -> Codes:
    """Least hash of each non-empty text, whose codes begin at `starts`, in chunks that fit a cache."""
    ends = np.append(starts[1:], len(codes))
    minima = np.empty(len(starts), np.uint32)
    begin = 0
    while begin < len(starts):
        end = max(begin + 1, int(np.searchsorted(ends, starts[begin] + _CHUNK_CODES, side="right")))
        hashes = codes[starts[begin] : ends[end - 1]] * factor
        hashes += offset
        minima[begin:end] = np.minimum.reduceat(hashes, starts[begin:end] - starts[begin])
        begin = end
    return minima


def _bucket_pairs(keys: npt.NDArray[np.uint64], members: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """Pairs of equal keys as left * n + right, left < right: each text with the next `_WINDOW` there."""
    order = np.argsort(keys, kind="stable")
    keys, members = keys[order], members[order]
    parts = []
    for step in range(1, _WINDOW + 1):
        same = keys[step:] == keys[:-step]
        if not same.any():
            break
        parts.append(members[:-step][same] * n + members[step:][same])
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
