"""Figures 2 to 5 of the paper: ROUGE-1 and ROUGE-L over temperature or top_k, a line per method with its interval.

Lines are told apart by marker, dash and grey value, so they can be read in print and without colour. All words are
English but the names of corpora and methods, which come from the spec; a name that the font cannot draw is
replaced by its number.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dmnrag._optional import require
from dmnrag.metrics import bootstrap_mean

_STYLES: tuple[tuple[str, str, str], ...] = (
    ("#000000", "o", "-"),
    ("#0072b2", "s", "--"),
    ("#d55e00", "^", "-."),
    ("#009e73", "D", ":"),
    ("#56b4e9", "v", "-"),
    ("#999999", "P", "--"),
    ("#e69f00", "X", "-."),
    ("#444444", "*", ":"),
)
"""Colour (Okabe and Ito 2008, told apart by colour-blind eyes), marker, dash."""

_PANEL_INCHES = (4.2, 3.2)
_DPI = 200
_BAND = 0.10
_POINTS = 100
_MOST_TICKS = 10
"""Up to so many values are named on the axis."""


@dataclass(frozen=True, slots=True)
class Line:
    """One method: a column of values per question at each value of the parameter."""

    name: str
    points: tuple[tuple[float, tuple[float | None, ...]], ...]
    """(value of the parameter, a value per question)."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One pair of axes."""

    title: str
    metric: str
    clusters: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class FigurePlan:
    """What a figure shows; a row of charts per corpus."""

    name: str
    """Of its files."""
    caption: str
    parameter: str
    charts: tuple[tuple[Chart, ...], ...]


@dataclass(frozen=True, slots=True)
class DrawnFigure:
    """A figure in both formats, and what it says as text."""

    name: str
    caption: str
    svg: bytes
    png: bytes
    description: str
    """For readers who cannot see it: each line's first and last value."""


def draw(plan: FigurePlan) -> DrawnFigure:
    """The figure as SVG (text stays text) and PNG.

    Raises:
        MissingDependencyError: the extra `report` is not installed.
    """
    matplotlib = require("matplotlib", "report")
    figure_module = require("matplotlib.figure", "report")
    rows, columns = len(plan.charts), max(map(len, plan.charts))
    settings = {"svg.fonttype": "none", "svg.hashsalt": "dmnrag", "font.family": "DejaVu Sans", "font.size": 9}
    with matplotlib.rc_context(settings):
        figure = figure_module.Figure(
            figsize=(_PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * rows + 0.6), layout="constrained"
        )
        axes = figure.subplots(rows, columns, squeeze=False)
        names = list(dict.fromkeys(line.name for charts in plan.charts for c in charts for line in c.lines))
        words: list[str] = []
        handles: dict[str, Any] = {}
        for row, charts in zip(axes, plan.charts, strict=True):
            for pane, chart in zip(row, charts, strict=False):
                words += _draw_chart(pane, chart, plan.parameter, names)
                handles |= dict(reversed(pair) for pair in zip(*pane.get_legend_handles_labels(), strict=True))
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=3, frameon=False, handlelength=3.5
        )
        svg, png = io.BytesIO(), io.BytesIO()
        # Without a date the same results give the same bytes.
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=_DPI, metadata={"Software": None})
    return DrawnFigure(plan.name, plan.caption, svg.getvalue(), png.getvalue(), " ".join(words))


def _draw_chart(pane: Any, chart: Chart, parameter: str, names: Sequence[str]) -> list[str]:
    """Draws the lines; a method has the same style in every chart. Returns what each line says."""
    words = []
    ticks: set[float] = set()
    for line in chart.lines:
        number = names.index(line.name)
        colour, marker, dash = _STYLES[number % len(_STYLES)]
        found = [(value, _mean(column, chart.clusters)) for value, column in line.points]
        kept = [(value, interval) for value, interval in found if interval is not None]
        if not kept:
            continue
        xs = [value for value, _ in kept]
        ticks |= set(xs)
        means = [interval.mean * _POINTS for _, interval in kept]
        lows = [(i.mean if i.low is None else i.low) * _POINTS for _, i in kept]
        highs = [(i.mean if i.high is None else i.high) * _POINTS for _, i in kept]
        pane.fill_between(xs, lows, highs, color=colour, alpha=_BAND, linewidth=0)
        pane.plot(
            xs, means, color=colour, marker=marker, linestyle=dash, markersize=4.5, linewidth=1.3,
            markeredgecolor="white", markeredgewidth=0.4, label=drawable(line.name, f"method {number + 1}"),
        )  # fmt: skip
        words.append(f"{chart.title}, {chart.metric}, {line.name}: " + _ends(xs, means))
    pane.set_title(f"{drawable(chart.title, 'corpus')}: {chart.metric}", fontsize=9)
    pane.set_xlabel(parameter)
    if len(ticks) <= _MOST_TICKS:
        pane.set_xticks(sorted(ticks))
    pane.set_ylabel("F1, points")
    pane.grid(visible=True, color="#dddddd", linewidth=0.5)
    for side in ("top", "right"):
        pane.spines[side].set_visible(False)
    return words


def drawable(text: str, instead: str) -> str:
    """The text where matplotlib's own font has every character, else `instead`: a box says nothing."""
    ft2font = require("matplotlib.ft2font", "report")
    manager = require("matplotlib.font_manager", "report")
    font = ft2font.FT2Font(manager.findfont("DejaVu Sans"))
    return text if all(font.get_char_index(ord(character)) for character in text) else instead


def _mean(column: Sequence[float | None], clusters: Sequence[str]) -> Any:
    kept = [(v, c) for v, c in zip(column, clusters, strict=True) if v is not None]
    return bootstrap_mean([v for v, _ in kept], clusters=[c for _, c in kept]) if kept else None


def _ends(xs: Sequence[float], means: Sequence[float]) -> str:
    if len(xs) == 1:
        return f"{means[0]:.2f} at {xs[0]:g}."
    return f"{means[0]:.2f} at {xs[0]:g}, {means[-1]:.2f} at {xs[-1]:g}."
