"""Cells whose retrievers and adapters are not there yet: trained, kept, and found again. With tiny real models."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from runner_world import Llms, loaded, tables

from dmnrag.experiments.matrix.llms import make_opener
from dmnrag.experiments.matrix.runner import Outcome, run_experiment
from dmnrag.experiments.results import ResultsFolder
from dmnrag.index import Index
from dmnrag.llm.adapters import read_record
from dmnrag.types import Document, Example, Query

TESTS = Path(__file__).resolve().parents[1]
LORA = {
    "rank": 4, "epochs": 2, "batch_size": 4, "learning_rate": 0.05, "max_length": 256, "answer_tokens": 32,
    "dev_questions": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An encoder, an LLM and an index with a held-out question, none of them trained."""
    sys.path[:0] = [str(TESTS / "training"), str(TESTS / "lora")]
    from dpr_tiny import random_instances, write_encoder
    from lora_tiny import EXAMPLE, documents, save_model

    from dmnrag.index import IndexSettings, build_index
    from dmnrag.retrieval.dense import DenseSettings, make_encoder

    folder = tmp_path_factory.mktemp("tiny")
    encoder = str(write_encoder(folder / "encoder"))
    settings = IndexSettings(dense=DenseSettings(encoder=encoder))
    made = make_encoder(encoder, device="cpu")
    letters = [  # texts of the encoder's own letters: it sees nothing in others
        Document(f"d{i}", row.question, row.answers, (("内科", "外科")[i % 2],))
        for i, row in enumerate(random_instances(40))
    ]
    test = Example(Query("q", "测试问题只在这里", ("内科",)), ("测试回答只在这里",))
    build_index(folder / "letters", letters, settings, examples=[test], encoder=made)
    build_index(folder / "index", documents(), settings, examples=[EXAMPLE], encoder=made)
    return {name: str(folder / name) for name in ("index", "letters")} | {"llm": save_model(folder / "llm")}


def spec(index: Path, tiny: dict[str, str], **changes: Any) -> dict[str, Any]:
    return {
        "methods": ["no-Dmn", "Dmn-ques-front"],
        "controls": ["copy-first"],
        "retrieval_table": "none",
        "corpus": [{"name": "medical", "index": str(index)}],
        "llm": [{"name": "tiny", "model": tiny["llm"], "device": "cpu"}],
        "generation": {"max_tokens": 16, "temperature": 0},
        "training": {
            "retriever": {"batch_size": 8, "dev_questions": 4, "query_tokens": 24, "passage_tokens": 32},
            "lora": LORA,
        },
        **changes,
    }


def run_real(wanted: dict[str, Any], out: Path) -> tuple[Outcome, list[Path | None]]:
    """With the real opener, counted."""
    found, opened = loaded(wanted), list[Path | None]()
    make = make_opener(found)

    def open_llm(llm: Any, adapter: Path | None) -> Any:
        opened.append(adapter)
        return make(llm, adapter)

    return run_experiment(found, out, open_llm=open_llm), opened


@pytest.mark.slow
def test_retrievers_are_trained_into_the_index_and_used(tiny: dict[str, str], tmp_path: Path) -> None:
    index = Path(shutil.copytree(tiny["letters"], tmp_path / "index"))
    wanted = spec(index, tiny, methods=["no-Dmn", "Dmn"], ablations=["DPR"])
    run_experiment(loaded(wanted), tmp_path / "out", open_llm=Llms())
    with Index.open(index) as opened:
        assert set(opened.manifest.retrievers) == {"base", "plain", "joint", "dpr"}
        assert opened.retriever_info("joint")["first_layer"] == "joint"
    steps = ResultsFolder.open(tmp_path / "out").cost().steps
    assert {f"medical: retriever {name}" for name in ("plain", "joint", "dpr")} <= set(steps)
    generation = (index / "CURRENT").read_text()
    assert run_experiment(loaded(wanted), tmp_path / "out", open_llm=Llms()).worked_on == 0
    assert (index / "CURRENT").read_text() == generation


@pytest.mark.slow
def test_adapters_are_trained_once_and_answer_beside_the_base_model(tiny: dict[str, str], tmp_path: Path) -> None:
    index = Path(shutil.copytree(tiny["index"], tmp_path / "index"))
    wanted = spec(index, tiny, generations=["zero-shot", "lora"], retrievers="base")
    outcome, opened = run_real(wanted, tmp_path / "out")
    assert outcome.incomplete == {}
    adapters = [path for path in opened if path is not None]
    assert len(opened) == 3  # the base model, and one adapter for each method
    records = [read_record(adapter) for adapter in adapters]
    assert [record.method for record in records if record is not None] == ["no-Dmn", "Dmn-ques-front"]
    folder = ResultsFolder.open(tmp_path / "out")
    answers = {
        (cell.row, cell.generation): [row.answer for row in folder.predictions(cell)]
        for cell in folder.cells()
        if cell.llm is not None
    }
    assert len(answers) == 4
    assert answers["no-Dmn", "lora"] != answers["no-Dmn", "zero-shot"]
    # In another results folder the adapters are there already, and the answers the same.
    again, opened_again = run_real(wanted, tmp_path / "again")
    assert (again.incomplete, opened_again) == ({}, opened)
    assert tables(tmp_path / "again") == tables(tmp_path / "out")
