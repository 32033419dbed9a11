"""Normalised text to terms, one cutter for each way. They know nothing of settings, stop words or synonyms.

A cutter is called with one normalised text and gives terms that are neither empty nor pure punctuation.
Dictionary words:
- n-gram cutters add each occurrence of a word as one more term, after the n-grams;
- the jieba cutter keeps the leftmost longest words whole, cuts the rest, and emits the shorter words inside
  them too, as jieba's search mode does. rjieba's own `add_word` only makes a cut likely; this one is certain.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Protocol

from dmnrag.text.characters import CJK_CHARACTER, LATIN_CHARACTER, makes_term
from dmnrag.text.words import WordMatcher

_PAIR = f"{CJK_CHARACTER}{{2}}"
_LATIN_RUN = f"{LATIN_CHARACTER}+"
_LONE = f"(?<!{CJK_CHARACTER}){CJK_CHARACTER}(?!{CJK_CHARACTER})"

# Everything stands in a look-ahead, so that the next match starts one character on and pairs overlap.
_BIGRAMS = re.compile(f"(?=({_PAIR}|(?<!{LATIN_CHARACTER}){_LATIN_RUN}|{_LONE}))")
_PAIRS = re.compile(f"(?=({_PAIR}))")
_UNIGRAMS = re.compile(f"{CJK_CHARACTER}|{_LATIN_RUN}")


class Cutter(Protocol):
    """Normalised text to terms."""

    def __call__(self, text: str) -> list[str]:
        """Terms in order, repeated as often as they occur."""
        ...


def cut_bigrams(text: str) -> list[str]:
    """Pairs of neighbouring CJK characters; one that stands alone, and each Latin run, is one term."""
    return _BIGRAMS.findall(text)


def cut_unigrams_and_bigrams(text: str) -> list[str]:
    """First each CJK character and Latin run, then the pairs."""
    return _UNIGRAMS.findall(text) + _PAIRS.findall(text)


class DictionaryCutter:
    """An n-gram cutter and, after its terms, the dictionary words that it does not give by itself."""

    def __init__(self, cut: Cutter, words: frozenset[str]) -> None:
        self._cut = cut
        # Framed by ideographs, a word shows whether the n-grams of running text contain it.
        self._matcher = WordMatcher(word for word in words if word not in cut(f"一{word}一"))

    def __call__(self, text: str) -> list[str]:
        """Terms of the n-gram cutter, then every occurrence of a dictionary word."""
        return self._cut(text) + self._matcher.all_in(text)


class JiebaCutter:
    """jieba's words in search mode: long words and the shorter ones inside them."""

    def __init__(self, words: frozenset[str] = frozenset()) -> None:
        self._matcher = WordMatcher(words) if words else None
        self._parts: dict[str, list[str]] = {}

    def __call__(self, text: str) -> list[str]:
        """Terms; dictionary words are cut at their borders."""
        if self._matcher is None:
            return _jieba_terms(text)
        terms: list[str] = []
        last = 0
        for start, end in self._matcher.spans(text):
            terms += _jieba_terms(text[last:start])
            terms += self._word_terms(self._matcher, text[start:end])
            last = end
        return terms + _jieba_terms(text[last:])

    def _word_terms(self, matcher: WordMatcher, word: str) -> list[str]:
        """The shorter words inside a dictionary word, then the word."""
        if word not in self._parts:
            parts = dict.fromkeys(_jieba_terms(word) + matcher.all_in(word))
            parts.pop(word, None)
            self._parts[word] = [*parts, word]
        return self._parts[word]


class MixedCutter:
    """jieba's words, then the pairs of CJK characters. A word of two characters counts as both."""

    def __init__(self, words: frozenset[str] = frozenset()) -> None:
        self._jieba = JiebaCutter(words)

    def __call__(self, text: str) -> list[str]:
        """Words in order, then pairs in order."""
        return self._jieba(text) + _PAIRS.findall(text)


def _jieba_terms(text: str) -> list[str]:
    return [term for term in _jieba()(text) if term.isalnum() or makes_term(term)]


@cache
def _jieba() -> Callable[[str], list[str]]:
    import rjieba  # loads its dictionary, a fifth of a second

    cut: Callable[[str], list[str]] = rjieba.cut_for_search
    return cut
