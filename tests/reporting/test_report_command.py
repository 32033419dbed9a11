"""`dmnrag report`, and `dmnrag score --out` whose folders it reads."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from report_builder import cell, write
from typer.testing import CliRunner

from dmnrag.cli import report as report_command
from dmnrag.cli import score as score_command
from dmnrag.data.exchange import read_answers, read_gold
from dmnrag.errors import ConfigError, DataError
from dmnrag.experiments.records import Cell
from dmnrag.experiments.reporting.contents import build_report
from dmnrag.experiments.reporting.study import read_study
from dmnrag.experiments.results import ResultsFolder
from dmnrag.experiments.score import score_systems
from dmnrag.experiments.score_folder import write_answers_folder
from dmnrag.types import Example, Query

app = typer.Typer()
report_command.register(app)
score_command.register(app)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)])


def even(_: Cell) -> float:
    return 0.5


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write(tmp_path / "results", [cell("no-Dmn"), cell("Dmn-ques-front")], even)
    return tmp_path / "results"


def test_a_report_is_written_beside_the_results(results: Path) -> None:
    done = run("report", results)
    assert done.exit_code == 0, done.stderr
    assert (results / "report" / "index.html").is_file()
    for ending in ("md", "csv", "tex"):
        assert (results / "report" / "tables" / f"methods-1.{ending}").is_file()
    assert "claim 9: not tested here" in done.stdout
    assert "index.html" in done.stderr
    # Reading changed nothing that the experiment wrote.
    assert read_study(ResultsFolder.open(results)).arms[0].complete


def test_json_is_one_document(results: Path, tmp_path: Path) -> None:
    done = run("report", results, "--out", tmp_path / "elsewhere", "--json")
    found = json.loads(done.stdout)
    assert found["report"] == str(tmp_path / "elsewhere" / "index.html")
    assert [claim["claim"] for claim in found["claims"]] == list(range(1, 10))
    assert "methods-1" in found["tables"]


def test_two_folders_are_compared_and_a_regression_is_printed(tmp_path: Path) -> None:
    write(tmp_path / "a", [cell("no-Dmn")], even, n=30)
    write(tmp_path / "b", [cell("no-Dmn")], lambda _: 0.2, n=30)
    done = run("report", tmp_path / "a", tmp_path / "b")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("worse: medical, no-Dmn, fake, temperature 0, ROUGE-") == 3
    assert (tmp_path / "b" / "comparison" / "index.html").is_file()
    found = json.loads(run("report", tmp_path / "a", tmp_path / "b", "--json").stdout)
    assert {row["verdict"] for row in found["comparisons"]} == {"lower"}


def test_a_sheet_is_written_and_filled_ones_are_read(results: Path, tmp_path: Path) -> None:
    assert run("report", results, "--sheet", 4).exit_code == 0
    folder = results / "report" / "raters"
    assert {path.name for path in folder.iterdir()} == {"sheet.csv", "sheet.html", "key.json"}
    key = json.loads((folder / "key.json").read_text(encoding="utf-8"))
    one, two, three, four = (entry["item"] for entry in key["items"])
    files = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"item,better,domain\n{one},1,0\n{two},2,0\n{three},1,0\n{four},0,\n", encoding="utf-8")
        files += ["--marks", path]
    done = run("report", results, *files)
    assert done.exit_code == 0, done.stderr
    table = (results / "report" / "tables" / "raters.md").read_text(encoding="utf-8")
    assert "Which answer is better? | 4 |" in table
    assert "| 2 | 1.00 | 1.00 |" in table
    assert "Judged by people" in (results / "report" / "index.html").read_text(encoding="utf-8")


def test_a_judge_that_says_nothing_usable_is_an_error(results: Path) -> None:
    done = run("report", results, "--judge", "fake", "--judged", 2)
    assert isinstance(done.exception, DataError)  # the fake copies or refuses, and names no verdict
    assert "named no verdict" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("RESULTS", "RESULTS"), "given twice"),
        (("RESULTS", "x", "y"), "takes one, or two"),
        (("RESULTS", "x", "--sheet", "3"), "people and LLMs judge the answers of one folder"),
        (("RESULTS", "--pair", "a", "b"), "add --sheet or --judge"),
    ],
)
def test_what_makes_no_sense_is_refused(results: Path, arguments: tuple[str, ...], problem: str) -> None:
    done = run("report", *(results if word == "RESULTS" else word for word in arguments))
    assert isinstance(done.exception, ConfigError)
    assert problem in str(done.exception)


def test_a_folder_that_is_none_and_a_missing_key_are_named(results: Path, tmp_path: Path) -> None:
    done = run("report", tmp_path)
    assert "is not a results folder" in str(done.exception)
    marks = tmp_path / "m.csv"
    marks.write_text("item,better,domain\n1,1,1\n", encoding="utf-8")
    done = run("report", results, "--marks", marks)
    assert "key.json is missing: it is written with the sheet" in str(done.exception)


# Answers made elsewhere

GOLD = [Example(Query(str(i), f"问题{i}？", ("内科" if i % 2 else "外科",)), (f"甲乙丙丁戊己{i}",)) for i in range(8)]


def answers(length: int) -> dict[str, str]:
    return {example.query.query_id: example.references[0][:length] for example in GOLD}


def test_answers_made_elsewhere_enter_as_results(tmp_path: Path) -> None:
    systems = {"rag": answers(6), "direct": {**answers(2), "3": ""}}
    folder = write_answers_folder(
        tmp_path / "r", systems, GOLD, {"rag": "rag.jsonl", "direct": "d.jsonl"}, "gold.jsonl"
    )
    study = read_study(folder)
    assert study.foreign
    assert [arm.cell.row for arm in study.arms] == ["rag", "direct"]
    # The same figures as `score` gives.
    scored = {(row.name, row.metric): row.mean for row in score_systems(systems, GOLD).rows}
    for arm in study.arms:
        for metric, column in arm.values.items():
            kept = [value for value in column if value is not None]
            assert sum(kept) / len(kept) == pytest.approx(scored[arm.cell.row, metric])
    report = build_report(study)
    assert report.claims == ()
    tables = {table.name: table for table in report.tables}
    assert {"systems", "systems-differences", "systems-characters", "domains-1-1", "data-1"} <= tables.keys()
    assert "direct: 1 of 8 questions have no answer and score 0." in tables["systems"].notes
    assert not any("zero-shot" in column for column in tables["systems"].columns)
    differences = {row[3]: row for row in tables["systems-differences"].rows}
    assert differences["ROUGE-L (word)"][2] == "rag − direct"


def test_a_system_alone_is_a_report_without_comparisons(tmp_path: Path) -> None:
    folder = write_answers_folder(tmp_path / "r", {"rag": answers(6)}, GOLD, {"rag": "r"}, "g")
    report = build_report(read_study(folder))
    assert report.examples == ()
    assert next(table.name for table in report.tables) == "systems"


def test_scoring_again_into_the_same_folder_leaves_the_systems_of_now(tmp_path: Path) -> None:
    write_answers_folder(tmp_path / "r", {"a": answers(6), "b": answers(3)}, GOLD, {}, "g")
    folder = write_answers_folder(tmp_path / "r", {"b/c": answers(3)}, GOLD, {}, "g")
    assert [arm.cell.row for arm in read_study(folder).arms] == ["b/c"]


def test_an_experiments_folder_is_never_written_over(results: Path) -> None:
    before = (results / "spec.json").read_bytes()
    with pytest.raises(ConfigError, match="holds an experiment"):
        write_answers_folder(results, {"a": answers(6)}, GOLD, {}, "g")
    assert (results / "spec.json").read_bytes() == before


def test_the_command_scores_and_writes_a_folder_that_report_reads(tmp_path: Path) -> None:
    gold = [
        {"query_id": e.query.query_id, "question": e.query.text, "domain": list(e.query.domain),
         "references": list(e.references)}
        for e in GOLD
    ]  # fmt: skip
    for name, rows in (
        ("gold", gold),
        ("rag", [{"query_id": q, "answer": a} for q, a in answers(6).items()]),
        ("direct", [{"query_id": q, "answer": a} for q, a in answers(2).items()]),
    ):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    files = (tmp_path / "rag.jsonl", tmp_path / "direct.jsonl", "--gold", tmp_path / "gold.jsonl")
    done = run("score", *files, "--out", tmp_path / "r")
    assert done.exit_code == 0, done.stderr
    assert f"next: dmnrag report {tmp_path / 'r'}" in done.stderr
    assert "p (Holm)" in done.stdout
    assert run("report", tmp_path / "r").exit_code == 0
    page = (tmp_path / "r" / "report" / "index.html").read_text(encoding="utf-8")
    assert "dmnrag score" in page
    assert "Every two systems" in page


@pytest.mark.slow
def test_real_answers_of_five_systems_make_a_report(shared: Path, tmp_path: Path) -> None:
    source = shared / "data" / "lecoqa_answers"
    names = ("qwen7b-direct", "qwen7b-rag", "qwen7b-finetune")
    systems = {name: read_answers(source / f"{name}.jsonl") for name in names}
    folder = write_answers_folder(tmp_path / "r", systems, read_gold(source / "gold.jsonl"), {}, "gold.jsonl")
    tables = {table.name: table for table in build_report(read_study(folder)).tables}
    verdicts = {(row[2], row[3]): (row[8], row[10]) for row in tables["systems-differences"].rows}
    # RAG is above direct, and more so at equal length; fine-tuned is not shown to differ from RAG.
    assert verdicts["qwen7b-direct − qwen7b-rag", "ROUGE-1 (word)"] == ("lower", "lower")
    assert verdicts["qwen7b-rag − qwen7b-finetune", "ROUGE-L (word)"] == ("no difference shown",) * 2
