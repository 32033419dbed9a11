import numpy as np
import pytest
from dpr_tiny import instance, random_instances

from dmnrag.data.comparable import comparable
from dmnrag.data.exchange import DprInstance
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.text import SegmenterSettings
from dmnrag.training.dev import DevScores, DevSet, score_bm25, score_rankings, score_vectors, split_dev
from dmnrag.training.settings import DprSettings


def dev_of(n_questions: int = 2) -> DevSet:
    golds = (frozenset({3}), frozenset({0, 4}))
    return DevSet(("q1", "q2")[:n_questions], golds[:n_questions], ("a", "b", "c", "d", "e"))


def test_scores_of_two_rankings_by_hand() -> None:
    # q1: its one gold at rank 2. q2: of two golds one within 3 (rank 1), the other at rank 4.
    scores = score_rankings(dev_of(), [[1, 3, 2], [0, 1, 2, 4]])
    assert scores.recall_3 == (1 + 1 / 2) / 2
    assert scores.recall_10 == (1 + 1) / 2
    assert scores.mrr_10 == (1 / 2 + 1) / 2


def test_a_gold_that_is_not_found_scores_zero() -> None:
    assert score_rankings(dev_of(1), [[1, 2]]) == DevScores(0.0, 0.0, 0.0)


def test_vectors_are_ranked_by_dot_product_and_a_tie_does_not_favour_the_gold() -> None:
    dev = DevSet(("q",), (frozenset({2}),), ("a", "b", "gold"))
    pool = np.array([[1, 0], [0, 1], [1, 0]], np.float32)
    scores = score_vectors(dev, np.array([[1, 0]], np.float32), pool)
    assert scores.mrr_10 == 1 / 2  # "a" has the same score and stands first


def test_bm25_is_measured_on_the_same_pool() -> None:
    dev = DevSet(("高血压吃什么",), (frozenset({1}),), ("骨折要休息", "高血压少吃盐", "发烧多喝水"))
    assert score_bm25(dev, SegmenterSettings(), Bm25Settings()) == DevScores(1.0, 1.0, 1.0)


def test_the_slice_shares_no_answer_with_what_is_trained_on() -> None:
    train, dev = split_dev(random_instances(60), DprSettings(dev_questions=10))
    held = {comparable(dev.pool[place]) for golds in dev.golds for place in golds}
    read = {
        comparable(context.text)
        for row in train
        for context in (*row.positive_ctxs, *row.negative_ctxs, *row.hard_negative_ctxs)
    }
    assert len(dev.questions) == 10
    assert len(train) == 50
    assert not held & read
    assert len(dev.pool) == 60


def test_reposts_stay_on_one_side() -> None:
    text = "高血压头痛吃药休息怎么办劳动合同abcdefgh"
    rows = random_instances(40) + [instance(f"{text}{i}", [f"answer {i} {'abcdefgh'[i] * 9}"]) for i in range(4)]
    for seed in range(8):
        train, _ = split_dev(rows, DprSettings(dev_questions=8, seed=seed))
        assert sum(row.question.startswith(text) for row in train) in (0, 4)


def test_at_most_a_fifth_is_held_out_and_none_when_none_is_wanted() -> None:
    rows = random_instances(20)
    assert len(split_dev(rows, DprSettings(dev_questions=300))[1].questions) == 4
    train, dev = split_dev(rows, DprSettings(dev_questions=0))
    assert (train, dev) == (rows, DevSet((), (), ()))


def test_the_pool_is_cut_but_keeps_the_slices_own_answers() -> None:
    _, dev = split_dev(random_instances(60), DprSettings(dev_questions=10, dev_pool=15))
    assert len(dev.pool) == 15
    assert {place for golds in dev.golds for place in golds} == set(range(5, 15))


def test_the_slice_depends_on_the_seed_only() -> None:
    rows = random_instances(60)
    first, again, other = (split_dev(rows, DprSettings(dev_questions=10, seed=seed))[1] for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_question_whose_only_positive_is_a_dev_answer_is_not_trained_on() -> None:
    rows: list[DprInstance] = random_instances(30)
    shared = [instance(f"问题{i}", ["同一个答案"]) for i in range(2)]
    for seed in range(6):
        train, dev = split_dev(rows + shared, DprSettings(dev_questions=6, seed=seed))
        if any("同一个答案" in dev.pool[place] for golds in dev.golds for place in golds):
            assert not any("同一个答案" in row.positive_ctxs[0].text for row in train)
            break
    else:
        pytest.fail("no seed chose one of them")
