"""One spelling for what means the same."""

import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from dmnrag.text import normalise, to_simplified
from dmnrag.text.normalise import _COMMON_WIDE, _IGNORED

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)  # lone surrogates too


def test_full_width_letters_digits_and_marks_become_plain_lower_case() -> None:
    assert normalise("ＣＴ检查：１２．５ＭＧ，正常！") == "ct检查:12.5mg,正常!"


def test_white_space_collapses_and_is_stripped() -> None:
    assert normalise("\u3000\t心 \r\n\x85 梗\u2028死\u00a0 ") == "心 梗 死"


def test_control_zero_width_and_surrogate_characters_disappear() -> None:
    assert normalise("心\x00\u200b\ufeff肌\u00ad\ufe0f梗\ud800\u202e死\x7f") == "心肌梗死"


def test_removing_a_zero_width_character_lets_the_rest_compose() -> None:
    assert normalise("e\u200b\u0301") == "\u00e9"


def test_lower_case_is_composed_again() -> None:
    # J + caron has no composed form, j + caron has: U+01F0
    assert normalise("J\u030c") == "\u01f0"


def test_the_shortcut_for_common_marks_is_what_nfkc_does() -> None:
    for wide, narrow in _COMMON_WIDE:
        assert unicodedata.normalize("NFKC", wide) == narrow


@given(ANY_TEXT)
@example("\u1100\u3164\u1161")
def test_normalising_twice_changes_nothing_and_gives_valid_utf8(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    once.encode("utf-8")


@given(ANY_TEXT)
def test_without_invisible_characters_it_is_nfkc_of_lower_case(text: str) -> None:
    visible = _IGNORED.sub("", text)
    nfkc = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).lower())
    assert normalise(text) == " ".join(nfkc.split())


def test_traditional_characters_become_simplified_ones() -> None:
    assert to_simplified("心臟病與頭髮") == "心脏病与头发"


def test_simplifying_keeps_what_has_no_utf8() -> None:
    assert to_simplified("心臟\x00臟\ud800臟") == "心脏\x00脏\ud800脏"


@given(ANY_TEXT)
def test_simplifying_takes_any_text(text: str) -> None:
    to_simplified(text)
