"""`dmnrag report`: tables, figures and one HTML page from a results folder; of two folders, a comparison."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, progress, talk
from dmnrag.errors import ConfigError, DataError
from dmnrag.experiments.reporting.comparison import Comparison, compare_studies
from dmnrag.experiments.reporting.contents import Report, Section, build_report
from dmnrag.experiments.reporting.judge import judge_pairs, judge_section
from dmnrag.experiments.reporting.measures.more import with_measures
from dmnrag.experiments.reporting.pairing import chosen_names, items
from dmnrag.experiments.reporting.raters import KEY, key_items, rate, ratings_section, read_marks, write_sheet
from dmnrag.experiments.reporting.study import Study, read_study
from dmnrag.experiments.reporting.write import write_comparison, write_report
from dmnrag.experiments.results import ResultsFolder
from dmnrag.llm import make_generator

_REPORT, _RATERS, _JUDGE, _COMPARISON = "report", "raters", "judge", "comparison"
_SHOWN = 10

Results = Annotated[
    list[Path],
    typer.Argument(
        help="A folder of `experiment` or of `score --out`; two: the second is compared with the first.",
        metavar="RESULTS [RESULTS]",
    ),
]
PairOption = Annotated[
    tuple[str, str] | None,
    typer.Option("--pair", help="Two rows that people or an LLM compare; Dmn-ques-front and no-Dmn by default."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def report(
    results: Results,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to: RESULTS/report, or RESULTS/comparison of the second one.")
    ] = None,
    sheet: Annotated[
        int | None, typer.Option("--sheet", help="Write a blind sheet of N pairs of answers for people to mark.")
    ] = None,
    marks: Annotated[
        list[Path] | None, typer.Option("--marks", help="A rater's filled sheet (CSV); once for each rater.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option("--judge", help="LLM that compares pairs of answers: openai:MODEL@http://HOST:PORT/v1."),
    ] = None,
    judged: Annotated[int, typer.Option("--judged", help="Pairs of answers that the LLM compares.")] = 100,
    pair: PairOption = None,
    seed: Annotated[int, typer.Option(help="Of the choice of pairs and of their order.")] = 0,
    as_json: o.JsonOption = False,
) -> None:
    """Write tables (Markdown, CSV, LaTeX), figures and one HTML page of results; compare two folders."""
    asked_of_people = [n for n, v in (("--sheet", sheet), ("--marks", marks), ("--judge", judge)) if v is not None]
    if len(results) > 2:
        raise ConfigError(f"{len(results)} folders are given: report takes one, or two to compare")
    if len(results) == 2:
        if asked_of_people:
            raise ConfigError(f"{', '.join(asked_of_people)}: people and LLMs judge the answers of one folder")
        _compare(results[0], results[1], out, as_json)
        return
    if pair is not None and not asked_of_people:
        raise ConfigError("--pair names what people or an LLM compare: add --sheet or --judge, or leave it out")
    study = _study(results[0])
    folder = out or results[0] / _REPORT
    more = _more_sections(study, folder, marks or [], judge, judged, pair, seed)
    made = build_report(study, more)
    page = write_report(made, folder)
    if sheet is not None:
        names = chosen_names(study, pair)
        write_sheet(folder / _RATERS, items(study, names, sheet, seed=seed), names, seed=seed)
        talk(f"wrote the blind sheet to {folder / _RATERS}: give people sheet.html or sheet.csv, and not {KEY}")
    _tell(made, page, as_json)


def _study(folder: Path) -> Study:
    return with_measures(read_study(ResultsFolder.open(folder)))


def _more_sections(
    study: Study,
    folder: Path,
    marks: list[Path],
    judge: str | None,
    judged: int,
    pair: tuple[str, str] | None,
    seed: int,
) -> list[Section]:
    sections = []
    if marks:
        key = _read_key(folder / _RATERS / KEY)
        rated = rate(key, [read_marks(path, key_items(key)) for path in marks])
        if not rated:
            raise DataError("no item is marked in any of the files: fill the columns better and domain")
        sections.append(ratings_section(rated, rated[0].preference.names))
    if judge is not None:
        names = chosen_names(study, pair)
        with progress() as show:
            found = judge_pairs(
                items(study, names, judged, seed=seed),
                names,
                make_generator(judge),
                folder / _JUDGE / "verdicts.jsonl",
                show,
            )
        sections.append(judge_section(found))
    return sections


def _read_key(path: Path) -> dict[str, Any]:
    try:
        key: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: it is written with the sheet (--sheet N)") from error
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}): restore it") from error
    return key


def _tell(made: Report, page: Path, as_json: bool) -> None:
    if as_json:
        claims = [{"claim": c.number, "outcome": c.outcome, "reason": c.reason} for c in made.claims]
        print_json({"report": str(page), "tables": [table.name for table in made.tables], "claims": claims})
        return
    for claim in made.claims:
        typer.echo(f"claim {claim.number}: {claim.outcome}. {claim.text}")
    if made.study.stand_ins:
        talk(
            f"not real models: {', '.join(made.study.stand_ins)}; these figures show that everything runs, nothing else"
        )
    incomplete = sum(not arm.complete for arm in made.study.arms)
    if incomplete:
        talk(f"{incomplete} of {len(made.study.arms)} cells are incomplete: not averaged and not compared")
    talk(f"wrote {page}")


def _compare(before: Path, after: Path, out: Path | None, as_json: bool) -> None:
    if before.resolve() == after.resolve():
        raise ConfigError(f"{before} is given twice: a comparison needs two folders")
    found = compare_studies(_study(before), _study(after))
    page = write_comparison(found, out or after / _COMPARISON)
    if as_json:
        print_json(_comparison_to_dict(found, page))
        return
    for what, changes in (("worse", found.regressions), ("better", found.improvements)):
        for change in changes:
            typer.echo(f"{what}: {change.text}")
    if not (found.regressions or found.improvements):
        typer.echo(f"no difference shown in {len(found.changes)} tests")
    for note in found.notes[:_SHOWN]:
        talk(note)
    talk(f"wrote {page}")


def _comparison_to_dict(found: Comparison, page: Path) -> dict[str, Any]:
    rows = [
        {
            "corpus": change.corpus,
            "name": change.label,
            "metric": change.contrast.metric,
            "difference": change.contrast.difference,
            "low": change.contrast.low,
            "high": change.contrast.high,
            "p": change.contrast.p,
            "p_holm": change.contrast.p_holm,
            "detectable": change.contrast.detectable,
            "n": change.contrast.n,
            "verdict": change.contrast.verdict,
        }
        for change in found.changes
    ]
    return {"report": str(page), "comparisons": rows, "notes": list(found.notes)}
