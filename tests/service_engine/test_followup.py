import pytest

from dmnrag.service.events import Turn
from dmnrag.service.followup import earlier_questions, is_follow_up, whole_question
from dmnrag.text.characters import has_cjk

COMPLETE = [
    "高血压能喝酒吗？",
    "小儿感冒怎么办",
    "氯雷他定片能长期服用吗",
    "损害他人健康如何赔偿",
    "糖尿病患者能吃西瓜吗",
    "我家孩子三岁，最近总是半夜咳嗽，白天又没有什么事，他需要去医院吗？",
    "离婚后孩子的抚养权归谁？",
    "还有什么药可以治疗高血压",
    "What are the symptoms of diabetes?",
    "How much baggage can I bring on an international flight?",
]
FOLLOW_UPS = [
    "那孩子呢？",
    "那么儿童可以用吗",
    "它有副作用吗",
    "这种药能长期吃吗？",
    "怎么治",
    "多少钱？",
    "为什么？",
    "还有别的办法吗",
    "上述情况需要手术吗",
    "如果不治疗会怎样",
    "要是怀孕了呢",
    "他能喝酒吗",
    "What about children?",
    "And for pregnant women?",
    "Is it dangerous?",
    "How much?",
    "why",
    "Can they take it with milk?",
]


@pytest.mark.parametrize("question", COMPLETE)
def test_a_complete_question_stays_as_it_is(question: str) -> None:
    history = [Turn("user", "头疼怎么办？"), Turn("assistant", "多休息。")]
    assert whole_question(question, history, 1000) == question


@pytest.mark.parametrize("question", FOLLOW_UPS)
def test_a_follow_up_gets_the_question_before_it(question: str) -> None:
    history = [Turn("user", "高血压能喝酒吗？"), Turn("assistant", "最好不喝。")]
    assert whole_question(question, history, 1000) == f"高血压能喝酒吗？ {question}"


def test_without_a_question_before_it_a_follow_up_stays_as_it_is() -> None:
    assert whole_question("那孩子呢？", [], 1000) == "那孩子呢？"
    assert whole_question("那孩子呢？", [Turn("assistant", "您好。"), Turn("user", " ")], 1000) == "那孩子呢？"


def test_follow_ups_lead_back_to_the_question_that_stands_alone() -> None:
    history = [
        Turn("user", "头疼怎么办？"),
        Turn("user", "高血压能喝酒吗？"),
        Turn("assistant", "最好不喝。"),
        Turn("user", "那孩子呢？"),
        Turn("assistant", "也不行。"),
    ]
    assert whole_question("为什么？", history, 1000) == "高血压能喝酒吗？ 那孩子呢？ 为什么？"


def test_no_more_than_three_earlier_questions_are_put_in_front() -> None:
    history = [Turn("user", "高血压能喝酒吗？"), *(Turn("user", f"那{name}呢？") for name in "甲乙丙丁")]
    assert whole_question("为什么？", history, 1000) == "那乙呢？ 那丙呢？ 那丁呢？ 为什么？"


def test_what_would_make_it_too_long_is_left_out() -> None:
    history = [Turn("user", "高血压能喝酒吗？"), Turn("user", "那孩子呢？")]
    assert whole_question("为什么？", history, 10) == "那孩子呢？ 为什么？"  # 5 + 1 + 4 characters
    assert whole_question("为什么？", history, 9) == "为什么？"


def test_answers_are_never_searched_for() -> None:
    history = [Turn("user", "高血压能喝酒吗？"), Turn("assistant", "阿司匹林")]
    assert "阿司匹林" not in whole_question("为什么？", history, 1000)
    assert earlier_questions(history) == ["高血压能喝酒吗？"]


def test_a_question_is_chinese_when_it_has_a_chinese_character() -> None:
    assert has_cjk("CT 检查")
    assert has_cjk("𠮷")  # also a rare one
    assert not has_cjk("Is it dangerous?")
    assert is_follow_up("why")
