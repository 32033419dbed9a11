"""Scores to probabilities."""

import numpy as np
import pytest

from dmnrag.domain.calibration import NOTHING, fit_calibration, probabilities, with_rival


def fit(scores: np.ndarray, has_label: np.ndarray, weights: np.ndarray, *, rivals: bool = True) -> np.ndarray:
    pairs = with_rival(scores).reshape(-1, 3), has_label.ravel(), np.repeat(weights, scores.shape[1])
    return fit_calibration(*pairs, rivals=rivals)


def test_rival_is_the_best_other_score() -> None:
    features = with_rival(np.array([[0.9, -0.2, 0.4]]))
    assert features.tolist() == [[[0.9, 0.4, 1.0], [-0.2, 0.9, 1.0], [0.4, 0.9, 1.0]]]


def test_equal_best_scores_are_each_others_rivals() -> None:
    assert with_rival(np.array([[0.5, 0.5]]))[0, :, 1].tolist() == [0.5, 0.5]


def test_a_single_label_has_no_rival() -> None:
    assert with_rival(np.array([[0.3]])).tolist() == [[[0.3, NOTHING, 1.0]]]


def test_probability_by_hand() -> None:
    # 2 * .5 - 1 * (-.5) + .5 = 2 and 2 * (-.5) - 1 * .5 + .5 = -1; sigmoid(2) = .8808, sigmoid(-1) = .2689
    found = probabilities(np.array([[0.5, -0.5]]), np.array([2.0, -1.0, 0.5]))
    assert found[0] == pytest.approx([0.8808, 0.2689], abs=1e-4)


def test_fit_finds_the_parameters_that_made_the_labels() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(20_000, 3))
    wanted = np.array([3.0, -2.0, 0.5])
    has_label = rng.random(scores.shape) < probabilities(scores, wanted)
    assert fit(scores, has_label, np.ones(len(scores))) == pytest.approx(wanted, abs=0.15)


def test_without_rivals_the_score_alone_counts() -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(20_000, 3))
    has_label = rng.random(scores.shape) < probabilities(scores, np.array([3.0, 0.0, -0.5]))
    parameters = fit(scores, has_label, np.ones(len(scores)), rivals=False)
    assert parameters[1] == 0
    assert parameters == pytest.approx([3.0, 0.0, -0.5], abs=0.15)


def test_huge_scores_do_not_overflow() -> None:
    found = probabilities(np.array([[1e4, -1e4]]), np.array([10.0, 0.0, 0.0]))
    assert found.tolist() == [[1.0, 0.0]]


def test_a_weight_counts_like_repeated_rows() -> None:
    scores = np.array([[0.9, -0.8], [-0.2, 0.1], [0.3, -0.4], [-0.7, 0.6]])
    has_label = np.array([[True, False], [True, False], [False, True], [False, True]])
    times = np.array([3, 1, 2, 1])
    weighed = fit(scores, has_label, times.astype(float))
    repeated = fit(np.repeat(scores, times, 0), np.repeat(has_label, times, 0), np.ones(7))
    # Not exactly equal: the smoothing counts rows.
    assert probabilities(scores, weighed) == pytest.approx(probabilities(scores, repeated), abs=0.1)


@pytest.mark.parametrize("truth", [True, False])
def test_perfectly_parted_scores_give_finite_parameters(truth: bool) -> None:
    scores = np.array([[1.0], [1.0], [1.0]])
    parameters = fit(scores, np.full((3, 1), truth), np.ones(3))
    assert np.isfinite(parameters).all()
    # Smoothed targets: (3 + 1) / (3 + 2) where all have the label, 1 / (3 + 2) where none has.
    assert probabilities(scores, parameters) == pytest.approx(np.full((3, 1), 0.8 if truth else 0.2), abs=0.01)
