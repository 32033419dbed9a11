"""Personal data in text to markers: phone numbers, identity numbers, e-mail addresses, bank cards.

Formats of mainland China. A pattern proposes and a check disposes (check digit, date, place), because medical
and legal text is full of other numbers: doses, viral loads, amounts, dates, page ranges, case and batch numbers.
What cannot be told from those stays: 7 or 8 digits with neither an area code nor a word like 电话 before them,
an identity number with a wrong check digit. Hotlines (400, 12345) are nobody's and stay too. So masking takes
out most, not all, and it knows nothing of names and addresses.

To add a kind: add a `_Rule` with a pattern and, where the pattern alone meets other numbers, a check.
Sources: GB 11643-1999 (identity numbers, ISO 7064 MOD 11-2), ISO/IEC 7812-1 (Luhn), the PRC's numbering plan.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

_WIDE = "０１２３４５６７８９＠＋－—–‐．（）\u3000\u00a0Ｘｘ"
_TO_ASCII = str.maketrans(_WIDE, "0123456789@+----.()  Xx")
"""One character for one, so that positions in the ASCII form are positions in the text."""

_MAY_HOLD = re.compile(r"[@＠]|\d(?:[-－—–‐ \u3000\u00a0()（）]{0,2}\d){6}")
"""Nothing is masked without an @ or seven digits; most texts end here."""

_END = r"(?!\d|\.(?!0(?!\d))\d\d?(?!\d))"
"""No further digit, and no decimals but the .0 that programs put behind a whole number."""
_NO_UNIT = r"(?!\s*(?:[元圆块%％]|美[元金]|港[元币]|欧元|英镑|日元|人民币|RMB|拷贝|[Cc]op|cps|IU|U/|[mμu]?[gGlL]\b))"
"""An amount, a dose or a viral load is no number to call."""

_EMAIL = re.compile(r"(?<![\w.%+-])[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}", re.ASCII)
_IDENTITY = re.compile(rf"(?<!\d)(?:\d{{6}}[- ]?\d{{8}}[- ]?\d{{3}}[\dXx]|\d{{15}}){_END}", re.ASCII)
_BANK_CARD = re.compile(rf"(?<!\d)(?:62|4\d|5[1-5])\d\d(?:[- ]?\d{{4}}){{3}}(?:[- ]?\d{{1,3}})?{_END}", re.ASCII)
_MOBILE = re.compile(
    r"(?<!\d)(?<!0\.)(?<![¥￥$])(?:(?:\+|00)?86[- ]?)?1[3-9]\d([- ]?)(?!\d000\1?0000)\d{4}\1?\d{4}"
    rf"{_END}{_NO_UNIT}",
    re.ASCII,
)
"""In one or as 3-4-4 digits. Seven zeros at the end are an amount."""
_AREA = r"(?:10|2[0-57-9]|[3-68][1-9]\d|[79]\d\d)"
_LANDLINE = re.compile(
    rf"(?<!\d)(?:(?:\+|00)86[- ]?\(?0?|\(?0){_AREA}\)?[- ]?[2-8]\d{{2,3}}[- ]?\d{{4}}"
    rf"(?:[- ]?转[- ]?\d{{1,6}}|-\d{{1,6}})?{_END}",
    re.ASCII,
)
_LOCAL = re.compile(
    r"(?:电话|座机|热线|传真|致电|拨打|[Tt][Ee][Ll]|[Pp]hone)[号码是为:：.\s]{0,6}([2-8]\d{2,3}[- ]?\d{4})"
    rf"{_END}{_NO_UNIT}",
    re.ASCII,
)

_PLACES = frozenset(
    (*range(11, 16), *range(21, 24), *range(31, 38), *range(41, 47), *range(50, 55), *range(61, 66), 71, 81, 82, 83, 91)
)
"""Provinces, the first two digits of an identity number."""
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CHECK_DIGITS = "10X98765432"


def mask_personal(text: str) -> tuple[str, dict[str, int]]:
    """The text with markers in place of personal data, and how many of each kind.

    Markers are `[电话]` (`phone`: mobile and landline), `[身份证号]` (`identity_number`: 18 digits with a right
    check digit, or 15), `[邮箱]` (`email`) and `[银行卡号]` (`bank_card`). Full-width digits count as digits.
    Masking the result again changes nothing. Linear in the length of the text.
    """
    counts: dict[str, int] = {}
    if _MAY_HOLD.search(text) is None:
        return text, counts
    form = text.translate(_TO_ASCII)
    for rule in _RULES:
        spans = [m.span(rule.group) for m in rule.pattern.finditer(form) if rule.check(m) and not _inside_code(m)]
        if spans:
            counts[rule.kind] = counts.get(rule.kind, 0) + len(spans)
            text, form = (_replace(t, spans, rule.marker) for t in (text, form))
    return text, counts


def _replace(text: str, spans: list[tuple[int, int]], marker: str) -> str:
    pieces, end = [], 0
    for start, stop in spans:
        pieces += [text[end:start], marker]
        end = stop
    return "".join([*pieces, text[end:]])


def _inside_code(match: re.Match[str]) -> bool:
    """Letters directly on both sides: a hash or an identifier of a program."""
    before, after = match.string[match.start() - 1 : match.start()], match.string[match.end() : match.end() + 1]
    return before.isascii() and before.isalpha() and after.isascii() and after.isalpha()


def _always(_match: re.Match[str]) -> bool:
    return True


def _is_identity(match: re.Match[str]) -> bool:
    digits = re.sub("[- ]", "", match[0]).upper()
    if int(digits[:2]) not in _PLACES:
        return False
    if len(digits) == 15:
        return _is_date(f"19{digits[6:12]}")
    total = sum(int(digit) * weight for digit, weight in zip(digits[:17], _WEIGHTS, strict=True))
    return digits[17] == _CHECK_DIGITS[total % 11] and _is_date(digits[6:14])


def _is_date(digits: str) -> bool:
    try:
        date.fromisoformat(f"{digits[:4]}-{digits[4:6]}-{digits[6:]}")
    except ValueError:
        return False
    return digits[:2] in ("19", "20")


def _is_luhn(match: re.Match[str]) -> bool:
    digits = [int(c) for c in reversed(match[0]) if c.isdigit()]
    doubled = [d * 2 - 9 if d > 4 else d * 2 for d in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


@dataclass(frozen=True, slots=True)
class _Rule:
    """One pattern and what takes its place."""

    kind: str
    marker: str
    pattern: re.Pattern[str]
    check: Callable[[re.Match[str]], bool] = _always
    group: int = 0
    """The group of the pattern that is replaced."""


_RULES = (
    _Rule("email", "[邮箱]", _EMAIL),  # first: its name may be a phone number
    _Rule("identity_number", "[身份证号]", _IDENTITY, _is_identity),
    _Rule("bank_card", "[银行卡号]", _BANK_CARD, _is_luhn),
    _Rule("phone", "[电话]", _MOBILE),
    _Rule("phone", "[电话]", _LANDLINE),
    _Rule("phone", "[电话]", _LOCAL, group=1),
)

MASKED_KINDS = tuple(dict.fromkeys(rule.kind for rule in _RULES))
"""Every key that the counts of `mask_personal` may have."""
