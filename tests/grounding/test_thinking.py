"""Thinking aloud is left out of an answer, however it is cut into pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.grounding import GroundedStream, ground
from dmnrag.grounding.thinking import ThinkingFilter
from dmnrag.types import Excerpt


def filtered(pieces: list[str]) -> str:
    thinking = ThinkingFilter()
    return "".join(map(thinking.feed, pieces)) + thinking.close()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>我在想什么</think>答案[1]。", "答案[1]。"),
        (" \n<think>\n想\n</think>\n\n答案。\n", "答案。\n"),
        ("<think></think>答案", "答案"),
        ("<think>没有结束", ""),
        ("<think>想</think>", ""),
        ("答案里有 <think>标签</think>。", "答案里有 <think>标签</think>。"),
        ("<thin", "<thin"),
        (" 答案", " 答案"),
        ("", ""),
    ],
)
def test_a_block_at_the_beginning_is_left_out_in_any_pieces(text: str, left: str) -> None:
    assert filtered([text]) == left
    assert filtered(list(text)) == left


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "/think>", "答", " ", "案[1]"]), max_size=12))
def test_pieces_do_not_matter(pieces: list[str]) -> None:
    assert filtered(pieces) == filtered(["".join(pieces)])


def test_a_client_never_sees_it() -> None:
    text, excerpts = "<think>系统提示[9]</think>先休息[1]。", [Excerpt(1, "d", "先休息。")]
    assert ground(text, excerpts).text == "先休息[1]。"
    stream = GroundedStream(excerpts)
    for character in text:
        stream.feed(character)
    stream.close()
    assert (stream.text, stream.citations) == ("先休息[1]。", (1,))
