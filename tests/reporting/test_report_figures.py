"""Figures 2 to 5: what is drawn, that it can be read without colour, and that no glyph is a box."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_builder import cell, write

from dmnrag.experiments.reporting.contents import Report
from dmnrag.experiments.reporting.figures import _STYLES, Chart, FigurePlan, Line, draw, drawable
from dmnrag.experiments.reporting.study import read_study
from dmnrag.experiments.reporting.sweeps import figure_plans
from dmnrag.types import GenerationSettings

PLAN = FigurePlan(
    "temperature-1",
    "caption",
    "temperature",
    (
        (
            Chart(
                "medical",
                "ROUGE-1",
                ("a", "b"),
                (
                    Line("no-Dmn", ((0.2, (0.1, 0.3)), (0.6, (0.2, 0.2)))),
                    Line("Dmn<&>", ((0.2, (0.5, None)), (0.6, (0.4, 0.6)))),
                ),
            ),
        ),
    ),
)


def test_means_in_points_are_described_for_readers_who_cannot_see() -> None:
    drawn = draw(PLAN)
    assert "medical, ROUGE-1, no-Dmn: 20.00 at 0.2, 20.00 at 0.6." in drawn.description
    assert "Dmn<&>: 50.00 at 0.2, 50.00 at 0.6." in drawn.description


def test_svg_is_well_formed_keeps_its_text_and_reaches_for_nothing() -> None:
    from xml.etree import ElementTree

    svg = draw(PLAN).svg
    ElementTree.fromstring(svg)
    text = svg.decode()
    for word in ("temperature", "F1, points", "no-Dmn", "Dmn&lt;&amp;&gt;"):
        assert f">{word}</text>" in text
    assert not re.findall(r'(?:href|src)="(?!#)[^"]*"', text)


def test_png_is_large_enough_for_print() -> None:
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(draw(PLAN).png))
    assert image.size[0] >= 800


def test_the_same_results_give_the_same_bytes() -> None:
    assert draw(PLAN) == draw(PLAN)


def test_lines_are_told_apart_without_colour() -> None:
    assert len({(marker, dash) for _, marker, dash in _STYLES}) == len(_STYLES)
    assert len({marker for _, marker, _ in _STYLES}) == len(_STYLES)


def test_a_method_has_the_same_style_in_every_chart() -> None:
    first = PLAN.charts[0][0]
    lacking = replace(first, title="legal", lines=first.lines[1:])
    text = draw(replace(PLAN, charts=((first,), (lacking,)))).svg.decode()
    # Dmn is drawn in the second style in both charts and once in the legend, no-Dmn in the first.
    assert text.count(f"stroke-dasharray: 4.81,2.08; stroke-dashoffset: 0; stroke: {_STYLES[1][0]}") == 3


def test_a_name_without_glyphs_is_replaced_by_its_number() -> None:
    assert drawable("Dmn", "method 1") == "Dmn"
    assert drawable("医疗", "method 1") == "method 1"
    chart = replace(PLAN.charts[0][0], title="医疗")
    assert "医疗" not in draw(replace(PLAN, charts=((chart,),))).svg.decode()


def test_every_sweep_of_the_paper_has_two_charts_a_corpus_and_a_line_a_method(paper_report: Report) -> None:
    for plan in paper_report.figures:
        assert [[chart.metric for chart in row] for row in plan.charts] == [["ROUGE-1", "ROUGE-L"]] * 2
        assert all(len(chart.lines) == 6 for row in plan.charts for chart in row)
    values = [value for value, _ in paper_report.figures[0].charts[0][0].lines[0].points]
    assert values == [0.2, 0.4, 0.6]


def test_an_incomplete_cell_leaves_a_gap_and_is_named(tmp_path: Path) -> None:
    cells = [
        cell(m, parameters=GenerationSettings(temperature=t), table=("temperature",))
        for m in ("no-Dmn", "Dmn")
        for t in (0.2, 0.4)
    ]
    study = read_study(write(tmp_path, cells, lambda _: 0.5, unanswered={"Dmn": 1}))
    (plan,) = figure_plans(study)
    assert [line.name for line in plan.charts[0][0].lines] == ["no-Dmn"]
    assert "2 of 4 cells are incomplete and left out" in plan.caption
    nothing = read_study(write(tmp_path / "b", cells, lambda _: 0.5, unanswered={"Dmn": 1, "no-Dmn": 1}))
    assert figure_plans(nothing) == []
