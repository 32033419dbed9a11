"""Columns, cells and labels: hand cases."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.data import ColumnMapping
from dmnrag.data.cells import CellReader
from dmnrag.data.domains import DomainReader, split_labels
from dmnrag.data.options import DOMAIN_SEPARATORS, ReadOptions
from dmnrag.data.read import join_question
from dmnrag.errors import ConfigError, DataError


def test_wrong_column_name_lists_the_columns_and_suggests_the_nearest() -> None:
    mapping = ColumnMapping(("Quesion",), ("answer",))
    with pytest.raises(DataError, match=r"no column 'Quesion'. Did you mean 'question'\?.*'question', 'answer'"):
        mapping.check(("question", "answer"), frozenset(), "f.csv")


def test_wrong_column_name_of_a_file_without_header_says_so() -> None:
    header = (
        "高血压患者能吃党参吗？",
        "我有高血压这两天女婿来的时候给我拿了些党参泡水喝，您好高血压可以吃吗？",
    )
    with pytest.raises(DataError, match="first row looks like data"):
        ColumnMapping(("question",), ("answer",)).check(header, frozenset(), "f.txt")


def test_column_that_stands_twice_is_refused_when_it_is_mapped() -> None:
    columns, repeated = ("q", "a", "a (2)"), frozenset({"a"})
    ColumnMapping(("q",), ("a (2)",)).check(columns, repeated, "f.csv")
    with pytest.raises(DataError, match="several columns named 'a'"):
        ColumnMapping(("q",), ("a",)).check(columns, repeated, "f.csv")


@pytest.mark.parametrize("part", ["question", "answer"])
def test_mapping_without_question_or_answer_is_refused(part: str) -> None:
    question, answer = (() if part == name else (name,) for name in ("question", "answer"))
    with pytest.raises(ConfigError, match=part):
        ColumnMapping(question, answer)


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        (["高血压", "能吃党参吗？"], "高血压 能吃党参吗？"),
        (["能吃党参吗", "我有高血压，能吃党参吗？"], "我有高血压，能吃党参吗？"),
        (["能吃党参吗？", "能吃党参吗"], "能吃党参吗？"),
        (["", "能吃党参吗"], "能吃党参吗"),
        (["？？", "能吃吗"], "？？ 能吃吗"),
        (["", ""], ""),
    ],
)
def test_question_parts_are_joined_without_repetition(parts: list[str], joined: str) -> None:
    assert join_question(parts) == joined


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("内科,心血管内科", ["内科", "心血管内科"]),
        ("内科 > 心血管内科", ["内科", "心血管内科"]),
        ("内科、外科；儿科", ["内科", "外科", "儿科"]),
        ("物权（含房产）", ["物权（含房产）"]),
        ("物权（含房产、土地），继承", ["物权（含房产、土地）", "继承"]),
        ("未闭合（甲，乙", ["未闭合（甲", "乙"]),
        (" ,, ", []),
        ("", []),
    ],
)
def test_labels_of_one_cell_are_parted_outside_brackets(cell: str, labels: list[str]) -> None:
    assert split_labels(cell, DOMAIN_SEPARATORS) == labels


def test_separators_can_be_chosen_or_turned_off() -> None:
    assert split_labels("a/b,c", ",") == ["a/b", "c"]
    assert split_labels("a/b,c", "") == ["a/b,c"]
    assert split_labels("a(b)c", "()") == ["a", "b", "c"]


def test_domain_takes_lists_and_several_columns_in_order_without_repetition() -> None:
    cells = [["内科", "心内,科"], "内科、门诊", None, math.nan]
    reader = DomainReader(ReadOptions(), CellReader())
    assert reader.domain(label for cell in cells for label in reader.labels(cell)) == ("内科", "心内，科", "门诊")


@given(
    st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1), min_size=1),
    st.sampled_from(DOMAIN_SEPARATORS),
)
def test_labels_joined_by_any_separator_part_again(labels: list[str], separator: str) -> None:
    assert split_labels(separator.join(labels), DOMAIN_SEPARATORS) == labels


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, ""),
        (math.nan, ""),
        ("NaN", ""),
        (" null ", ""),
        (3, "3"),
        (3.0, "3"),
        (2.5, "2.5"),
        (True, "True"),
        ("  a\r\nb\rc ", "a\nb\nc"),
        (["a"], "a"),
    ],
)
def test_cells_become_text(cell: object, text: str) -> None:
    assert CellReader().text(cell) == text


def test_control_characters_and_lone_surrogates_are_repaired_and_counted() -> None:
    reader = CellReader()
    # U+0000, U+0007 and U+0085 go (3), one surrogate becomes U+FFFD (1), tab and newline stay.
    assert reader.text("a\0b\x07c\x85d\ud800e\tf\ng") == "abcd\ufffde\tf\ng"
    assert (reader.control_characters, reader.lone_surrogates) == (3, 1)


def test_lists_give_several_texts_and_nested_ones_are_refused() -> None:
    assert CellReader().texts(["a", None, "", "b", math.nan, 2]) == ["a", "b", "2"]
    with pytest.raises(DataError, match="list of 2 inside"):
        CellReader().texts(["a", ["b", "c"]])
    with pytest.raises(DataError, match="an object"):
        CellReader().texts({"a": 1})
    with pytest.raises(DataError, match="list of 2"):
        CellReader().text(["a", "b"])


def test_metadata_of_any_kind_is_kept_as_json() -> None:
    assert CellReader().any_text({"法条": [1, "二"]}) == '{"法条": [1, "二"]}'
