"""Statistics of the reports: detectable differences by hand, families, and what they promise, by simulation."""

import random

import pytest

from dmnrag.experiments.statistics import (
    Contrast,
    contrast,
    corrected,
    detectable_difference,
    resamples_for,
    summarise,
)
from dmnrag.metrics import bootstrap_mean


def of(p: float, difference: float = 0.1) -> Contrast:
    return Contrast("a", "b", "ROUGE-1 (word)", difference, 0.0, 0.2, p, 100)


def test_detectable_difference_is_2_8_standard_errors() -> None:
    # Differences 1, 3, 5, 7: mean 4, squares 9 + 1 + 1 + 9 = 20, sd = sqrt(20 / 3), error = sd / sqrt(4) = 1.29099.
    # Normal quantiles 1.95996 + .84162 = 2.80159; times 1.29099 = 3.61683.
    assert detectable_difference([1, 3, 5, 7], ["1", "2", "3", "4"]) == pytest.approx(3.61683, abs=1e-4)


def test_detectable_difference_counts_groups_not_values() -> None:
    # Two groups of sums 4 and 12, mean 4: residuals -4 and 4, sqrt(2 / 1 * 32) / 4 = 2; times 2.80159.
    assert detectable_difference([1, 3, 5, 7], ["x", "x", "y", "y"]) == pytest.approx(5.60317, abs=1e-4)
    assert detectable_difference([1, 3], ["x", "x"]) is None
    assert detectable_difference([0, 0], ["x", "y"]) == 0


def test_values_repeated_within_groups_do_not_make_the_test_more_sensitive() -> None:
    once = detectable_difference([1, 3, 5, 7], list("abcd"))
    twice = detectable_difference([1, 1, 3, 3, 5, 5, 7, 7], list("aabbccdd"))
    assert twice == pytest.approx(once)


def test_only_a_corrected_difference_is_called_one() -> None:
    assert of(0.001).verdict == "not shown"  # no family named
    family = corrected([of(0.01), of(0.02, -0.1), of(0.04)])
    # Holm: .01 * 3 = .03; max(.03, .02 * 2) = .04; max(.04, .04) = .04.
    assert [c.p_holm for c in family] == pytest.approx([0.03, 0.04, 0.04])
    assert [c.verdict for c in family] == ["higher", "lower", "higher"]
    assert [c.verdict for c in corrected([of(0.02), of(0.03), of(0.04)])] == ["not shown"] * 3  # .06, .06, .06


def test_a_family_of_many_tests_can_still_show_something() -> None:
    for n_tests in (1, 40, 96, 500):
        assert n_tests / (1 + resamples_for(n_tests)) <= 0.025


def test_questions_without_a_value_in_both_are_left_out_of_the_pair() -> None:
    found = contrast(("a", "b"), "m", ([1.0, None, 3.0], [0.0, 5.0, 1.0]), ["1", "2", "3"])
    assert found is not None
    assert (found.difference, found.n) == (1.5, 2)
    assert contrast(("a", "b"), "m", ([1.0, None], [None, 1.0]), ["1", "2"]) is None


def test_summarise_gives_the_detectable_difference_and_no_family() -> None:
    found = summarise({"a": {"m": [1.0, 3.0]}, "b": {"m": [0.0, 0.0]}}, ["1", "2"], [("a", "b")])
    (only,) = found.comparisons
    # Differences 1 and 3: sd sqrt(2), error 1, times 2.80159.
    assert only.detectable == pytest.approx(2.80159, abs=1e-4)
    assert only.p_holm is None


# Simulated studies: values in groups of one to three questions, with a shared part in each group, skewed as ROUGE is.

N_GROUPS = 40


def study(seed: int, effect: float = 0.0) -> tuple[list[float], list[float], list[str]]:
    """Two systems on the same questions; the second is better by `effect`."""
    rng = random.Random(seed)
    first, second, clusters = [], [], []
    for group in range(N_GROUPS):
        shared = rng.betavariate(2, 5)
        for _ in range(rng.randint(1, 3)):
            hard = shared + rng.gauss(0, 0.05)
            first.append(hard + rng.gauss(0, 0.1))
            second.append(hard + rng.gauss(0, 0.1) + effect)
            clusters.append(str(group))
    return first, second, clusters


def test_intervals_hold_the_true_mean_in_about_95_of_100_studies() -> None:
    n_studies, true_mean = 600, 2 / 7  # of betavariate(2, 5)
    held = 0
    for seed in range(n_studies):
        first, _, clusters = study(seed)
        found = bootstrap_mean(first, clusters=clusters, resamples=400, seed=seed)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= true_mean <= found.high
    # Percentile intervals of 40 groups are a little narrow; the error of the simulation is .01.
    assert 0.91 <= held / n_studies <= 0.98


def test_intervals_without_groups_would_be_too_narrow() -> None:
    held = 0
    for seed in range(300):
        first, _, _ = study(seed)
        found = bootstrap_mean(first, resamples=300, seed=seed)
        held += (found.low or 0) <= 2 / 7 <= (found.high or 0)
    assert held / 300 < 0.91


def test_two_equal_systems_are_called_different_in_at_most_5_of_100_studies() -> None:
    n_studies = 1000
    called = 0
    for seed in range(n_studies):
        first, second, clusters = study(seed)
        found = contrast(("a", "b"), "m", (first, second), clusters, seed=seed, resamples=300)
        assert found is not None
        called += corrected([found])[0].verdict != "not shown"
    assert called / n_studies <= 0.05 + 2 * (0.05 * 0.95 / n_studies) ** 0.5  # twice the simulation's own error


def test_five_equal_methods_give_a_false_difference_in_at_most_5_of_100_tables() -> None:
    n_tables = 200
    wrong = 0
    for table in range(n_tables):
        family = []
        for method in range(5):
            first, second, clusters = study(table * 5 + method)
            found = contrast((str(method), "baseline"), "m", (first, second), clusters, resamples=300)
            assert found is not None
            family.append(found)
        wrong += any(c.verdict != "not shown" for c in corrected(family))
    assert wrong / n_tables <= 0.05 + 2 * (0.05 * 0.95 / n_tables) ** 0.5


def test_the_detectable_difference_is_found_in_about_80_of_100_studies() -> None:
    sizes = []
    for seed in range(50):
        a, b, c = study(seed)
        sizes.append(detectable_difference([x - y for x, y in zip(a, b, strict=True)], c) or 0)
    effect = sum(sizes) / len(sizes)
    found = 0
    for seed in range(300):
        first, second, clusters = study(1000 + seed, effect)
        result = contrast(("a", "b"), "m", (second, first), clusters, seed=seed, resamples=300)
        assert result is not None
        found += result.p < 0.05
    assert 0.72 <= found / 300 <= 0.88
