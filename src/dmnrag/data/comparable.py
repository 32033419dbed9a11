"""When two texts count as the same: letters and digits in NFKC, without case, spaces and punctuation."""

import re
import unicodedata

_NEITHER_LETTER_NOR_DIGIT = re.compile(r"[\W_]+")


def comparable(text: str) -> str:
    """The form in which texts are compared; the bare text where it holds no letter or digit."""
    return _NEITHER_LETTER_NOR_DIGIT.sub("", unicodedata.normalize("NFKC", text).casefold()) or text.strip()
