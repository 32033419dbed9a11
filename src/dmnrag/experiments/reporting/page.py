"""The HTML page: one file without anything from elsewhere, for screens of any width and for print.

Every text from data is escaped by the template engine. Chinese text carries its language, so that browsers choose
the right glyphs and readers the right voice.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from dmnrag import __version__
from dmnrag._optional import require
from dmnrag.experiments.reporting.comparison import Comparison
from dmnrag.experiments.reporting.contents import Report
from dmnrag.experiments.reporting.figures import DrawnFigure
from dmnrag.experiments.reporting.study import Study
from dmnrag.experiments.score_folder import ANSWERS

_CJK = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0002ffff]")
_NUMBER = re.compile(r"[-+−]?[\d.,]+%?")
_SVG_START = re.compile(rb"<svg\b")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
"""What HTML cannot hold: control characters and halves of surrogate pairs."""


def render_page(report: Report, figures: Mapping[str, DrawnFigure]) -> bytes:
    """The page as UTF-8.

    Raises:
        MissingDependencyError: the extra `report` is not installed.
    """
    study = report.study
    return render(
        "report.html",
        report=report,
        figures=figures,
        title=f"{study.name}: report",
        subtitle=_subtitle(study),
        warnings=_warnings(study),
        setting=_setting(study),
        command=repeat_command(study),
        spec=json.dumps({k: v for k, v in study.spec.items() if k != "cells"}, ensure_ascii=False, indent=2),
        environment=json.dumps(study.env, ensure_ascii=False, indent=2),
    )


def render_comparison(comparison: Comparison) -> bytes:
    """The page of two folders as UTF-8.

    Raises:
        MissingDependencyError: the extra `report` is not installed.
    """
    return render(
        "comparison.html",
        title=f"{comparison.before.name} and {comparison.after.name}: comparison",
        before=str(comparison.before.path),
        after=str(comparison.after.path),
        regressions=comparison.regressions,
        improvements=comparison.improvements,
        notes=comparison.notes,
        tables=comparison.tables,
    )


def render(template: str, **values: Any) -> bytes:
    """A template of this package with the common style and filters, as UTF-8."""
    jinja = require("jinja2", "report")
    markupsafe = require("markupsafe", "report")

    def language(text: object) -> Any:
        escaped = markupsafe.escape(text)
        if _CJK.search(str(text)):
            return markupsafe.Markup('<span lang="zh-Hans">{}</span>').format(escaped)
        return escaped

    environment = jinja.Environment(
        loader=jinja.FunctionLoader(_source), autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True
    )
    environment.filters["language"] = language
    environment.filters["is_number"] = lambda text: bool(_NUMBER.fullmatch(text))
    # The drawing is this program's own; names inside it were escaped by matplotlib.
    environment.filters["inline_svg"] = lambda svg: markupsafe.Markup(_svg_element(svg))
    css = markupsafe.Markup(_source("report.css"))
    text = environment.get_template(template).render(css=css, version=__version__, **values)
    return _UNPRINTABLE.sub("\ufffd", text).encode()


def repeat_command(study: Study) -> str:
    """What to type to do it again; SPEC stands for the spec's file or name, which the folder does not hold."""
    if study.foreign:
        made = study.spec[ANSWERS]
        words = ["dmnrag", "score", *made["files"].values(), "--gold", made["gold"], "--out", study.name]
        return " ".join(map(shlex.quote, words))
    return f"dmnrag experiment SPEC --out {shlex.quote(study.name)}"


def _source(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")


def _svg_element(svg: bytes) -> str:
    """The element alone: an XML declaration and a document type have no place inside a page."""
    start = _SVG_START.search(svg)
    assert start is not None
    return svg[start.start() :].decode()


def _subtitle(study: Study) -> str:
    started = [str(run.get("started", "")) for run in study.env.get("runs", [])]
    sizes = ", ".join(f"{c.name} ({len(c.questions):,} questions)" for c in study.corpora)
    return " · ".join(filter(None, (sizes, f"begun {started[0]}" if started and started[0] else "")))


def _warnings(study: Study) -> list[str]:
    missing = [arm for arm in study.arms if not arm.complete]
    if not missing:
        return []
    return [
        f"{len(missing)} of {len(study.arms)} cells are incomplete. They are named where they stand, not averaged "
        "and not compared; the same command goes on from the last answer."
    ]


def _setting(study: Study) -> Iterable[str]:
    """The facts a reader looks for first."""
    arms = study.arms
    yield f"Corpora: {', '.join(c.name for c in study.corpora)}"
    if study.foreign:
        yield f"Systems: {', '.join(dict.fromkeys(arm.cell.row for arm in arms))}"
        yield "The answers were made elsewhere; nothing is known here of how."
        return
    facts: dict[str, Iterable[object]] = {
        "LLMs": dict.fromkeys(a.cell.llm for a in arms if a.cell.llm),
        "Rows": dict.fromkeys(a.cell.row for a in arms),
        "Generation": dict.fromkeys(a.cell.generation for a in arms),
        "Layers": dict.fromkeys(a.cell.layer for a in arms if a.cell.control in (None, "copy-first")),
        "Documents handed to the LLM": dict.fromkeys(a.cell.k for a in arms),
    }
    for name, values in facts.items():
        yield f"{name}: {', '.join(str(value) for value in values) or 'none'}"
    yield "Intervals are 95 % bootstrap intervals over groups of near-identical questions."
