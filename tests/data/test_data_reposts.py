"""Re-posts: against an exact comparison of all pairs, and the guards against chaining."""

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmnrag.data import ColumnMapping, RepostCounts, read_documents, repost_groups
from dmnrag.data.comparable import comparable
from dmnrag.data.minhash import BigramSets, near_pairs
from dmnrag.data.reposts import MOST_ROWS, SHORTEST_ANSWER
from dmnrag.errors import ConfigError

LONG = "建议尽快去医院做一次全面的检查明确原因以后再决定治疗"


def bigrams(text: str) -> set[str]:
    return {text[i : i + 2] for i in range(len(text) - 1)}


def jaccard(a: str, b: str) -> float:
    left, right = bigrams(a), bigrams(b)
    return len(left & right) / max(1, len(left | right))


def test_equal_after_normalisation_is_a_repost() -> None:
    groups = repost_groups(["高血压，能吃党参吗？", "高血压能吃党参吗", "头痛怎么办"], ["甲", "乙", "丙"])
    assert groups == [0, 0, 1]


def test_jaccard_by_hand_decides_at_the_threshold() -> None:
    # abcdefghijk: 10 bigrams. With x for k: 9 common, 11 in the union: 9/11 = 0.818.
    sets = BigramSets(["abcdefghijk", "abcdefghijx", "a", ""])
    pairs = np.array([[0, 1], [0, 2], [2, 3]])
    np.testing.assert_allclose(sets.jaccard(pairs), [9 / 11, 0, 0])
    questions, answers = ["abcdefghijk", "abcdefghijx"], ["甲", "乙"]
    assert repost_groups(questions, answers, 0.8) == [0, 0]
    assert repost_groups(questions, answers, 0.82) == [0, 1]


def test_groups_chain_over_question_and_answer() -> None:
    # Rows 0 and 1 share the question, 1 and 2 a long answer.
    assert repost_groups(["甲甲甲", "甲甲甲", "乙乙乙", "丙丙丙"], ["子", LONG, LONG + "。", "丑"]) == [
        0,
        0,
        0,
        1,
    ]


def test_several_answers_a_row_link_by_any_of_them() -> None:
    assert repost_groups(["甲", "乙", "丙"], [("子", LONG), (LONG,), ()]) == [0, 0, 1]


def test_short_answers_link_nothing() -> None:
    short = LONG[: SHORTEST_ANSWER - 1]
    assert repost_groups(["甲", "乙"], [short, short]) == [0, 1]
    assert repost_groups(["甲", "乙"], [short + "断", short + "断"]) == [0, 0]


def test_stock_answer_of_many_rows_links_nothing() -> None:
    questions = [chr(0x4E00 + i) * 3 for i in range(MOST_ROWS + 1)]
    assert len(set(repost_groups(questions, [LONG] * len(questions)))) == len(questions)
    fewer = questions[:-1]
    assert set(repost_groups(fewer, [LONG] * len(fewer))) == {0}


@pytest.mark.parametrize("threshold", [0.3, 1.1, float("nan")])
def test_threshold_out_of_range_is_refused(threshold: float) -> None:
    with pytest.raises(ConfigError, match="threshold"):
        repost_groups(["a"], ["b"], threshold)


def test_no_rows_give_no_groups() -> None:
    assert repost_groups([], []) == []


@given(st.lists(st.text("abcd一二三四", max_size=12), max_size=12, unique=True))
@settings(max_examples=60)
def test_every_pair_found_is_near_and_jaccard_equals_the_plain_formula(texts: list[str]) -> None:
    for left, right in near_pairs(texts, 0.6).tolist():
        assert left < right
        assert jaccard(texts[left], texts[right]) >= 0.6


@pytest.mark.parametrize("threshold", [0.6, 0.7, 0.8, 1.0])
def test_nearly_all_pairs_of_a_full_comparison_are_found(threshold: float) -> None:
    generator = random.Random(3)
    alphabet = [chr(0x4E00 + i) for i in range(300)]
    texts = []
    for _ in range(60):
        base = generator.choices(alphabet, k=60)
        for changes in (0, 2, 4, 6):
            copy = list(base)
            for _ in range(changes):
                copy[generator.randrange(60)] = generator.choice(alphabet)
            texts.append("".join(copy))
    texts = list(dict.fromkeys(texts))
    expected = {p for p in combinations(range(len(texts)), 2) if jaccard(texts[p[0]], texts[p[1]]) >= threshold}
    found = {(a, b) for a, b in near_pairs(texts, threshold).tolist()}
    assert found <= expected
    # Banding may miss 1 % of the pairs that lie exactly at the threshold.
    assert len(found) >= 0.99 * len(expected)
    assert len(expected) > (60 if threshold < 1 else -1)


def test_real_forum_has_the_known_share_of_reposts_and_no_giant_group(shared: Path) -> None:
    path = shared / "data" / "medical_im_gb18030.csv"
    documents, _ = read_documents([path], ColumnMapping(("title", "ask"), ("answer",), ("department",)))
    groups = np.array(repost_groups([d.question for d in documents], [d.answers for d in documents]))
    sizes = np.bincount(groups)
    assert 300 < (sizes > 1).sum() < 420
    assert sizes.max() < 30
    order = np.random.default_rng(0).permutation(len(groups))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    # About 8 % by question alone; the near-identical answers add some.
    assert 0.07 < np.isin(groups[test], groups[train]).mean() < 0.12


@pytest.mark.parametrize(("text", "form"), [("ＡＢ c，１！", "abc1"), (" ？！ ", "？！"), ("高血压 吗？", "高血压吗")])
def test_texts_are_compared_by_letters_and_digits(text: str, form: str) -> None:
    assert comparable(text) == form


def test_counts_of_groups_leave_out_rows_that_stand_alone() -> None:
    # Groups of 2 and 3 among 6 rows: 5 rows in 2 groups.
    assert RepostCounts.of([0, 1, 0, 2, 1, 1]) == RepostCounts(groups=2, rows=5, largest=3)
    assert RepostCounts.of([0, 1, 2]) == RepostCounts(groups=0, rows=0, largest=1)
