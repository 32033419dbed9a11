"""Evaluations as tables for a terminal."""

from collections.abc import Sequence

from dmnrag.cli.render import table_text
from dmnrag.experiments.statistics import Contrast, Evaluation, Row


def evaluation_text(evaluation: Evaluation) -> str:
    """A table per set of systems that share metrics, then the paired comparisons."""
    parts = []
    remaining = list(evaluation.rows)
    while remaining:
        metrics = metrics_of(remaining, remaining[0].name)
        names = [n for n in dict.fromkeys(r.name for r in remaining) if metrics_of(remaining, n) == metrics]
        parts.append(rows_text(remaining, names, metrics))
        remaining = [r for r in remaining if r.name not in names]
    if evaluation.comparisons:
        parts.append(comparisons_text(evaluation.comparisons))
    return "\n\n".join(parts)


def metrics_of(rows: Sequence[Row], name: str) -> list[str]:
    """The metrics that a system has."""
    return [row.metric for row in rows if row.name == name]


def rows_text(rows: Sequence[Row], names: Sequence[str], metrics: Sequence[str]) -> str:
    """Systems down, metrics across, each with its interval."""
    cells = {(row.name, row.metric): row for row in rows}
    sizes = sorted({cells[n, m].n for n in names for m in metrics})
    table = [[name, *(_mean_text(cells[name, metric]) for metric in metrics)] for name in names]
    return table_text((f"n = {', '.join(map(str, sizes))}", *metrics), table)


def comparisons_text(comparisons: Sequence[Contrast]) -> str:
    """Paired differences; those inside the noise are called that."""
    rows = [
        (
            f"{c.a} - {c.b}",
            c.metric,
            f"{c.difference:+.4f} {_interval(c.low, c.high, '+.4f')}",
            f"{c.p:.4f}",
            "inside the noise" if c.low is None or c.high is None or c.low <= 0 <= c.high else "",
        )
        for c in comparisons
    ]
    return table_text(("paired difference", "metric", "mean [95 %]", "p", ""), rows)


def _mean_text(row: Row) -> str:
    return f"{row.mean:.3f} {_interval(row.low, row.high, '.3f')}"


def _interval(low: float | None, high: float | None, form: str) -> str:
    return "[no interval]" if low is None or high is None else f"[{low:{form}}, {high:{form}}]"
