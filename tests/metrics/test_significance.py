"""Intervals, paired tests and Holm's correction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dmnrag.errors import ConfigError, DataError
from dmnrag.metrics import Comparison, Interval, bootstrap_mean, holm, paired_difference

VALUES = st.lists(st.floats(-10, 10), min_size=2, max_size=30)


def test_the_same_values_have_an_interval_of_no_width() -> None:
    interval = bootstrap_mean([0.5, 0.5, 0.5])
    assert interval == Interval(0.5, 0.5, 0.5, 3)


def test_the_interval_is_near_the_normal_one_for_many_values() -> None:
    values = np.random.default_rng(1).normal(3, 2, size=400)
    interval = bootstrap_mean(values.tolist())
    half = 1.96 * values.std() / 20  # 1.96 * standard deviation / sqrt(400)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.03)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.03)


def test_two_clusters_give_their_three_possible_means() -> None:
    # clusters x = (1, 1, 1), y = (0): draws xx 3/3, xy 3/4, yy 0/1, chances 1/4, 1/2, 1/4
    interval = bootstrap_mean([1, 1, 1, 0], clusters=["x", "x", "x", "y"], confidence=0.95)
    assert interval == Interval(0.75, 0.0, 1.0, 4)
    inner = bootstrap_mean([1, 1, 1, 0], clusters=["x", "x", "x", "y"], confidence=0.4)
    assert (inner.low, inner.high) == (0.75, 0.75)


def test_repeating_each_value_within_its_cluster_does_not_narrow_the_interval() -> None:
    values = np.random.default_rng(2).random(50).tolist()
    names = [str(i) for i in range(50)]
    once = bootstrap_mean(values)
    four_times = bootstrap_mean(values * 4, clusters=names * 4)
    assert (once.low, once.high) == pytest.approx((four_times.low, four_times.high))


def test_more_resamples_than_fit_in_a_block_are_all_done(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).random(30).tolist()
    whole = bootstrap_mean(values), paired_difference(values, values[::-1])
    monkeypatch.setattr("dmnrag.metrics.significance._BLOCK_ELEMENTS", 1000)
    assert (bootstrap_mean(values), paired_difference(values, values[::-1])) == whole


def test_a_single_value_or_cluster_has_no_interval() -> None:
    assert bootstrap_mean([0.3]) == Interval(0.3, None, None, 1)
    assert bootstrap_mean([0.25, 0.75], clusters=["x", "x"]) == Interval(0.5, None, None, 2)
    assert paired_difference([1.0], [0.5]) == Comparison(0.5, None, None, 1.0, 1)


def test_the_seed_decides_the_interval() -> None:
    values = np.random.default_rng(4).random(40).tolist()
    assert bootstrap_mean(values, seed=7) == bootstrap_mean(values, seed=7)
    assert bootstrap_mean(values, seed=7) != bootstrap_mean(values, seed=8)


def test_no_difference_gives_p_of_one() -> None:
    assert paired_difference([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]) == Comparison(0.0, 0.0, 0.0, 1.0, 3)


def test_permutation_p_by_hand() -> None:
    # differences 1, 1, 1: only +++ and --- of 8 flips are as far from 0: p near 2/8
    comparison = paired_difference([1, 1, 1], [0, 0, 0], resamples=20_000)
    assert comparison.p == pytest.approx(2 / 8, abs=0.015)
    # in one cluster of two and one of one: sums 2 and 1; ++ and -- of 4: p near 2/4
    clustered = paired_difference([1, 1, 1], [0, 0, 0], clusters=["x", "x", "y"], resamples=20_000)
    assert clustered.p == pytest.approx(2 / 4, abs=0.02)


def test_permutation_p_agrees_with_scipy() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random(10), rng.random(10) - 0.15
    exact = stats.permutation_test((a, b), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=5000)
    ours = paired_difference(a.tolist(), b.tolist(), resamples=20_000)
    assert ours.p == pytest.approx(exact.pvalue, abs=0.015)


def test_the_smallest_p_is_one_over_resamples_plus_one() -> None:
    comparison = paired_difference([1.0] * 60, [0.0] * 60, resamples=999)
    assert comparison.p == 1 / 1000


@given(VALUES)
def test_swapping_sides_turns_the_difference_around(values: list[float]) -> None:
    other = values[::-1]
    one, two = paired_difference(values, other, resamples=50), paired_difference(other, values, resamples=50)
    assert one.difference == pytest.approx(-two.difference)
    assert one.p == two.p


@given(VALUES, st.integers(0, 3))
def test_the_interval_lies_among_the_values(values: list[float], seed: int) -> None:
    interval = bootstrap_mean(values, resamples=50, seed=seed)
    assert interval.low is not None
    assert interval.high is not None
    assert min(values) - 1e-9 <= interval.low <= interval.high <= max(values) + 1e-9


@pytest.mark.parametrize("values", [[], [0.1, float("nan")], [float("inf")]])
def test_values_without_a_mean_are_refused(values: list[float]) -> None:
    with pytest.raises(DataError):
        bootstrap_mean(values)
    with pytest.raises(DataError):
        paired_difference(values, values)


def test_nan_is_named_with_its_place() -> None:
    with pytest.raises(DataError, match=r"value 1 \(from 0\) is nan, 2 of 3 are not finite"):
        bootstrap_mean([0.1, float("nan"), float("inf")])


def test_lists_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="2 values against 1"):
        paired_difference([1, 2], [1])
    with pytest.raises(DataError, match="1 cluster names for 2 values"):
        bootstrap_mean([1, 2], clusters=["x"])


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="resamples is 0"):
        bootstrap_mean([1], resamples=0)
    with pytest.raises(ConfigError, match="confidence is 95"):
        paired_difference([1], [1], confidence=95)


def test_holm_by_hand() -> None:
    # sorted .01 .03 .04 of 3: .01*3 = .03; .03*2 = .06; .04*1 = .04, raised to .06
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_refuses_what_is_no_probability() -> None:
    for p in (-0.1, 1.1, float("nan")):
        with pytest.raises(DataError, match="not between 0 and 1"):
            holm([0.5, p])


def coverage(trials: int, n_clusters: int, *, use_clusters: bool) -> float:
    """Share of trials whose 95 % interval holds the true mean 0; four values share a cluster's effect."""
    rng = np.random.default_rng(6)
    names = [str(i) for i in range(n_clusters) for _ in range(4)]
    held = 0
    for seed in range(trials):
        values = np.repeat(rng.normal(size=n_clusters), 4) + 0.5 * rng.normal(size=4 * n_clusters)
        interval = bootstrap_mean(values.tolist(), clusters=names if use_clusters else None, resamples=400, seed=seed)
        assert interval.low is not None
        assert interval.high is not None
        held += interval.low <= 0 <= interval.high
    return held / trials


def test_clustered_intervals_hold_the_true_mean_where_plain_ones_do_not() -> None:
    assert coverage(100, 40, use_clusters=True) >= 0.87  # .95 less 3.5 standard errors of .022
    assert coverage(100, 40, use_clusters=False) <= 0.85


@pytest.mark.slow
def test_coverage_is_near_its_promise() -> None:
    assert coverage(1500, 80, use_clusters=True) == pytest.approx(0.95, abs=0.02)


@pytest.mark.slow
def test_permutation_p_is_uniform_without_a_difference() -> None:
    rng = np.random.default_rng(7)
    p_values = []
    for seed in range(1500):
        differences = np.repeat(rng.normal(size=20), 2)
        names = [str(i // 2) for i in range(40)]
        p_values.append(paired_difference(differences.tolist(), [0.0] * 40, clusters=names, resamples=400, seed=seed).p)
    for level in (0.05, 0.2, 0.5):
        # standard error at .5 is .013
        assert np.mean(np.array(p_values) <= level) == pytest.approx(level, abs=0.04)
