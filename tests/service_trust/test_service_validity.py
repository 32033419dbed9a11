"""Validity dates as people write them."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.service.validity import last_valid_day, validity
from dmnrag.types import Document

TODAY = date(2026, 1, 15)


def document(**metadata: str) -> Document:
    return Document("d", "q", ("a",), metadata=metadata)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2025-12-31", date(2025, 12, 31)),
        ("2025/1/5", date(2025, 1, 5)),
        ("2025.01.05", date(2025, 1, 5)),
        ("2025年12月31日", date(2025, 12, 31)),
        ("2025 年 2 月 3 号", date(2025, 2, 3)),
        ("２０２５年１２月３１日", date(2025, 12, 31)),
        ("20251231", date(2025, 12, 31)),
        ("2025-12-31 00:00:00", date(2025, 12, 31)),
        ("2025-12-31T08:30:00.000+08:00", date(2025, 12, 31)),
        ("2025-12", date(2025, 12, 31)),
        ("2024-02", date(2024, 2, 29)),
        ("2025年2月", date(2025, 2, 28)),
        ("2025年2月底", date(2025, 2, 28)),
        ("2025", date(2025, 12, 31)),
        ("2025年", date(2025, 12, 31)),
        ("2025年底", date(2025, 12, 31)),
        (" 2025-12-31 ", date(2025, 12, 31)),
        ("2025-02-30", None),
        ("2025-13-01", None),
        ("2025-12/31", None),
        ("0000-01-01", None),
        ("31/12/2025", None),
        ("长期有效", None),
        ("202512", None),
        ("2025-12-31 or later", None),
        ("12345678901", None),
        ("", None),
    ],
)
def test_dates(text: str, day: date | None) -> None:
    assert last_valid_day(text) == day


@given(st.dates())
def test_every_day_in_every_form(day: date) -> None:
    y, m, d = day.year, day.month, day.day
    for text in (f"{y:04}-{m}-{d}", f"{y:04}/{m:02}/{d:02}", f"{y:04}年{m}月{d}日", f"{y:04}{m:02}{d:02}"):
        assert last_valid_day(text) == day


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    last_valid_day(text)


def test_the_day_itself_is_still_valid() -> None:
    assert validity(document(until="2026-01-15"), "until", TODAY) == ("2026-01-15", False)
    assert validity(document(until="2026年1月14日"), "until", TODAY) == ("2026-01-14", True)
    assert validity(document(until="2026-01"), "until", TODAY) == ("2026-01-31", False)
    assert validity(document(until="2025"), "until", TODAY) == ("2025-12-31", True)


def test_what_is_no_date_is_shown_and_never_outdated() -> None:
    assert validity(document(until=" 长期有效 "), "until", TODAY) == ("长期有效", False)
    assert validity(document(until="2025-02-30"), "until", TODAY) == ("2025-02-30", False)


def test_nothing_without_a_column_or_a_value() -> None:
    assert validity(document(until="2025"), None, TODAY) == (None, False)
    assert validity(document(other="2025"), "until", TODAY) == (None, False)
    assert validity(document(until=" "), "until", TODAY) == (None, False)
