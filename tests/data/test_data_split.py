"""Splits: sizes, groups, repeatability, and no text of the test in training."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmnrag.data import find_leakage, split_documents
from dmnrag.errors import ConfigError, DataError
from dmnrag.types import Document, Example, Query


def documents_of(n: int) -> list[Document]:
    return [Document(f"d{i}", f"问题{i}", (f"回答{i}",), ("内科",)) for i in range(n)]


def test_no_test_split_by_default() -> None:
    split = split_documents(documents_of(5))
    assert (len(split.train), split.test) == (5, [])


def test_example_carries_question_answers_domain_and_group() -> None:
    documents = [Document("d0", "问", ("答", "答二"), ("内科",)), Document("d1", "甲", ("乙",))]
    split = split_documents(documents, 0.5, seed=1, groups=[7, 8])
    expected = {
        "d0": Example(Query("d0", "问", ("内科",)), ("答", "答二"), (), "7"),
        "d1": Example(Query("d1", "甲"), ("乙",), (), "8"),
    }
    assert [split.test[0]] == [expected[split.test[0].query.query_id]]


@given(
    st.lists(st.integers(0, 9), min_size=4, max_size=60),
    st.floats(0.05, 0.9),
    st.integers(0, 2**31),
    st.booleans(),
)
@settings(max_examples=80)
def test_groups_stay_whole_and_the_test_never_exceeds_its_size(
    groups: list[int], size: float, seed: int, repeated_answers: bool
) -> None:
    documents = [
        Document(f"d{i}", f"问题{i}", (f"回答{i % 7 if repeated_answers else i}",)) for i in range(len(groups))
    ]
    try:
        split = split_documents(documents, size, seed, groups=groups)
    except DataError:
        return  # everything in one group, or every answer of training in the test
    group_of = dict(zip((d.doc_id for d in documents), groups, strict=True))
    in_test = {e.query.query_id for e in split.test}
    in_train = {d.doc_id for d in split.train}
    assert in_test.isdisjoint(in_train)
    assert {group_of[i] for i in in_test}.isdisjoint({group_of[i] for i in in_train})
    assert len(in_test) <= round(size * len(documents))
    # Nothing is lost: the rest was taken out because it leaks, and is named.
    assert in_test | in_train | split.dropped.doc_ids == set(group_of)
    assert not find_leakage(split.train, split.test)


def test_size_is_met_exactly_without_groups() -> None:
    split = split_documents(documents_of(50), 0.2, seed=3)
    assert (len(split.train), len(split.test), bool(split.dropped)) == (40, 10, False)


def test_same_seed_same_split_and_other_seed_another() -> None:
    first, again, other = (split_documents(documents_of(50), 0.2, seed) for seed in (3, 3, 4))
    assert first == again
    assert first.test != other.test


def test_split_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from dmnrag.data import split_documents; from dmnrag.types import Document\n"
        "docs = [Document(f'd{i}', f'q{i}', (f'a{i}',)) for i in range(30)]\n"
        "import sys; sys.stdout.write(' '.join(e.query.query_id for e in split_documents(docs, .3, 5).test))"
    )
    outputs = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": h}, capture_output=True, check=True).stdout
        for h in ("1", "2")
    }
    assert len(outputs) == 1


def test_training_rows_with_a_test_answer_or_question_are_taken_out_and_counted() -> None:
    # One stock answer in 6 of 10 rows: those of the six that the test does not take must leave training.
    documents = [Document(f"d{i}", f"问题{i}", ("看医生。" if i < 6 else f"回答{i}",)) for i in range(10)]
    split = split_documents(documents, 0.3, seed=0)
    in_test = Counter(e.references[0] for e in split.test)["看医生。"]
    assert in_test > 0
    assert len(split.dropped.by_answer) == 6 - in_test
    assert split.dropped.by_question == ()
    assert len(split.train) == 10 - 3 - (6 - in_test)


def test_leak_of_a_question_is_found_in_other_punctuation() -> None:
    test = [Example(Query("t", "能吃吗？"), ("可以",))]
    by_question = find_leakage([Document("x", "能吃吗", ("不行",))], test)
    assert (by_question.by_question, by_question.by_answer) == (("x",), ())
    by_answer = find_leakage([Document("x", "甲", ("乙", "可以！"))], test)
    assert (by_answer.by_question, by_answer.by_answer) == ((), ("x",))


def test_group_larger_than_the_test_stays_in_training() -> None:
    split = split_documents(documents_of(10), 0.2, seed=0, groups=[0] * 8 + [1, 2])
    assert {e.query.query_id for e in split.test} == {"d8", "d9"}
    assert split.largest_group == 8


@pytest.mark.parametrize("size", [-0.1, 1.0, 20, float("nan")])
def test_size_out_of_range_is_refused(size: float) -> None:
    with pytest.raises(ConfigError, match="test size"):
        split_documents(documents_of(5), size)


def test_groups_of_another_length_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 group numbers for 5"):
        split_documents(documents_of(5), 0.2, groups=[1, 2])


def test_split_that_leaves_one_side_empty_is_refused() -> None:
    with pytest.raises(DataError, match="leaves 5 for training and 0 for the test"):
        split_documents(documents_of(5), 0.2, groups=[0] * 5)
