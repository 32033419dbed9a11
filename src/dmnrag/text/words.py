"""Find the words of a list in normalised text: the ground of user dictionaries and synonyms.

A word that begins or ends with a Latin letter or digit does not match inside a longer Latin run:
`ct` is not found in `doctor`. Cost: one regular-expression pass, then look-ups where a word may start.
"""

import re
from collections.abc import Iterable, Iterator

from dmnrag.text.characters import is_latin


class WordMatcher:
    """Occurrences of given words."""

    def __init__(self, words: Iterable[str]) -> None:
        """`words` are normalised and not empty."""
        self.words = frozenset(words)
        lengths: dict[str, set[int]] = {}
        for word in self.words:
            lengths.setdefault(word[0], set()).add(len(word))
        self._lengths = {first: sorted(n, reverse=True) for first, n in lengths.items()}
        first_characters = "".join(re.escape(first) for first in sorted(lengths))
        self._start = re.compile(f"[{first_characters}]") if lengths else re.compile(r"(?!)")

    def all_in(self, text: str) -> list[str]:
        """Every occurrence, overlapping ones too, by start and then longest first."""
        return [
            text[start:end]
            for start in (match.start() for match in self._start.finditer(text))
            for end in self._ends(text, start)
        ]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of the occurrences that do not overlap: leftmost first, of those the longest."""
        position = 0
        while match := self._start.search(text, position):
            start = match.start()
            position = next(self._ends(text, start), 0)
            if position:
                yield start, position
            else:
                position = start + 1

    def _ends(self, text: str, start: int) -> Iterator[int]:
        if cuts_latin_run(text, start):
            return
        for length in self._lengths[text[start]]:
            end = start + length
            if text[start:end] in self.words and not cuts_latin_run(text, end):
                yield end


def cuts_latin_run(text: str, position: int) -> bool:
    """Whether the characters before and after `position` belong to the same Latin run."""
    return 0 < position < len(text) and is_latin(text[position - 1]) and is_latin(text[position])


class Synonyms:
    """Replaces every variant by its canonical form."""

    def __init__(self, canonical: dict[str, str]) -> None:
        """`canonical` maps each form, the canonical ones (to themselves) included."""
        self._canonical = canonical
        self._matcher = WordMatcher(canonical)

    def replace(self, text: str) -> str:
        """The text in canonical forms, longest form first.

        A canonical form in the text is left alone even where a shorter variant stands inside it.
        """
        pieces: list[str] = []
        last = 0
        for start, end in self._matcher.spans(text):
            _append(pieces, text[last:start])
            _append(pieces, self._canonical[text[start:end]])
            last = end
        _append(pieces, text[last:])
        return "".join(pieces)


def _append(pieces: list[str], piece: str) -> None:
    """Add a piece, and a space before it where two Latin runs would become one."""
    if pieces and piece and cuts_latin_run(pieces[-1][-1] + piece[0], 1):
        pieces.append(" ")
    if piece:
        pieces.append(piece)
