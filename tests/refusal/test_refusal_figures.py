"""Area, risk, coverage and thresholds by hand."""

import numpy as np
import pytest

from dmnrag.errors import DataError
from dmnrag.refusal.figures import (
    area_under_risk_coverage,
    area_under_roc,
    choose_threshold,
    figures_of,
    interval,
    risk_at_coverages,
)
from dmnrag.refusal.logistic import fit_logistic

SCORES = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
ENOUGH = np.array([True, True, False, True, False, False])


def test_area_counts_ordered_pairs() -> None:
    # 8 of 9 pairs in order: only .6 stands below .7.
    assert area_under_roc(SCORES, ENOUGH) == pytest.approx(8 / 9)
    assert area_under_roc(np.ones(6), ENOUGH) == 0.5
    assert np.isnan(area_under_roc(SCORES, np.ones(6, bool)))


def test_risk_grows_along_the_ranking() -> None:
    # Unfounded among the first 1..6: 0 0 1 1 2 3.
    expected = [0, 0, 1 / 3, 1 / 4, 2 / 5, 3 / 6]
    assert risk_at_coverages(SCORES, ENOUGH) == pytest.approx(expected)
    assert area_under_risk_coverage(SCORES, ENOUGH) == pytest.approx(np.mean(expected))


def test_a_tie_has_no_order() -> None:
    scores = np.array([0.5, 0.5, 0.1])
    assert risk_at_coverages(scores, np.array([True, False, True])) == pytest.approx([1 / 2, 1 / 2, 1 / 3])
    assert risk_at_coverages(scores, np.array([False, True, True])) == pytest.approx([1 / 2, 1 / 2, 1 / 3])


def test_balanced_threshold_keeps_and_refuses_most() -> None:
    # At .6: 3 of 3 kept, 2 of 3 refused, sum 1.667; at .8: 2 of 3 kept, 3 of 3 refused, as good and higher.
    assert choose_threshold(SCORES, ENOUGH) == 0.6


def test_target_risk_takes_the_largest_coverage() -> None:
    # Risks from .4 upwards: 3/6, 2/5, 1/4, 1/3, 0, 0.
    assert choose_threshold(SCORES, ENOUGH, 0.25) == 0.6
    assert choose_threshold(SCORES, ENOUGH, 0.1) == 0.8
    assert choose_threshold(SCORES, ENOUGH, 1.0) == 0.4


def test_unreachable_risk_says_what_is_reachable() -> None:
    with pytest.raises(DataError, match=r"the lowest that one reaches is 0\.500"):
        choose_threshold(np.ones(4), np.array([True, False, True, False]), 0.2)


def test_figures_of_a_threshold() -> None:
    found = figures_of(SCORES, ENOUGH, SCORES >= 0.65, list(range(6)))
    assert (found.n, found.n_enough) == (6, 3)
    assert found.risk is not None
    assert found.kept is not None
    assert found.refused is not None
    assert found.coverage.value == pytest.approx(3 / 6)
    assert found.risk.value == pytest.approx(1 / 3)
    assert found.kept.value == pytest.approx(2 / 3)
    assert found.refused.value == pytest.approx(2 / 3)
    assert found.coverage.low < 0.5 < found.coverage.high


def test_nothing_answered_has_no_risk() -> None:
    found = figures_of(SCORES, ENOUGH, np.zeros(6, bool), list(range(6)))
    assert found.risk is None
    assert found.coverage.value == 0


def test_interval_resamples_whole_groups() -> None:
    rows = np.array([[0.0], [1.0]] * 20)

    def mean(chosen: np.ndarray) -> float:
        return float(chosen.mean())

    together = interval(rows, [i // 2 for i in range(40)], mean)
    apart = interval(rows, list(range(40)), mean)
    assert together is not None
    assert apart is not None
    assert (together.low, together.high) == (0.5, 0.5)  # each group holds one of either
    assert apart.low < 0.5 < apart.high


def test_logistic_probabilities_match_frequencies() -> None:
    # One binary feature: 30 of 40 true where it is 1, 10 of 40 where it is 0; a constant feature beside it.
    features = np.stack([np.repeat([1.0, 0.0], 40), np.full(80, 7.0)], axis=1)
    truth = np.concatenate([np.arange(40) < 30, np.arange(40) < 10])
    fitted = fit_logistic(features, truth)
    found = fitted.probabilities(np.array([[1.0, 7.0], [0.0, 7.0]]))
    assert found == pytest.approx([0.75, 0.25], abs=0.02)  # drawn a little towards .5 by the penalty
    assert fitted.weights[1] == 0
    assert fitted.probabilities(features[:1]).tolist() == fitted.probabilities(features)[:1].tolist()


def test_logistic_optimum_has_no_gradient() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 3))
    truth = features @ [1.0, -2.0, 0.0] + rng.normal(size=200) > 0
    fitted = fit_logistic(features, truth)
    errors = fitted.probabilities(features) - truth
    standard = (features - fitted.means) / fitted.scales
    assert standard.T @ errors + fitted.weights == pytest.approx(np.zeros(3), abs=1e-2)
    assert errors.sum() == pytest.approx(0, abs=1e-2)
