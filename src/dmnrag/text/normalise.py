"""One spelling for what means the same: compatibility forms, case, spaces, invisible characters.

Index, query, dictionaries and ROUGE all see text through `normalise`.
Source: Unicode Standard Annex 15 (NFKC); Unicode property Default_Ignorable_Code_Point.
"""

import re
from functools import cache
from typing import Any
from unicodedata import normalize

from dmnrag._optional import require

_IGNORED = re.compile(
    "["
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"  # control characters that are not white space
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners, fillers, selectors
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # zero width, text direction, byte order mark
    "\u3164\uffa0\ufe00-\ufe0f\ufff0-\ufffb"  # hangul fillers, variation selectors, annotation marks
    "\ud800-\udfff"  # lone surrogates: no text, and no library outside Python takes them
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "]"
)

_COMMON_WIDE = tuple(zip("，！？：；（）…\xa0", (*",!?:;()", "...", " "), strict=True))
"""NFKC of what nearly every Chinese text holds. Replacing it first leaves most texts with nothing for
NFKC to change, which its quick check sees; the full pass costs 50 times as much."""


def normalise(text: str) -> str:
    """NFKC, lower case, no control or zero-width characters, white space collapsed to single spaces.

    Applying it again changes nothing. Lone surrogates are removed, so the result is always valid UTF-8.
    """
    if _IGNORED.search(text):
        text = _IGNORED.sub("", text)
    for wide, narrow in _COMMON_WIDE:
        text = text.replace(wide, narrow)
    # The second NFKC composes what only the lower-case letter composes with (J + caron).
    text = normalize("NFKC", normalize("NFKC", text).lower())
    return " ".join(text.split())


def to_simplified(text: str) -> str:
    """Traditional Chinese characters as simplified ones (OpenCC, table t2s).

    Raises:
        MissingDependencyError: the extra `zh` is not installed.
    """
    if not _NOT_FOR_OPENCC.search(text):
        return str(_converter().convert(text))
    return "".join(
        part if _NOT_FOR_OPENCC.match(part) else str(_converter().convert(part)) for part in _NOT_FOR_OPENCC.split(text)
    )


_NOT_FOR_OPENCC = re.compile("([\x00\ud800-\udfff]+)")
"""A C string ends at NUL, and lone surrogates have no UTF-8."""


@cache
def _converter() -> Any:
    return require("opencc", "zh").OpenCC("t2s")
