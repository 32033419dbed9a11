"""Every [n] that reaches a client exists: forms, removal, streaming, fuzz."""

import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.grounding import GroundedStream
from dmnrag.grounding.citations import CitationFilter, citations_of, cited_numbers
from dmnrag.types import Excerpt

NUMBERS = (1, 2, 3)


def filtered(pieces: Sequence[str], numbers: Sequence[int] = NUMBERS) -> str:
    citations = CitationFilter(numbers)
    return "".join(citations.feed(piece) for piece in pieces) + citations.close()


def dangling(text: str, numbers: Sequence[int] = NUMBERS) -> list[str]:
    """As the plainest client would look for citations."""
    return [n for n in re.findall(r"\[(\d+)\]", text) if int(n) not in numbers]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("少盐[1]。", "少盐[1]。"),
        ("少盐[1][3]。", "少盐[1][3]。"),
        ("少盐[1,3]", "少盐[1][3]"),
        ("少盐[1，3]", "少盐[1][3]"),
        ("少盐[1、3]", "少盐[1][3]"),
        ("少盐[1；3]", "少盐[1][3]"),
        ("少盐[1 3]", "少盐[1][3]"),
        ("少盐[1和3]", "少盐[1][3]"),
        ("少盐[1 and 3]", "少盐[1][3]"),
        ("少盐[1-3]", "少盐[1][2][3]"),
        ("少盐[1～3]", "少盐[1][2][3]"),
        ("少盐[1至2]", "少盐[1][2]"),
        ("少盐【1】", "少盐[1]"),
        ("少盐［1］", "少盐[1]"),
        ("少盐［１，３］", "少盐[1][3]"),
        ("少盐[资料1]", "少盐[1]"),
        ("少盐[来源 2]", "少盐[2]"),
        ("少盐【资料1、资料3】", "少盐[1][3]"),
        ("少盐[Source 2, Source 3]", "少盐[2][3]"),
        ("少盐[^2]", "少盐[2]"),
        ("少盐[[2]]", "少盐[2]"),
        ("少盐【1†source】", "少盐[1]"),
        ("少盐[1,1]", "少盐[1]"),
        ("少盐[\u200b1]", "少盐[1]"),
        ("[1]、[2]都说", "[1]、[2]都说"),
    ],
)
def test_known_forms_become_plain_numbers(written: str, shown: str) -> None:
    assert filtered([written]) == shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("少盐[9]。", "少盐。"),
        ("少盐 [9]。", "少盐。"),
        ("少盐[1,9]。", "少盐[1]。"),
        ("少盐[2-9]。", "少盐[2][3]。"),
        ("少盐[资料9]。", "少盐。"),
        ("少盐【９】。", "少盐。"),
        ("少盐[0]。", "少盐。"),
        ("少盐[2024]。", "少盐。"),
        ("少盐（[9]）。", "少盐。"),
        ("少盐（[1][9]）。", "少盐（[1]）。"),
        ("少盐（[9][1]）。", "少盐（[1]）。"),
        ("少盐（[9]，每天）。", "少盐（每天）。"),
        ("少盐[1]、[9]。", "少盐[1]。"),
        ("少盐[9]、[1]。", "少盐[1]。"),
        ("少盐[9]，多动", "少盐，多动"),
        ("salt [9] is", "salt is"),
        ("salt [9]is", "salt is"),
        ("salt [9].", "salt."),
        ("[9] 少盐\n[9] 多动", "少盐\n多动"),
        ("[[9]]", ""),
        ("[9]", ""),
    ],
)
def test_dangling_citations_leave_no_trace(written: str, shown: str) -> None:
    assert filtered([written]) == shown


@pytest.mark.parametrize(
    "text",
    [
        "[注意]",
        "[2024年]",
        "[《民法典》第1条]",
        "[文字](https://example.org/a)",
        "- [ ] 复查\n- [x] 服药",
        "心率[60-100]次",
        "[3.9-6.1]mmol/L",
        "[5-3]",
        "[-1]",
        "[1.5]",
        "`x = [1, 2, 9]`",
        "```python\nx = [7, 8]\n```",
        "未闭合 [资料",
        "（见上文）、，  ；",
        "[",
        "]",
        "[]",
        "【】",
        "第一段\n\n  第二段 ",
    ],
)
def test_everything_else_stays_as_it_is(text: str) -> None:
    assert filtered([text]) == text


def test_in_code_nothing_looks_like_a_citation() -> None:
    assert filtered(["`a[9]` 与 `b[1]`[1]"]) == "`a[ 9]` 与 `b[ 1]`[1]"
    assert filtered(["```\na[9]\n```\n少盐[9][1]"]) == "```\na[ 9]\n```\n少盐[1]"
    assert filtered(["一个 ` 符号\n少盐[9][1]"]) == "一个 ` 符号\n少盐[1]"  # ends with its line


@pytest.mark.parametrize(
    "text", ["[[9]7]", "[4[9]2]", "[4（[9]）2]", "[[9]、7]", "[" + "9" * 60 + "]", "[٩]", "[[[9]]]"]
)
def test_what_is_left_of_nested_brackets_is_no_citation(text: str) -> None:
    assert dangling(filtered([text])) == []
    assert dangling(filtered(list(text))) == []


def test_without_excerpts_no_citation_stays() -> None:
    assert filtered(["少盐[1]，多动【2】。"], ()) == "少盐，多动。"


def test_text_is_held_back_only_while_undecided() -> None:
    citations = CitationFilter(NUMBERS)
    assert citations.feed("少盐") == "少盐"
    assert citations.feed("[") == ""
    assert citations.feed("1") == ""
    assert citations.feed("]") == "[1]"
    assert citations.feed("[注意") == ""
    assert citations.feed("]好") == "[注意]好"
    assert citations.feed("[" + "字" * 39) == ""
    assert citations.feed("字") == "[" + "字" * 40  # too long for a citation: no need to see its end
    assert citations.close() == ""


def test_numbers_are_read_in_their_order_each_once() -> None:
    assert cited_numbers("3,1,3") == [3, 1]
    assert cited_numbers("1-20") == list(range(1, 21))
    assert cited_numbers("1-21") is None
    assert cited_numbers("") is None
    assert cited_numbers("1,") is None
    assert citations_of("a[3]b[1][3]") == (3, 1)


PARTS = st.sampled_from(
    [
        "少盐", "salt", " ", "\n", "，", "、", "。", "（", "）", "(", ")", "[", "]", "【", "】", "［", "］", "[[", "]]",
        "1", "2", "9", "12", "９", "-", ",", "和", "资料", "来源 ", "[1]", "[9]", "[1,9]", "[注意]", "[2024年]",
        "`", "```", "†source", "\u200b", "[60-100]",
    ]
)  # fmt: skip
TEXTS = st.lists(PARTS, max_size=30).map("".join)


@given(TEXTS, st.lists(st.integers(1, 7), min_size=1, max_size=60))
def test_any_pieces_give_the_same_as_the_whole(text: str, lengths: list[int]) -> None:
    pieces, at = [], 0
    for length in lengths:
        pieces.append(text[at : at + length])
        at += length
    whole = filtered([text])
    assert filtered([*pieces, text[at:]]) == whole
    assert dangling(whole) == []


@given(st.text())
def test_any_text_at_all_gives_no_dangling_citation(text: str) -> None:
    assert dangling(filtered([text])) == []


FUZZED = 1_000


def test_a_thousand_fuzzed_streams_have_no_dangling_citation() -> None:
    rng = random.Random(20250)
    words = ["血压高", "要少盐", "，", "。", "\n", " ", "（", "）", "see", "`code`", "[注意]"]
    n_cited = n_removed = 0
    for _ in range(FUZZED):
        numbers = range(1, rng.randint(1, 6))
        text = ""
        for _ in range(rng.randint(5, 40)):
            opening, closing = rng.choice(["[]", "【】", "［］", "[]", "[】"])
            inner = rng.choice(["", "资料", "来源 ", "^"]) + str(rng.randint(0, 12))
            inner += rng.choice(
                ["", "", f",{rng.randint(0, 9)}", f"-{rng.randint(0, 9)}", "年", f"[{rng.randint(0, 9)}]"]
            )
            text += rng.choice(words) if rng.random() < 0.5 else opening * rng.randint(1, 2) + inner + closing
        pieces, at = [], 0
        while at < len(text):
            length = rng.choice([1, 1, 2, 3, 5, 11])
            pieces.append(text[at : at + length])
            at += length
        stream = GroundedStream([Excerpt(n, str(n), "血压高要少盐") for n in numbers], secret="血压高要少盐")
        for piece in pieces:
            stream.feed(piece)
        stream.close()
        shown = stream.text
        assert dangling(shown, numbers) == [], text
        assert citations_of(shown) == stream.citations
        n_cited += len(stream.citations)
        n_removed += len(dangling(text, numbers))
    assert n_cited > FUZZED  # the streams do cite
    assert n_removed > FUZZED  # and did hold what was to be removed
