"""Writes a report: tables, figures and the page, each file atomically."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dmnrag._io import write_bytes_atomic
from dmnrag.experiments.reporting.comparison import Comparison
from dmnrag.experiments.reporting.contents import Report
from dmnrag.experiments.reporting.figures import DrawnFigure, draw
from dmnrag.experiments.reporting.page import render_comparison, render_page
from dmnrag.experiments.reporting.table import Table, to_csv, to_latex, to_markdown

_FORMATS: Mapping[str, Callable[[Table], str]] = {"md": to_markdown, "csv": to_csv, "tex": to_latex}

INDEX = "index.html"
TABLES, FIGURES = "tables", "figures"


def write_report(report: Report, out: Path) -> Path:
    """Everything into `out`; tables and figures of an earlier report that this one lacks are removed.

    Returns:
        The page.

    Raises:
        MissingDependencyError: the extra `report` is not installed; nothing is written then.
    """
    figures = {plan.name: draw(plan) for plan in report.figures}
    page = render_page(report, figures)
    write_tables(report.tables, out / TABLES)
    _write_figures(figures, out / FIGURES)
    write_bytes_atomic(out / INDEX, page)
    return out / INDEX


def write_comparison(comparison: Comparison, out: Path) -> Path:
    """The page and tables of a comparison.

    Returns:
        The page.

    Raises:
        MissingDependencyError: the extra `report` is not installed; nothing is written then.
    """
    page = render_comparison(comparison)
    write_tables(comparison.tables, out / TABLES)
    write_bytes_atomic(out / INDEX, page)
    return out / INDEX


def write_tables(tables: Sequence[Table], folder: Path) -> None:
    """Each table as Markdown, CSV and LaTeX."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = set()
    for table in tables:
        for ending, form in _FORMATS.items():
            path = folder / f"{table.name}.{ending}"
            write_bytes_atomic(path, form(table).encode("utf-8", "replace"))
            wanted.add(path)
    _remove_others(folder, wanted, tuple(_FORMATS))


def _write_figures(figures: Mapping[str, DrawnFigure], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    wanted = set()
    for name, figure in figures.items():
        for ending, content in (("svg", figure.svg), ("png", figure.png)):
            write_bytes_atomic(folder / f"{name}.{ending}", content)
            wanted.add(folder / f"{name}.{ending}")
    _remove_others(folder, wanted, ("svg", "png"))


def _remove_others(folder: Path, wanted: set[Path], endings: tuple[str, ...]) -> None:
    """A table that no longer belongs to the report would be taken for one that does."""
    for path in folder.iterdir():
        if path.suffix.lstrip(".") in endings and path not in wanted:
            path.unlink()
