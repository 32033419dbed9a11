"""Bytes to text: the order of attempts, and offsets in errors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmnrag.data.encoding import decode
from dmnrag.errors import DataError

SIMPLIFIED = "科室,问题,回答\n心内科,高血压患者能吃党参吗？,可以口服，平时少盐。\n"
TRADITIONAL = "科室,問題,回答\n心臟科,高血壓病人可以喝咖啡嗎？,建議少量飲用，並且定期檢查。\n"


@pytest.mark.parametrize(
    ("text", "written_as", "found"),
    [
        (SIMPLIFIED, "utf-8", "utf-8"),
        (SIMPLIFIED, "utf-8-sig", "utf-8-sig"),
        (SIMPLIFIED, "gb18030", "gb18030"),
        (SIMPLIFIED, "gbk", "gb18030"),
        (TRADITIONAL, "gb18030", "gb18030"),
        (TRADITIONAL, "big5", "big5"),
        ("。參參壓", "big5", "big5"),  # as GB18030 three common characters and a private one
        (SIMPLIFIED, "utf-16", "utf-16"),
        (SIMPLIFIED, "utf-16-le", "utf-16-le"),
        (SIMPLIFIED, "utf-16-be", "utf-16-be"),
        ("question,answer\na,b\n", "utf-16-le", "utf-16-le"),
        (SIMPLIFIED, "utf-32", "utf-32"),
        ("question,answer\na,b\n", "ascii", "utf-8"),
    ],
)
def test_encoding_is_found_and_the_text_is_equal(text: str, written_as: str, found: str) -> None:
    decoded = decode(text.encode(written_as), "f.csv")
    assert (decoded.text, decoded.encoding) == (text, found)


def test_nul_in_a_cell_does_not_make_utf8_or_gb18030_look_like_utf16() -> None:
    text = SIMPLIFIED + "内科,\0怎么办,看医生\n"
    assert decode(text.encode(), "f").encoding == "utf-8"
    assert decode(text.encode("gb18030"), "f").text == text


def test_undecodable_bytes_name_offsets_and_encodings_tried() -> None:
    # "ab" (2 bytes), then 0xff, which begins no character in any of the encodings.
    with pytest.raises(DataError, match=r"utf-8 \(fails at byte 2: 0xff\).*gb18030.*byte 2.*big5.*byte 2"):
        decode(b"ab\xff\xff\xff", "bad.csv")


def test_given_encoding_is_used_or_refused_with_the_offset() -> None:
    assert decode("é,b".encode("latin-1"), "f", "latin-1").text == "é,b"
    with pytest.raises(DataError, match=r"utf-8 \(fails at byte 0"):
        decode("高".encode("gb18030"), "f", "utf-8")


@pytest.mark.parametrize("name", ["gb18300", "base64"])
def test_unknown_encoding_name_is_refused(name: str) -> None:
    with pytest.raises(DataError, match=name):
        decode(b"a", "f", name)


@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff"), max_size=60),
    encoding=st.sampled_from(["utf-8", "utf-16", "gb18030", "utf-8-sig"]),
)
@settings(max_examples=100)
def test_any_text_reads_back_with_its_encoding_given(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding), "f", encoding).text == text


@given(
    st.text(
        st.sampled_from("高血压患者能吃党参吗的是不了在有人我他这中大来上到说们为子和你地出会时也要，。？"),
        min_size=4,
    )
)
@settings(max_examples=100)
def test_common_simplified_text_in_gb18030_is_never_taken_for_another(text: str) -> None:
    assert decode(text.encode("gb18030"), "f").text == text


@given(
    st.text(
        st.sampled_from("高血壓患者能吃黨參嗎的是不了在有人我他這中大來上到說們為子和你地出會時也要，。？"),
        min_size=4,
    )
)
@settings(max_examples=100)
def test_common_traditional_text_with_punctuation_in_big5_is_never_taken_for_another(text: str) -> None:
    # Without punctuation a few characters can be common in both: the bytes of 參參 are those of 把把 in GB18030.
    text += "，"
    assert decode(text.encode("big5"), "f").text == text
