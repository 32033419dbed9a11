"""Reading a results folder is strict, names file and line, and takes a run that goes on for what it is."""

import json
from pathlib import Path

import pytest
from runner_world import run, values

from dmnrag import _io
from dmnrag.errors import ConfigError, DataError
from dmnrag.experiments.records import Cell, CellMetrics, Prediction, from_json, json_line
from dmnrag.experiments.results import ResultsFolder
from dmnrag.types import Excerpt, GenerationSettings, Prompt, Usage

PREDICTION = Prediction(
    "q1", Prompt("问", "系统", (Excerpt(1, "d1", "文"),), ("\n\n",)), "答", "stop", Usage(5, 1), {"generation": 3.5}
)


@pytest.fixture(scope="module")
def finished(small_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results") / "out"
    run(values(small_index, methods=["no-Dmn"], controls=["copy-first"], retrieval_table="index"), out)
    return out


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> ResultsFolder:
    """A copy to spoil."""
    import shutil

    shutil.copytree(finished, tmp_path / "out")
    return ResultsFolder.open(tmp_path / "out")


def test_values_survive_writing_and_reading() -> None:
    assert from_json(Prediction, json_line(PREDICTION), "here") == PREDICTION
    cell = Cell(
        "id", "m", "Dmn", "Dmn", "hybrid", "joint", "llm", "lora", "wrong", 0.25, 3,
        GenerationSettings(9, 0.5, 3, 0.9, 1.1, ("。",), 7), 2, None, table=("methods", "temperature"),
    )  # fmt: skip
    assert from_json(Cell, json_line(cell), "here") == cell


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": None}, "answer: Input should be a valid string"),
        ({"usage": {"prompt_tokens": "5", "completion_tokens": 1}}, "usage.prompt_tokens: Input should be a valid int"),
        ({"finish_reason": "tired"}, "finish_reason: Input should be 'stop', 'length' or 'cancelled'"),
        ({"mood": "good"}, "mood: Unexpected keyword argument"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(folder: ResultsFolder, change: dict[str, object], message: str) -> None:
    cell = folder.cells()[0]
    path = folder.predictions_file(cell.id)
    first, second, *rest = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([first, json.dumps(json.loads(second) | change), *rest]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"{path}, line 2: {message}"):
        folder.predictions(cell)


def test_a_line_that_is_being_written_is_passed_over(folder: ResultsFolder) -> None:
    cell = folder.cells()[0]
    whole = folder.predictions(cell)
    with folder.predictions_file(cell.id).open("ab") as file:
        file.write(b'{"query_id": "q')
    assert folder.predictions(cell) == whole


def test_of_several_tries_the_last_one_counts_in_the_order_of_the_questions(folder: ResultsFolder) -> None:
    cell = folder.cells()[0]
    whole = folder.predictions(cell)
    failed = Prediction(whole[0].query_id, whole[0].prompt, "", None, None, {}, "EndpointError: down")
    folder.write_predictions(cell.id, [*reversed(whole[1:]), failed, whole[0]])
    assert folder.predictions(cell) == whole


@pytest.mark.parametrize("name", ["cell.json", "metrics.json", "run.trec", "evidence.jsonl"])
def test_a_spoilt_file_of_a_cell_is_a_clear_error(folder: ResultsFolder, name: str) -> None:
    cell = folder.cells()[0]
    (folder.cell_folder(cell.id) / name).write_text("{\n", encoding="utf-8")
    with pytest.raises(DataError, match=name):
        (folder.cells(), folder.metrics(cell), folder.run(cell), folder.evidence(cell))


def test_what_is_not_there_yet_is_empty_or_none(folder: ResultsFolder) -> None:
    cell = folder.cells()[0]
    for name in ("metrics.json", "run.trec", "evidence.jsonl", "predictions.jsonl"):
        (folder.cell_folder(cell.id) / name).unlink()
    assert folder.metrics(cell) is None
    assert (folder.run(cell), folder.evidence(cell), folder.predictions(cell)) == ({}, [], [])


def test_a_folder_of_another_format_or_of_none_is_refused(folder: ResultsFolder, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a results folder"):
        ResultsFolder.open(tmp_path)
    path = folder.path / "spec.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"format": 1', '"format": 2'), encoding="utf-8")
    with pytest.raises(DataError, match="format 2, and this release reads 1"):
        ResultsFolder.open(folder.path)


def test_what_a_run_left_that_was_killed_before_its_spec_is_gone_on_with(tmp_path: Path) -> None:
    for name in ("cells", "corpora"):
        (tmp_path / name).mkdir()
    for name in ("lock", "env.json", ".env.json.17.tmp", ".spec.json.4711.tmp"):
        (tmp_path / name).write_bytes(b"")
    assert ResultsFolder.create(tmp_path).path == tmp_path
    (tmp_path / "spec.json.bak").write_bytes(b"")
    with pytest.raises(ConfigError, match="is not a results folder"):
        ResultsFolder.create(tmp_path)


@pytest.mark.parametrize("step", ["write", "rename"])
def test_documents_are_replaced_at_once_or_not_at_all(
    folder: ResultsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    cell = folder.cells()[0]
    before, source = folder.evidence(cell), tmp_path / "source.jsonl"
    source.write_bytes(b"".join(map(json_line, before[:2])))

    def killed(at: str, path: Path) -> None:
        if at == step and "evidence.jsonl" in path.name:
            raise KeyboardInterrupt

    monkeypatch.setattr(_io, "FAULT_HOOK", killed)
    with pytest.raises(KeyboardInterrupt):
        folder.write_evidence(cell, before[:2], source)
    assert folder.evidence(cell) == before
    monkeypatch.setattr(_io, "FAULT_HOOK", None)
    for _ in range(2):  # the second time both names are of one file
        folder.write_evidence(cell, before[:2], source)
        assert folder.evidence(cell) == before[:2]
        assert not list(folder.cell_folder(cell.id).glob(".*"))


def test_the_retrieval_table_has_a_value_per_held_out_question(folder: ResultsFolder) -> None:
    table = folder.retrieval("medical")
    assert table is not None
    assert table.n == len(table.clusters) == 10
    assert {"BM25 plain", "BM25 joint", "DPR-joint", "hybrid plain, DPR-plain"} <= set(table.values)
    assert all(len(column) == 10 for by_metric in table.values.values() for column in by_metric.values())
    assert all({a, b} <= set(table.values) for a, b in table.pairs)


def test_metrics_that_are_not_asked_for_are_not_there(small_index: Path, tmp_path: Path) -> None:
    spec = values(small_index, methods=["no-Dmn"], controls=[], metrics=["ROUGE-L (word)"])
    run(spec, tmp_path / "out")
    folder = ResultsFolder.open(tmp_path / "out")
    metrics = folder.metrics(folder.cells()[0])
    assert isinstance(metrics, CellMetrics)
    assert list(metrics.values) == ["ROUGE-L (word)"]
