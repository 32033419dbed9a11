"""Which characters make terms: classes for regular expressions.

Two kinds of runs matter. Scripts written without spaces (Han, kana, hangul, bopomofo) are `CJK` here:
their runs are cut into n-grams or words. Letters and digits of all other scripts are `LATIN` here
(Cyrillic and Greek too): a run of them is one term. Everything else separates terms.
"""

import re

CJK = (
    "\u1100-\u11ff"  # hangul jamo that do not compose
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c"  # iteration marks and numerals used as ideographs
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # kana; not the dot U+30FB
    "\u3105-\u312f\u31a0-\u31bf"  # bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff"  # ideographs: extension A, base
    "\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"  # hangul
    "\uf900-\ufaff"  # compatibility ideographs; NFKC leaves a dozen of them
    "\U0001b000-\U0001b16f"  # kana supplement
    "\U00020000-\U0003fffd"  # extension B and later: both planes are reserved for ideographs
)
"""Ranges to stand inside square brackets of a regular expression."""

CJK_CHARACTER = f"[{CJK}]"
LATIN_CHARACTER = rf"[^\W_{CJK}]"
"""A letter or digit of a script that is not CJK. The underscore separates terms."""

_LATIN = re.compile(LATIN_CHARACTER)
_CJK = re.compile(CJK_CHARACTER)
_TERM = re.compile(rf"[^\W_]|{CJK_CHARACTER}")


def is_latin(character: str) -> bool:
    """Whether one character belongs to a run that is one term."""
    return _LATIN.match(character) is not None


def has_cjk(text: str) -> bool:
    """Whether there is a CJK character in it: fixed texts to such a question are Chinese, to others English."""
    return _CJK.search(text) is not None


def makes_term(text: str) -> bool:
    """Whether there is a letter, digit or ideograph in it; otherwise it is punctuation or space."""
    return _TERM.search(text) is not None
