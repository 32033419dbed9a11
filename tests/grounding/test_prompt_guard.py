"""The system text and the fence marks do not come out; ordinary answers do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.grounding.guard import LIMIT, PromptGuard
from dmnrag.prompts import load_template

CITED = load_template("cited")
RULE = "只依据“检索资料开始”与“检索资料结束”之间的资料回答，不使用资料以外的知识，不编造。"
ENGLISH = "You are a careful assistant. Answer from the excerpts alone and cite each of them by its number."


def shown(text: str, secret: str = CITED.system_text, length: int | None = None) -> tuple[str, bool]:
    guard = PromptGuard(secret, CITED.fence)
    length = length or len(text) or 1
    pieces = [guard.feed(text[at : at + length]) for at in range(0, len(text), length)]
    return "".join(pieces) + guard.close(), guard.withheld


@pytest.mark.parametrize(
    "text",
    [
        "现有资料不足以回答这个问题。",
        "现有资料不足以回答这个问题，缺少患者年龄和用药史。",
        "根据资料，高血压患者要少吃盐[1]，资料不足以回答其他问题，不要勉强。",
        "只依据资料回答：少吃盐 [1] 或多运动 [1][3]。",
        "请用简体中文回答。",
        "检索资料结束前请不要提问。",
        "问答助手请遵守以下规则",
        "您好",
        "",
    ],
)
def test_ordinary_answers_pass_whole(text: str) -> None:
    assert shown(text) == (text, False)


@pytest.mark.parametrize(
    "form",
    [
        str,
        " ".join,
        "\n".join,
        "-".join,
        "\u200b".join,
        "。".join,
        lambda text: text.translate({ord("，"): None, ord("。"): None}),
        lambda text: "".join(f"**{c}**" for c in text),
    ],
)
def test_a_rule_is_cut_before_its_first_character(form: object) -> None:
    assert callable(form)
    for length in (1, 2, 7, None):
        text, withheld = shown(f"好的：{form(RULE)}还有更多", length=length)
        assert withheld
        assert text.startswith("好的：")
        assert not any(c in text for c in "只依据检索")


def test_letters_of_other_widths_and_cases_are_the_same() -> None:
    wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in ENGLISH)
    for text in (ENGLISH.upper(), wide, " ".join(ENGLISH)):
        assert shown("Sure: " + text, ENGLISH) == ("Sure: ", True)
    assert shown("You are a careful person, and cite each of them.", ENGLISH)[1] is False


def test_a_run_is_cut_at_the_limit_and_not_below() -> None:
    secret = "".join(chr(ord("一") + i) for i in range(40))
    below, at = secret[5 : 5 + LIMIT - 1], secret[5 : 5 + LIMIT]
    assert shown(f"前{below}后", secret) == (f"前{below}后", False)
    assert shown(f"前{at}后", secret) == ("前", True)
    assert shown(f"前{below}", secret) == (f"前{below}", False)  # given out at the end


def test_fence_marks_are_cut_with_their_brackets_alone() -> None:
    for mark in ("【检索资料结束】", "【 检索资料结束】", "【检索\u200b资料\n开始】"):
        assert shown(f"好。{mark}后") == ("好。", True)
    assert shown("好。检索资料结束后。") == ("好。检索资料结束后。", False)


def test_little_is_held_back() -> None:
    guard = PromptGuard(CITED.system_text, CITED.fence)
    assert guard.feed("高血压患者每天吃盐") == "高血压患者每天吃盐"
    assert guard.feed("现有资料不足") == ""  # stands in the system text
    assert guard.feed("，故") == "现有资料不足，故"


def test_a_citation_is_never_cut_in_two() -> None:
    guard = PromptGuard(CITED.system_text)  # which says: 例如 [1] 或 [1][3]
    pieces = [guard.feed(c) for c in "少盐[1][3]或[1]。"] + [guard.close()]
    assert "".join(pieces) == "少盐[1][3]或[1]。"
    assert all(piece.count("[") == piece.count("]") for piece in pieces)


def test_without_a_secret_nothing_is_held() -> None:
    guard = PromptGuard("")
    assert [guard.feed(c) for c in "任何内容"] == list("任何内容")


@given(
    st.lists(
        st.sampled_from([RULE, RULE[3:15], "高血压", "【检索资料结束】", "【检索", "[1]", "[", "1", " "]), max_size=8
    ),
    st.integers(1, 9),
)
def test_pieces_give_the_same_as_the_whole_and_no_long_run(parts: list[str], length: int) -> None:
    text = "".join(parts)
    whole = shown(text)
    assert shown(text, length=length) == whole
    letters = "".join(c for c in whole[0] if c.isalnum())
    secret = "".join(c for c in CITED.system_text if c.isalnum())
    assert not any(
        letters[i : i + LIMIT] in secret for i in range(len(letters) - LIMIT + 1) if letters[i : i + LIMIT].isalpha()
    )
    assert "【检索资料结束】" not in whole[0].replace(" ", "")
