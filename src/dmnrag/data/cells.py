"""Raw cells to clean text.

Nothing is changed that a reader could see: control characters (NUL included) are taken out, lone surrogates
become U+FFFD, line breaks become a newline, space at the ends goes. Both repairs are counted. Personal data goes
only where that is asked for (`Masker`).
"""

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from dmnrag.errors import DataError
from dmnrag.text.masking import MASKED_KINDS, mask_personal

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
"""Control characters other than tab and line breaks, and the two that are no characters."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SUSPICIOUS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_NO_VALUE = frozenset({"nan", "null", "none", "n/a", "#n/a", "<na>"})
"""What programs write for an empty cell; nobody asks or answers just this."""


class CellReader:
    """Turns cells into text and counts what it repaired."""

    def __init__(self) -> None:
        self.control_characters = 0
        """Characters taken out so far."""
        self.lone_surrogates = 0
        """Characters replaced by U+FFFD so far."""

    def text(self, cell: Any) -> str:
        """One text; "" where the cell is empty.

        Raises:
            DataError: the cell holds a list or an object.
        """
        if cell is None:
            return ""
        if isinstance(cell, str):
            text = self._clean(cell)
            return "" if text.casefold() in _NO_VALUE else text
        if isinstance(cell, list | tuple) and len(cell) == 1 and not isinstance(cell[0], list | tuple | dict):
            return self.text(cell[0])
        if isinstance(cell, list | tuple | dict):
            raise DataError(f"one text is needed, found {_kind(cell)}")
        return _scalar(cell)

    def texts(self, cell: Any) -> list[str]:
        """The non-empty texts of a cell that may hold a list.

        Raises:
            DataError: the cell holds an object, or a list with a list or an object in it.
        """
        if not isinstance(cell, list | tuple):
            text = self.text(cell)
            return [text] if text else []
        nested = next((item for item in cell if isinstance(item, list | tuple | dict)), None)
        if nested is not None:
            raise DataError(f"a list of texts is needed, found {_kind(nested)} inside the list")
        return [text for text in map(self.text, cell) if text]

    def any_text(self, cell: Any) -> str:
        """Text of whatever the cell holds; lists and objects as JSON."""
        if isinstance(cell, list | tuple | dict):
            return self._clean(json.dumps(cell, ensure_ascii=False, default=str))
        return self.text(cell)

    def _clean(self, text: str) -> str:
        if _SUSPICIOUS.search(text) is None:
            return text.strip()
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text, surrogates = _SURROGATE.subn("\ufffd", text)
        text, controls = _CONTROL.subn("", text)
        self.lone_surrogates += surrogates
        self.control_characters += controls
        return text.strip()


class Masker:
    """Puts markers in place of personal data where that is wanted, and counts them."""

    def __init__(self, wanted: bool) -> None:
        self.counts: dict[str, int] | None = dict.fromkeys(MASKED_KINDS, 0) if wanted else None
        """Markers so far, by kind; None where masking is not wanted."""

    def __call__(self, text: str) -> str:
        """The text, masked where wanted."""
        if self.counts is None:
            return text
        text, found = mask_personal(text)
        for kind, n in found.items():
            self.counts[kind] += n
        return text


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts without repetition, in order."""
    return tuple(dict.fromkeys(texts))


def _scalar(cell: Any) -> str:
    if isinstance(cell, float):
        if math.isnan(cell):
            return ""
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else repr(cell)
    return str(cell).strip()


def _kind(cell: Any) -> str:
    return "an object" if isinstance(cell, dict) else f"a list of {len(cell)}"
