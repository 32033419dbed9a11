"""Notices: which questions get one, and which must not, because a notice takes the answer away."""

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from dmnrag._io import read_jsonl
from dmnrag.data import ColumnMapping, read_documents
from dmnrag.errors import ConfigError
from dmnrag.service.notices import Notice, Notices

IN_NEED = {
    "self-harm": [
        "我不想活了",
        "真的不想再活下去",
        "活不下去了怎么办",
        "我想死",
        "好想死啊",
        "不 想 活 了",
        "我想自杀",
        "怎么自杀不痛苦",
        "自杀的方法",
        "想自殺",
        "有轻生的念头",
        "孩子说活着没意思",
        "我割腕了血止不住",
        "刚割了手腕",
        "我总是想伤害自己",
        "不如死了算了",
        "我想结束自己的生命",
        "女儿有自杀倾向怎么办",
        "I want to die",
        "I want to kill myself",
        "how to commit suicide",
        "I'm feeling suicidal",
        "I don't want to live anymore",
        "I don’t want to live any more.",
        "我打算跳楼",
        "想\u200b死",
    ],
    "medical-emergency": [
        "我爸突然没有呼吸了怎么办",
        "我妈现在昏迷不醒，怎么办",
        "他刚刚叫不醒了",
        "我现在喘不上气，嘴唇发紫",
        "现在胸口剧痛",
        "胸口剧烈疼痛伴呼吸困难出冷汗",
        "孩子噎住了脸发紫",
        "我喝了农药",
        "孩子误食老鼠药",
        "他吃了一整瓶安眠药",
        "一次吃了30片药怎么办",
        "一家人煤气中毒了",
        "奶奶突然嘴歪，说不出话",
        "现在大出血怎么办",
        "被毒蛇咬了",
        "孩子现在一直抽搐",
        "she is not breathing",
        "my husband is having a heart attack",
        "My baby is choking",
        "I can't breathe, help",
        "my son swallowed bleach",
        "He won't wake up",
        "crushing chest pain and sweating",
    ],
    "danger": [
        "我老公正在打我",
        "现在有人拿刀砍人",
        "我家着火了",
        "家里燃气泄漏了怎么办",
        "my house is on fire",
        "he is trying to kill me",
    ],
}
ORDINARY = [
    "患者在医院自杀，医院是否要赔偿病人家属？",
    "想死你了",
    "笑死我了",
    "我不想死",
    "不想活动是怎么回事",
    "思想死板怎么办",
    "我想死后把房子留给女儿",
    "死亡赔偿金怎么算，我想死亡赔偿金有多少",
    "痛得生不如死怎么治",
    "切割腕横韧带的手术",
    "如何预防自杀",
    "自杀保险赔吗",
    "员工自杀算工伤吗",
    "胸痛是什么原因",
    "我经常胸闷喘不过气",
    "没有呼吸困难，没有心跳加速",
    "怀孕八周突然没有心跳怎么办",
    "糖尿病老人昏迷应该吃什么？",
    "癫痫发作突然不省人事怎么治疗",
    "吃了打农药的菜会怎样",
    "吃了两瓶药没有效果",
    "孩子睡觉叫不醒总尿床",
    "心脏骤停一般需要多久才能恢复清醒",
    "高压100，低压120是高血压嘛？",
    "司机发现乘客昏迷及时拨打了120和119可以免除责任吗？",
    "一氧化碳中毒引起的癫痫治疗方法是什么？",
    "租的房子着火了谁赔偿",
    "丈夫家暴怎么离婚",
    "老人快不行了怎么立遗嘱",
    "How is a heart attack treated?",
    "my back is killing me",
    "I hurt myself at work, can I claim?",
    "I don't want to live with my parents",
    "Can sertraline cause suicidal thoughts?",
    "chest pain for two years",
    "How do I know if someone is having a stroke?",
    "I am having trouble sleeping",
    "遗书可以作为遗嘱吗",
    "我家着火了，保险公司赔不赔",
    "突然出现血糖升高怎么办",
    "安乐死在中国合法吗",
    "手腕割伤后缝针几天拆线",
    "不想活得太累",
    "I'm having a baby",
    "安眠药吃多久会上瘾",
    "安眠药吃多久有效",
]
OWN = """
[[notice]]
name = "first"
patterns = ['停电', '\\bpower cut\\b']
text = { zh = "停电请拨打 95598。", en = "Call 95598." }
[[notice]]
name = "second"
patterns = ['停电|停水']
text = { zh = "请拨打 12345。" }
"""


def own(folder: Path, text: str = OWN) -> Notices:
    path = folder / "notices.toml"
    path.write_text(text, encoding="utf-8")
    return Notices.load(str(path))


@pytest.fixture(scope="module")
def shipped() -> Notices:
    return Notices.load("default")


@pytest.mark.parametrize(("name", "question"), [(name, q) for name, questions in IN_NEED.items() for q in questions])
def test_people_in_need_get_the_notice(shipped: Notices, name: str, question: str) -> None:
    found = shipped.match(question)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("question", ORDINARY)
def test_ordinary_questions_are_answered(shipped: Notices, question: str) -> None:
    assert shipped.match(question) is None


def test_texts_name_the_numbers_in_the_language_of_the_question(shipped: Notices) -> None:
    for question, numbers, chinese in (
        ("我不想活了", ("12356", "120", "110"), True),
        ("I want to kill myself", ("12356", "112", "911"), False),
        ("孩子误食老鼠药", ("120",), True),
        ("she is not breathing", ("120", "112", "911"), False),
        ("我老公正在打我", ("110", "119"), True),
    ):
        found = shipped.match(question)
        assert found is not None
        assert all(number in found.text for number in numbers)
        assert bool(re.search("[\u4e00-\u9fff]", found.text)) is chinese


def test_real_questions_are_answered(shipped: Notices, shared: Path) -> None:
    """8,256 medical and legal questions with answers: two get a notice, one for despair and one for a seizure of half
    an hour (docs/trust.md)."""
    sources = [
        ("medical_im_gb18030.csv", ColumnMapping(("title", "ask"), ("answer",), ("department",))),
        ("medical_departments.jsonl", ColumnMapping(("question",), ("answers",), ("domain",))),
        ("legal_casetypes.jsonl", ColumnMapping(("question",), ("answers",), ("domain",))),
    ]
    questions = [d.question for file, columns in sources for d in read_documents([shared / "data" / file], columns)[0]]
    assert len(questions) == 8_256
    found = [(notice.name, q) for q in questions if (notice := shipped.match(q))]
    assert [name for name, _ in found] == ["medical-emergency", "self-harm"]
    assert "持继了半个小时" in found[0][1]
    assert "还不如死了好" in found[1][1]
    airline = [row["question"] for row in read_jsonl(shared / "data" / "airline_faq.jsonl")]
    assert not any(map(shipped.match, airline))


def test_shipped_patterns_cannot_cost_more_than_the_length_of_a_question() -> None:
    """No repeat without a bound, but for one that stands behind ^ and so is tried once."""
    table = tomllib.loads((files("dmnrag.service") / "notices-default.toml").read_text(encoding="utf-8"))
    patterns = [pattern for notice in table["notice"] for pattern in notice["patterns"]]
    assert len(patterns) > 30
    unbounded = [p for p in patterns if re.search(r"(?<!\\)[*+]|,\}", p.removeprefix("^(?!.*[胎孕]).*"))]
    assert unbounded == []


def test_a_file_of_ones_own_takes_the_place_of_the_shipped_one(tmp_path: Path) -> None:
    notices = own(tmp_path)
    assert len(notices) == 2
    assert notices.match("停电了怎么办") == Notice("first", "停电请拨打 95598。")  # the first that matches
    assert notices.match("There was a Power  Cut") == Notice("first", "Call 95598.")
    assert notices.match("停 水 了") == Notice("second", "请拨打 12345。")
    assert notices.match("我不想活了") is None


def test_a_language_that_is_missing_gets_the_first_text(tmp_path: Path) -> None:
    notices = own(tmp_path, '[[notice]]\nname = "a"\npatterns = ["停水", "water"]\ntext = { en = "Call." }')
    assert notices.match("停水了") == Notice("a", "Call.")


def test_none_gives_none() -> None:
    assert len(Notices.load("none")) == 0
    assert Notices.load("none").match("我不想活了") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no notice"),
        ("[[notice]", "not a TOML file"),
        ('[[notise]]\nname = "a"', "Did you mean 'notice'?"),
        ('[[notice]]\nname = "a"\npattern = ["x"]\ntext = { zh = "t" }', "Did you mean 'patterns'?"),
        ('[[notice]]\npatterns = ["x"]\ntext = { zh = "t" }', "needs a name"),
        ('[[notice]]\nname = "a"\ntext = { zh = "t" }', "patterns is not a list"),
        ('[[notice]]\nname = "a"\npatterns = "x"\ntext = { zh = "t" }', "patterns is not a list"),
        ('[[notice]]\nname = "a"\npatterns = ["x"]', "text is not a table"),
        ('[[notice]]\nname = "a"\npatterns = ["x"]\ntext = "t"', "text is not a table"),
        ('[[notice]]\nname = "a"\npatterns = ["x"]\ntext = { zh = " " }', "text is not a table"),
        ('[[notice]]\nname = "a"\npatterns = ["x"]\ntext = { Chinese = "t" }', "is no language"),
        ('[[notice]]\nname = "a"\npatterns = ["(x"]\ntext = { zh = "t" }', "is no regular expression"),
        ('[[notice]]\nname = "a"\npatterns = ["x*"]\ntext = { zh = "t" }', "matches an empty text"),
        ('[[notice]]\nname = "a"\npatterns = ["SOS"]\ntext = { zh = "t" }', "capital letters"),
        (2 * '[[notice]]\nname = "a"\npatterns = ["x"]\ntext = { zh = "t" }\n', "several notices are named 'a'"),
    ],
)
def test_unusable_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        own(tmp_path, text)


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="allowed are default, none and the path"):
        Notices.load("defualt")
