"""How often one of two systems is preferred, from a value per question."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmnrag.experiments.reporting.table import Figure, Table
from dmnrag.experiments.statistics import Contrast, contrast, corrected


@dataclass(frozen=True, slots=True)
class Preference:
    """Of all questions: shares preferring either, and the net preference with its test."""

    names: tuple[str, str]
    first: float
    """Share of the questions with a positive value."""
    second: float
    net: Contrast
    """Mean of the values, from -1 to 1, against 0."""


def preference(names: tuple[str, str], values: Sequence[float], clusters: Sequence[str]) -> Preference:
    """The mean value with interval and test; 1 is for the first system, -1 for the second, 0 for neither."""
    found = contrast(names, "preference", (values, [0.0] * len(values)), clusters)
    assert found is not None  # there is a value
    n = len(values)
    return Preference(names, sum(v > 0 for v in values) / n, sum(v < 0 for v in values) / n, found)


def corrected_together(found: Sequence[Preference]) -> list[Preference]:
    """The same with p corrected for their number (Holm)."""
    contrasts = corrected([p.net for p in found])
    return [replace(p, net=net) for p, net in zip(found, contrasts, strict=True)]


def preference_row(asked: str, found: Preference, more: Sequence[str]) -> tuple[str | Figure, ...]:
    """The row of `preferences_table`."""
    net = found.net
    said = {"higher": f"{found.names[0]} preferred", "lower": f"{found.names[1]} preferred"}
    low, high = (None if b is None else b * 100 for b in (net.low, net.high))
    figure = Figure(net.difference * 100, low, high, decimals=1, signed=True)
    verdict = said.get(net.verdict, "no preference shown")
    shares = (Figure(found.first * 100, decimals=1), Figure(found.second * 100, decimals=1))
    return (
        asked,
        str(net.n),
        *shares,
        figure,
        Figure(net.p if net.p_holm is None else net.p_holm, decimals=4),
        verdict,
        *more,
    )


def preferences_table(
    name: str, title: str, names: tuple[str, str], rows: Sequence[tuple[str | Figure, ...]], more: Sequence[str]
) -> Table:
    """A row per question asked; `more` are further columns."""
    columns = ["asked", "n", f"% for {names[0]}", f"% for {names[1]}", "net", "p (Holm)", "verdict", *more]
    note = "Net: share for the first minus share for the second, in points, with its 95 % bootstrap interval."
    return Table(name, title, tuple((column,) for column in columns), tuple(rows), (note,))
