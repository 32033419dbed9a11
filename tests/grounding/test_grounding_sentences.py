"""Which sentences are named as unsupported, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.grounding.sentences import Span, SupportWatch

SOURCE = "[1] 领域：内科\n问：血压怎么量？\n答：血压要早晚各测一次，测前静坐五分钟。高血压患者每天吃盐不超过五克。"
GOOD = "血压要早晚各测一次。"
BAD = "可以去爬珠穆朗玛峰。"


def marked(text: str, excerpts: tuple[str, ...] = (SOURCE,)) -> list[str]:
    watch = SupportWatch(excerpts)
    return [text[span.start : span.end] for span in [*watch.feed(text), *watch.close()]]


def test_a_sentence_that_no_excerpt_holds_is_named() -> None:
    assert marked(f"{GOOD}{BAD}{GOOD}") == [BAD]
    assert marked(f"{GOOD}{BAD}{GOOD}", ()) == [GOOD, BAD, GOOD]


def test_less_than_half_of_the_characters_must_be_supported_for_a_mark() -> None:
    # 9 supported of 9 + 4 and of 9 + 10 characters (the commas do not count).
    assert marked("血压要早晚各测一次，登山攀岩。") == []
    assert marked("血压要早晚各测一次，可以去爬珠穆朗玛峰吧。") == ["血压要早晚各测一次，可以去爬珠穆朗玛峰吧。"]


@pytest.mark.parametrize(
    "text",
    [
        "您好。",
        "现有资料不足以回答这个问题。",
        "现有资料不足以回答这个问题，缺少用药史的说明。",
        "资料中没有提到儿童用药的剂量。",
        "无法根据资料判断是否需要手术。",
        "The sources do not say which dose is right.",
        "## 登山攀岩的注意事项\n",
        "**登山攀岩的注意事项**\n",
        "登山攀岩要注意以下几点：",
        "您最近去爬过珠穆朗玛峰吗？",
        "希望以上回答对您有帮助。",
        "祝您早日康复。",
        "[1]",
        "",
        "。。。",
    ],
)
def test_what_states_nothing_is_not_named(text: str) -> None:
    assert marked(text) == []


def test_a_but_after_missing_sources_is_judged() -> None:
    text = "资料没有提到登山，但一般来说可以去爬珠穆朗玛峰。"
    assert marked(text) == [text]


def test_another_script_than_the_sources_is_not_judged() -> None:
    assert marked("Measure your blood pressure twice a day.") == []
    assert marked("可以去爬珠穆朗玛峰。", ("Measure your blood pressure twice a day.",)) == []
    assert marked("Zyxwvut qponmlk jihgfed!", ("Measure your blood pressure twice a day.",)) != []


def test_citations_neither_support_nor_belong_to_the_next_sentence() -> None:
    assert marked(f"{GOOD}[1]{BAD}[1]") == [BAD]
    assert marked("可以去爬[1]珠穆朗玛峰[1]。") == ["可以去爬[1]珠穆朗玛峰[1]。"]


def test_spans_leave_out_white_space_around() -> None:
    watch = SupportWatch([SOURCE])
    text = f"{GOOD}\n\n  {BAD}\n"
    [span] = [*watch.feed(text), *watch.close()]
    assert span == Span(len(GOOD) + 4, len(GOOD) + 4 + len(BAD))


def test_a_sentence_is_named_as_soon_as_the_next_begins() -> None:
    watch = SupportWatch([SOURCE])
    assert watch.feed(BAD[:-1]) == []
    assert watch.feed("。") == []  # a closing quote may follow
    assert watch.feed("”") == []
    assert watch.feed("血") == [Span(0, len(BAD) + 1)]
    assert watch.close() == []


@given(
    st.lists(st.sampled_from([GOOD, BAD, "您好", "。", "！”", "\n", " ", "[1]", "资料不足"]), max_size=12),
    st.integers(1, 9),
)
def test_pieces_give_the_spans_of_the_whole(parts: list[str], length: int) -> None:
    text = "".join(parts)
    whole, watch = SupportWatch([SOURCE]), SupportWatch([SOURCE])
    spans = [span for at in range(0, len(text), length) for span in watch.feed(text[at : at + length])]
    assert [*spans, *watch.close()] == [*whole.feed(text), *whole.close()]
