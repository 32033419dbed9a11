"""How sure a mean or a difference of means is: cluster bootstrap, paired permutation test, Holm's correction.

Values of one cluster (near-identical posts, or all questions of one person) are not independent, so
clusters are drawn, not values. Without clusters each value is its own.

Sources: Efron & Tibshirani 1993 (percentile bootstrap); Koehn, "Statistical significance tests for machine
translation evaluation", 2004 (bootstrap over test items, paired); Phipson & Smyth 2010 (the + 1 in the
p-value, which is never 0 then); Holm, "A simple sequentially rejective multiple test procedure", 1979.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmnrag.errors import ConfigError, DataError

_Floats = npt.NDArray[np.float64]

_BLOCK_ELEMENTS = 2_000_000
"""Random numbers made at once: 16 MB, whatever the number of values."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its bootstrap interval."""

    mean: float
    low: float | None
    """None where there is a single cluster: its spread is unknown, not zero."""
    high: float | None
    n: int
    """Number of values."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Mean of a minus mean of b over the same items."""

    difference: float
    low: float | None
    """None where there is a single cluster."""
    high: float | None
    p: float
    """Two-sided, of the paired permutation test."""
    n: int
    """Number of pairs."""


def bootstrap_mean(
    values: Sequence[float],
    *,
    clusters: Sequence[str] | None = None,
    resamples: int = 2000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """Mean of the values with a percentile bootstrap interval.

    Each resample draws as many clusters as there are, with replacement, and takes the sum of their values
    over the number of their values. The same seed gives the same interval. With few clusters (below about
    20) percentile intervals are too narrow.

    Raises:
        DataError: no values, NaN or infinity among them, or another number of clusters than of values.
        ConfigError: `resamples` below 1, or `confidence` not between 0 and 1.
    """
    _check_settings(resamples, confidence)
    array = _checked(values)
    sums, sizes = _by_cluster(array, clusters)
    low, high = _bootstrap_interval(sums, sizes, resamples, seed, confidence)
    return Interval(float(array.mean()), low, high, len(array))


def paired_difference(
    a: Sequence[float],
    b: Sequence[float],
    *,
    clusters: Sequence[str] | None = None,
    resamples: int = 2000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Comparison:
    """Whether a is better than b on the same items.

    The interval is the bootstrap interval of mean(a - b). p is the share of random sign flips, one sign for
    a whole cluster, whose mean is at least as far from 0: (1 + hits) / (1 + resamples). So p is at least
    1 / (1 + resamples), and 1 with one cluster or without any difference.

    Raises:
        DataError: as `bootstrap_mean`, or a and b differ in length.
        ConfigError: as `bootstrap_mean`.
    """
    _check_settings(resamples, confidence)
    first, second = _checked(a), _checked(b)
    if len(first) != len(second):
        raise DataError(f"{len(first)} values against {len(second)}: a paired comparison needs the same items")
    differences = first - second
    sums, sizes = _by_cluster(differences, clusters)
    low, high = _bootstrap_interval(sums, sizes, resamples, seed, confidence)
    p = _permutation_p(sums, resamples, seed)
    return Comparison(float(differences.mean()), low, high, p, len(differences))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number, in the given order (Holm 1979).

    The i-th smallest of m (i from 1) becomes the largest of its own and the former p * (m - i + 1), at most
    1. Rejecting those below alpha keeps the chance of any false rejection below alpha.

    Raises:
        DataError: a value that is not between 0 and 1.
    """
    for p in p_values:
        if not 0 <= p <= 1:
            raise DataError(f"p-value {p!r} is not between 0 and 1")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, position in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[position]))
        adjusted[position] = largest
    return adjusted


def _check_settings(resamples: int, confidence: float) -> None:
    if resamples < 1:
        raise ConfigError(f"resamples is {resamples}: at least 1 is needed, 2000 is usual")
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence is {confidence}: allowed is between 0 and 1, such as 0.95")


def _checked(values: Sequence[float]) -> _Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise DataError(f"a mean needs a list of at least one value, got shape {array.shape}")
    unusable = np.flatnonzero(~np.isfinite(array))
    if len(unusable):
        raise DataError(
            f"value {unusable[0]} (from 0) is {array[unusable[0]]}, {len(unusable)} of {len(array)} are not "
            "finite; score these items or leave them out before"
        )
    return array


def _by_cluster(array: _Floats, clusters: Sequence[str] | None) -> tuple[_Floats, _Floats]:
    """Sum and number of the values of each cluster, (n_clusters,) each."""
    if clusters is None:
        return array, np.ones_like(array)
    if len(clusters) != len(array):
        raise DataError(f"{len(clusters)} cluster names for {len(array)} values: one name each is needed")
    number_of: dict[str, int] = {}
    numbers = [number_of.setdefault(name, len(number_of)) for name in clusters]
    sums: _Floats = np.bincount(numbers, weights=array).astype(np.float64)
    return sums, np.bincount(numbers).astype(np.float64)


def _bootstrap_interval(
    sums: _Floats, sizes: _Floats, resamples: int, seed: int, confidence: float
) -> tuple[float | None, float | None]:
    n_clusters = len(sums)
    if n_clusters == 1:
        return None, None
    rng = np.random.default_rng(seed)
    means = []
    for rows in _blocks(resamples, n_clusters):
        drawn = rng.integers(n_clusters, size=(rows, n_clusters))  # (rows, n_clusters)
        means.append(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), (tail, 1 - tail))
    return float(low), float(high)


def _permutation_p(sums: _Floats, resamples: int, seed: int) -> float:
    # Rounding may put a flip that equals the observed sum just below it.
    bound = abs(float(sums.sum())) - 1e-9 * float(np.abs(sums).sum())
    rng = np.random.default_rng(seed)
    hits = 0
    for rows in _blocks(resamples, len(sums)):
        flips = rng.integers(2, size=(rows, len(sums)), dtype=np.int8) * 2.0 - 1  # (rows, n_clusters)
        hits += int((np.abs(flips @ sums) >= bound).sum())
    return (1 + hits) / (1 + resamples)


def _blocks(resamples: int, n_clusters: int) -> Iterator[int]:
    """Numbers of resamples to do at once."""
    rows = max(1, _BLOCK_ELEMENTS // n_clusters)
    for start in range(0, resamples, rows):
        yield min(rows, resamples - start)
