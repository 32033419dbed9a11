"""Turns texts into term numbers for counting: through any segmenter, or for plain n-grams on arrays.

`TextSegmenter` without word lists gives pairs (and single characters) of neighbouring characters, which
array arithmetic finds without making a string of each: five times as fast. The terms are the same,
in another order within a text, which counting does not see; a test holds both to that.
Knows the character classes of `dmnrag.text`; knows nothing of postings.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dmnrag.protocols import Segmenter
from dmnrag.text import TextSegmenter, normalise, to_simplified
from dmnrag.text.characters import CJK_CHARACTER, LATIN_CHARACTER

Ids = npt.NDArray[np.int32]

_BMP = 0x10000
_N_CODE_POINTS = 17 * _BMP
_CODE_BITS = 21
"""Bits of a code point: two of them make one number of 64 bits."""

_OTHER, _CJK, _LATIN = range(3)


@dataclass(frozen=True, slots=True)
class Encoded:
    """The terms of some texts."""

    terms: list[str]
    """Strings, repeated or not."""
    numbers: Ids
    """(n_tokens,) which of `terms` each token is."""
    owners: Ids
    """(n_tokens,) which text each token belongs to."""


class TermEncoder(Protocol):
    """Segments texts for counting."""

    @property
    def batch(self) -> int:
        """How many texts to hand over at once, for speed."""
        ...

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Terms of the texts; within a text in any order."""
        ...


def encoder_for(segmenter: Segmenter) -> TermEncoder:
    """The fastest encoder that gives the segmenter's terms."""
    if type(segmenter) is TextSegmenter:
        settings = segmenter.settings
        has_lists = settings.dictionary or settings.stop_words or settings.synonyms
        if settings.name in ("bigram", "unigram+bigram") and not has_lists:
            return NgramEncoder(unigrams=settings.name == "unigram+bigram", simplify=settings.simplify)
    return SegmenterEncoder(segmenter)


class SegmenterEncoder:
    """Through the segmenter's own terms."""

    batch = 256
    """Their strings still lie in the processor's cache when they are counted: a quarter faster than 4,096."""

    def __init__(self, segmenter: Segmenter) -> None:
        self._segmenter = segmenter

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Every token as a term."""
        terms_of = self._segmenter.segment_all(texts)
        owners = np.repeat(np.arange(len(texts), dtype=np.int32), [len(terms) for terms in terms_of])
        return Encoded(list(chain.from_iterable(terms_of)), np.arange(len(owners), dtype=np.int32), owners)


class NgramEncoder:
    """Pairs of CJK characters, single ones (all, or those that stand alone), and Latin runs."""

    batch = 4096
    """Distinct terms are looked up once a batch, so larger ones are faster; 4,096 texts take 40 MB."""

    def __init__(self, *, unigrams: bool, simplify: bool) -> None:
        self._unigrams = unigrams
        self._simplify = simplify

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Every distinct term once."""
        cleaned = [normalise(text) for text in texts]
        if self._simplify:
            cleaned = [to_simplified(text) for text in cleaned]
        # A separator after each text keeps its last character apart from the next one's first.
        joined = "\n".join([*cleaned, ""])
        codes = np.frombuffer(joined.encode("utf-32-le"), np.uint32).astype(np.int64)
        owner_of = np.repeat(np.arange(len(texts), dtype=np.int32), [len(text) + 1 for text in cleaned])
        kinds = _kinds(beyond_bmp=bool((codes >= _BMP).any()))[codes]

        pairs = np.flatnonzero((kinds[:-1] == _CJK) & (kinds[1:] == _CJK))
        singles = np.flatnonzero(kinds == _CJK if self._unigrams else _alone(kinds == _CJK))
        starts, run_keys, runs = _latin_runs(joined, kinds)
        keys = np.concatenate([(codes[pairs] << _CODE_BITS) | codes[pairs + 1], codes[singles], run_keys])
        distinct = pa.array(keys).dictionary_encode()
        return Encoded(
            terms=_spell(distinct.dictionary.to_numpy(), runs),
            numbers=distinct.indices.to_numpy(),
            owners=owner_of[np.concatenate([pairs, singles, starts])],
        )


def _alone(is_kind: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    alone = is_kind.copy()
    alone[1:] &= ~is_kind[:-1]
    alone[:-1] &= ~is_kind[1:]
    return alone


def _latin_runs(
    text: str, kinds: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], list[str]]:
    """Start and key of each run, and the distinct runs; run number r has the key -1 - r."""
    edges = np.diff((kinds == _LATIN).astype(np.int8), prepend=np.int8(0))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    number_of: dict[str, int] = {}
    numbers = [
        number_of.setdefault(text[start:end], len(number_of))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return starts, -1 - np.array(numbers, dtype=np.int64), list(number_of)


def _spell(keys: npt.NDArray[np.int64], runs: Sequence[str]) -> list[str]:
    """The term of each key."""
    both = np.stack([keys >> _CODE_BITS, keys & ((1 << _CODE_BITS) - 1)], axis=1)
    both[keys < 0] = 0
    characters = both.astype("<u4").tobytes().decode("utf-32-le")
    terms = [characters[i : i + 2] for i in range(0, len(characters), 2)]
    for single in np.flatnonzero((both[:, 0] == 0) & (keys >= 0)).tolist():
        terms[single] = terms[single][1]
    for run in np.flatnonzero(keys < 0).tolist():
        terms[run] = runs[-1 - int(keys[run])]
    return terms


@cache
def _kinds(*, beyond_bmp: bool) -> npt.NDArray[np.uint8]:
    """Kind of every code point, from the classes that the segmenters use.

    Takes some 10 ms once; with the 16 further planes, which few texts need, 200 ms.
    """
    everything = "".join(map(chr, range(_N_CODE_POINTS if beyond_bmp else _BMP)))
    kinds = np.full(len(everything), _OTHER, np.uint8)
    for kind, character in ((_CJK, CJK_CHARACTER), (_LATIN, LATIN_CHARACTER)):
        for run in re.finditer(f"{character}+", everything):
            kinds[run.start() : run.end()] = kind
    return kinds
