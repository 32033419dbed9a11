"""Keeps the system prompt and the fence marks from coming out, also while an answer is still being written.

A run of the answer that stands in the system text word for word, long enough to be no coincidence, cuts the answer
before any of the run is shown. Compared are letters and digits alone, in their compatibility form (NFKD without marks)
and without case: white space, punctuation, full-width and zero-width characters between or instead of letters change
nothing. A fence mark (`【检索资料结束】`) is compared with its brackets, without white space.

How long: a run weighs one per ideograph and a third per other letter or digit, and `LIMIT` is 16. The sentence
"现有资料不足以回答这个问题" of the template `cited`, which answers are told to say, weighs 13.

What it does not see: a prompt that is translated, told in other words, encoded (Base64, pinyin, reversed, traditional
characters), interleaved with other letters or digits, or given away in parts shorter than the limit with other text
between. Nothing that must stay secret belongs into a prompt.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from unicodedata import normalize

from dmnrag.text.characters import CJK_CHARACTER

LIMIT = 16
"""Ideographs in a run that cuts the answer; three letters count as one."""
_PER_IDEOGRAPH = 3

_CJK = re.compile(CJK_CHARACTER)
_OPEN_CITATION = re.compile(r"\[\d*$")


class PromptGuard:
    """Takes an answer in pieces and gives out what is not the beginning of a secret.

    The joined output depends on the joined input alone. Held back is the longest end that stands in the secret, less
    than `LIMIT` long. No citation is cut in two. Not for several threads at once.
    """

    def __init__(self, secret: str, marks: Sequence[str] = ()) -> None:
        """`secret`: a text no long run of which may come out. `marks`: strings none of which may come out whole."""
        letters = _letters(secret)
        self._runs = [_Run(letters, _letters, _PER_IDEOGRAPH * LIMIT)]
        self._runs += [_Run(_printed(mark), _printed, _weight(_printed(mark))) for mark in marks]
        self._held = ""
        self._given = 0
        """Characters given out."""
        self.withheld = False
        """The answer was cut; nothing comes after."""

    def feed(self, text: str) -> str:
        """What may be shown now."""
        if self.withheld:
            return ""
        shown = ""
        for character in text:
            at = self._given + len(self._held)
            self._held += character
            complete = False
            for run in self._runs:
                complete |= run.add(character, at)
            certain = min((run.start for run in self._runs if run.start is not None), default=at + 1)
            shown += self._give(certain - self._given)
            if complete:
                self._held, self.withheld = "", True
                break
        return shown

    def close(self) -> str:
        """What was held back, where it did not become a secret."""
        text, self._held = self._held, ""
        return text

    def _give(self, length: int) -> str:
        text = self._held[:length]
        if opened := _OPEN_CITATION.search(text):
            text = text[: opened.start()]
        self._held = self._held[len(text) :]
        self._given += len(text)
        return text


class _Run:
    """The longest end of a text that stands in a secret."""

    def __init__(self, secret: str, form: Callable[[str], str], limit: int) -> None:
        self._secret = secret
        self._form = form
        self._limit = limit
        self._found = ""
        self._at: deque[int] = deque()
        """Where in the text each character of the run stands."""

    @property
    def start(self) -> int | None:
        """Where the run begins in the text; None where there is none."""
        return self._at[0] if self._at else None

    def add(self, character: str, at: int) -> bool:
        """Take the next character; True where the run has become long enough."""
        for part in self._form(character):
            self._found += part
            self._at.append(at)
            while self._found not in self._secret:  # the empty run is in every secret
                self._found = self._found[1:]
                self._at.popleft()
        return bool(self._found) and _weight(self._found) >= self._limit


def _letters(text: str) -> str:
    """Letters and digits alone. Character by character, so that pieces give the same as the whole."""
    return "".join(c for c in normalize("NFKD", text).casefold() if c.isalnum())


def _printed(text: str) -> str:
    """All that prints."""
    return "".join(c for c in normalize("NFKD", text).casefold() if c.isprintable() and not c.isspace())


def _weight(text: str) -> int:
    return sum(_PER_IDEOGRAPH if _CJK.match(c) else 1 for c in text)
