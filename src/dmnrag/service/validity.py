"""Up to which day a document holds, and whether that day is over.

The date stands in a metadata column, as people write dates: 2025-12-31, 2025/12/31, 2025.12.31, 2025年12月31日,
20251231, also with a time behind it; 2025-12 or 2025年12月 (the month's last day) and 2025 or 2025年 (the year's). What
is no such date (长期有效, 31/12/25) is shown as it stands and never counts as over: nobody is told that a document is
outdated because its date could not be read.
"""

import re
from calendar import monthrange
from datetime import date
from unicodedata import normalize

from dmnrag.types import Document

_FORMS = (
    re.compile(r"(\d{4})\s?([-/.])\s?(\d{1,2})(?:\s?\2\s?(\d{1,2}))?"),
    re.compile(r"(\d{4})\s?(年)(?:\s?(\d{1,2})\s?月(?:底|末|份)?(?:\s?(\d{1,2})\s?[日号])?|底|末)?"),
    re.compile(r"(\d{4})()(?:(\d\d)(\d\d))?"),
)
"""Year, separator, month, day."""
_TIME = re.compile(r"[T\s]+\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?$", re.IGNORECASE)


def validity(document: Document, column: str | None, today: date) -> tuple[str | None, bool]:
    """The validity date as it is shown (ISO where it could be read), and whether it is before `today`.

    `(None, False)` without a column, or where the document has nothing in it; the day itself still counts as valid.
    """
    text = document.metadata.get(column, "").strip() if column else ""
    if not text:
        return None, False
    last_day = last_valid_day(text)
    return (text, False) if last_day is None else (last_day.isoformat(), last_day < today)


def last_valid_day(text: str) -> date | None:
    """The day a text means, of a month or year its last; None where it is none of the forms or no such day exists."""
    plain = _TIME.sub("", normalize("NFKC", text).strip())
    for form in _FORMS:
        if match := form.fullmatch(plain):
            year, month, day = (int(part) if part else None for part in match.group(1, 3, 4))
            assert year is not None  # every form has one
            return _day(year, month or 12, day)
    return None


def _day(year: int, month: int, day: int | None) -> date | None:
    try:
        return date(year, month, monthrange(year, month)[1] if day is None else day)
    except ValueError:  # no 30 February, no month 13, no year 0
        return None
