import json
from pathlib import Path

import numpy as np
import pytest
from dpr_tiny import instance, random_instances

from dmnrag.data.exchange import read_dpr_json
from dmnrag.errors import DataError
from dmnrag.training.dev import DevScores
from dmnrag.training.doctor import (
    LossWatch,
    TrainingError,
    check_instances,
    check_leakage,
    check_losses,
    check_result,
    check_vectors,
    mean_cosine,
)
from dmnrag.training.settings import DprSettings


def test_a_healthy_set_has_no_warning() -> None:
    assert check_instances(random_instances(10), DprSettings()) == []


def test_empty_hard_negatives_everywhere_are_refused_with_the_cure() -> None:
    rows = [instance("a?", ["a"], ["b"]), instance("b?", ["b"], ["a"])]
    with pytest.raises(DataError, match=r"'hard_negative_ctxs' is empty for all 2 questions.*set hard_negatives to 0"):
        check_instances(rows, DprSettings())
    assert check_instances(rows, DprSettings(hard_negatives=0)) == []


def test_some_empty_lists_are_warned_of() -> None:
    rows = [*random_instances(8), instance("a?", ["a"], ["b"]), instance("b?", ["b"], ["a"])]
    [warning] = check_instances(rows, DprSettings())
    assert "empty for 2 of 10" in warning


def test_a_single_question_is_refused() -> None:
    with pytest.raises(DataError, match="at least 2"):
        check_instances(random_instances(1), DprSettings())


def test_one_gold_for_all_is_refused() -> None:
    rows = [instance("a?", ["x"], ["n"], ["h"]), instance("b?", ["x"], ["n"], ["h"])]
    with pytest.raises(DataError, match="same gold"):
        check_instances(rows, DprSettings())


def test_a_text_where_a_list_belongs_is_refused_when_the_file_is_read(tmp_path: Path) -> None:
    row = random_instances(1)[0].to_dict() | {"hard_negative_ctxs": "a text"}
    (tmp_path / "set.json").write_text(json.dumps([row]), encoding="utf-8")
    with pytest.raises(DataError, match="a list of passages is needed"):
        list(read_dpr_json(tmp_path / "set.json"))


def test_questions_and_answers_of_the_test_split_are_refused() -> None:
    rows = [instance("高血压怎么办？", ["a"], ["b"]), instance("b?", ["b"], [], ["多休息。"])]
    check_leakage(rows, ["别的问题"], ["别的回答"])
    with pytest.raises(DataError, match="1 questions and 0 passages"):
        check_leakage(rows, ["高血压怎么办"], [])
    with pytest.raises(DataError, match="0 questions and 1 passages"):
        check_leakage(rows, [], ["多休息"])
    joint = [instance("a?", ["内科,心血管内科\n多休息。"], ["b"])]
    with pytest.raises(DataError, match="0 questions and 1 passages"):
        check_leakage(joint, [], ["多休息"])
    check_leakage(rows, [], ["……"])  # an answer of marks alone says nothing


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_the_run(loss: float) -> None:
    with pytest.raises(TrainingError, match="lower the learning rate"):
        LossWatch().check(loss, 3)


def test_a_loss_of_zero_for_several_steps_stops_the_run() -> None:
    watch = LossWatch()
    for step in range(4):
        watch.check(0.0, step)
    watch.check(0.5, 4)  # one that is not 0 in between starts the count anew
    for step in range(4):
        watch.check(0.0, step)
    with pytest.raises(TrainingError, match="too easy"):
        watch.check(0.0, 9)


def test_a_flat_loss_is_warned_of() -> None:
    assert "did not fall" in check_losses([3.0] * 20)[0]
    assert check_losses(list(np.linspace(3, 1, 20))) == []
    assert check_losses([3.0] * 3) == []


def test_mean_cosine_of_three_vectors_by_hand() -> None:
    # Pairs: (x, x) 1, (x, y) 0, (x, y) 0: mean 1/3. Lengths do not count.
    vectors = np.array([[1, 0], [5, 0], [0, 2]], np.float32)
    assert mean_cosine(vectors) == pytest.approx(1 / 3)
    assert check_vectors(vectors, 1) == pytest.approx(1 / 3)


def test_collapsed_and_broken_vectors_stop_the_run() -> None:
    same = np.ones((10, 4), np.float32)
    with pytest.raises(TrainingError, match="collapsed"):
        check_vectors(same, 7)
    same[3, 2] = np.nan
    with pytest.raises(TrainingError, match="not finite"):
        check_vectors(same, 7)


def test_no_gain_over_the_untrained_encoder_or_bm25_is_warned_of() -> None:
    low, middle, high = (DevScores(x, x, x) for x in (0.2, 0.3, 0.4))
    assert check_result(high, middle, low) == []
    assert "not better than the untrained" in check_result(low, middle, low)[0]
    assert "less than BM25" in check_result(middle, low, high)[0]


def test_a_gain_inside_the_noise_is_called_that() -> None:
    before = DevScores(0.3, 0.3, 0.45, (1.0, 0.5, 0.0, 0.3) * 10)
    everywhere = DevScores(0.3, 0.3, 0.55, tuple(x + 0.1 for x in before.reciprocal_ranks))
    one_of_forty = DevScores(0.3, 0.3, 0.455, (*before.reciprocal_ranks[:-1], 0.5))
    assert check_result(everywhere, before, before) == []
    (warning,) = check_result(one_of_forty, before, before)
    assert "inside the noise" in warning
    assert "n = 40" in warning
