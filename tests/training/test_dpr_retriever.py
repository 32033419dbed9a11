import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dpr_tiny import random_instances, write_encoder

from dmnrag.data.exchange import DprInstance, read_dpr_json, write_dpr_json
from dmnrag.errors import ConfigError, DataError, DmnragError
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.retrieval.dense import DenseSettings, make_encoder
from dmnrag.training import dpr_retriever
from dmnrag.training.dev import DevScores
from dmnrag.training.doctor import TrainingError
from dmnrag.training.dpr_record import DprResult
from dmnrag.training.dpr_retriever import RetrieverPlan, train_retriever
from dmnrag.training.dpr_rounds import train_rounds
from dmnrag.training.negatives_settings import FirstLayer, GuardSettings, TrainingSetSettings
from dmnrag.training.settings import DprSettings
from dmnrag.types import Document, Example, Query

QUICK = DprSettings(epochs=1, batch_size=8, learning_rate=2e-3, dev_questions=6, mini_batch=4)
ROWS = random_instances(40)
DOCUMENTS = [Document(f"d{i}", row.question, row.answers, (("内科", "外科")[i % 2],)) for i, row in enumerate(ROWS)]
TEST = Example(Query("q", "测试问题只在这里", ("内科",)), ("测试回答只在这里",), ("d1",), "q")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_encoder(tmp_path_factory.mktemp("encoder")))


@pytest.fixture
def index(tmp_path: Path, encoder: str) -> Path:
    settings = IndexSettings(dense=DenseSettings(encoder=encoder))
    loaded = make_encoder(encoder, device="cpu")
    build_index(tmp_path / "index", DOCUMENTS, settings, examples=[TEST], encoder=loaded)
    return tmp_path / "index"


@pytest.fixture(autouse=True)
def one_thread_and_one_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dpr_retriever.os, "cpu_count", lambda: 1)
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(former)


def plan(first_layer: FirstLayer = "joint", **values: Any) -> RetrieverPlan:
    wanted = TrainingSetSettings(first_layer=first_layer, first_rank=3, last_rank=20, guards=GuardSettings.off())
    return RetrieverPlan(**{"training_set": wanted, "training": QUICK, **values})


def left_work(index: Path) -> list[str]:
    return [path.name for path in (index / "models").iterdir() if not path.name.startswith("dpr-")]


def test_a_joint_retriever_reads_the_domain_and_the_answer_and_the_index_uses_it(index: Path) -> None:
    report = train_retriever(index, plan(), accept_worse=True)
    assert (report.name, report.generation) == ("joint", 2)
    assert report.card["mined_from"] == "joint"
    with Index.open(index, verify=True) as opened:
        settings = opened.dense_settings("joint")
        assert settings.encoder == str(index / "models/dpr-joint-000002")
        assert (settings.passage, settings.domain_in_passage) == ("answer", True)
        info = opened.manifest.retrievers["joint"]["info"]
        assert report.result.scores is not None
        assert info["dev"] == report.result.scores.to_dict()
        trained = make_encoder(settings.encoder, device="cpu")
        passage = f"内科\n{DOCUMENTS[4].answers[0]}"
        hits = opened.dense("joint").search(trained.encode_passages([passage]), 3)[0]
        assert hits[0].doc_id == "d4"
        assert hits[0].score == pytest.approx(1.0, abs=1e-5)
    assert left_work(index) == []


def test_plain_and_joint_stand_side_by_side_and_a_plain_one_reads_no_domain(index: Path) -> None:
    train_retriever(index, plan("plain"), accept_worse=True)
    train_retriever(index, plan("joint", training=replace(QUICK, dev_questions=0)))
    with Index.open(index) as opened:
        assert list(opened.manifest.retrievers) == ["base", "plain", "joint"]
        assert not opened.dense_settings("plain").domain_in_passage


def test_rounds_mine_with_the_retriever_of_the_round_before(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets: list[list[DprInstance]] = []
    real = dpr_retriever.train_dpr

    def spy(instances: list[DprInstance], *arguments: Any, **named: Any) -> DprResult:
        sets.append(instances)
        return real(instances, *arguments, **named)

    monkeypatch.setattr(dpr_retriever, "train_dpr", spy)
    report = train_retriever(index, plan("none", rounds=1), accept_worse=True)
    assert report.name == "dpr"
    assert [row["round"] for row in report.rounds] == [0, 1]
    assert sum(row["kept"] for row in report.rounds) == 1
    assert not any(row.hard_negative_ctxs for row in sets[0])
    assert all(row.hard_negative_ctxs for row in sets[1])


def test_a_worse_retriever_is_refused_unless_accepted_and_is_not_trained_again(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DprResult, "is_gain", False)
    with pytest.raises(TrainingError, match=r"index was not changed; --accept-worse"):
        train_retriever(index, plan())
    with Index.open(index) as opened:
        assert opened.manifest.generation == 1
    seen: list[str] = []
    report = train_retriever(index, plan(), accept_worse=True, on_progress=lambda stage, *_: seen.append(stage))
    assert report.generation == 2
    assert set(seen) == {"vectors"}


def test_a_killed_call_goes_on_and_another_plan_begins_anew(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> int:
        raise DmnragError("killed")

    stages: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(dpr_retriever, "add_retriever", fail)
        with pytest.raises(DmnragError, match="killed"):
            train_retriever(index, plan(), accept_worse=True)
    train_retriever(index, plan(), accept_worse=True, on_progress=lambda stage, *_: stages.append(stage))
    assert "training" not in stages
    with monkeypatch.context() as patch:
        patch.setattr(dpr_retriever, "add_retriever", fail)
        with pytest.raises(DmnragError, match="killed"):
            train_retriever(index, plan(), accept_worse=True)
    other = plan(training=replace(QUICK, seed=1))
    train_retriever(index, other, accept_worse=True, on_progress=lambda stage, *_: stages.append(stage))
    assert "training" in stages


def test_a_file_from_elsewhere_is_trained_on(index: Path, tmp_path: Path) -> None:
    write_dpr_json(tmp_path / "set.json", random_instances(30, seed=9))
    report = train_retriever(index, plan("plain", dpr_json=tmp_path / "set.json", limit=20), accept_worse=True)
    assert report.card == {}
    with Index.open(index) as opened:
        kept = Path(opened.dense_settings("plain").encoder) / "training" / "training-set.jsonl"
    assert len(list(read_dpr_json(kept))) == 20


def test_texts_of_the_test_split_are_refused(index: Path, tmp_path: Path) -> None:
    leaked = replace(ROWS[0], question="测试问题，只在这里！")
    write_dpr_json(tmp_path / "set.json", [*ROWS, leaked])
    with pytest.raises(DataError, match="1 questions and 0 passages of the test split"):
        train_retriever(index, plan(dpr_json=tmp_path / "set.json"))


@pytest.mark.parametrize("values", [{"rounds": 0}, {"limit": 1}])
def test_plans_that_cannot_be_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="allowed are whole numbers"):
        RetrieverPlan(**values)  # type: ignore[arg-type]


def result(name: str, mrr: float | None) -> DprResult:
    scores = None if mrr is None else DevScores(mrr, mrr, mrr)
    return DprResult(Path(name), 1, 1, 1, 1, 0.0, scores, DevScores(0.1, 0.1, 0.1), None)


def run_rounds(figures: list[float | None], n_rounds: int) -> tuple[Any, list[Any]]:
    calls: list[Any] = []

    def mine(number: int, model: Path | None) -> list[DprInstance]:
        calls.append(("mine", number, model))
        return []

    def train(number: int, _rows: Any, settings: DprSettings, encoder: str | None) -> DprResult:
        calls.append(("train", number, settings.hard_negatives, encoder))
        return result(f"m{number}", figures[number])

    return train_rounds(mine, train, DprSettings(hard_negatives=2), n_rounds), calls


def test_each_round_starts_from_the_one_before_and_round_0_has_no_hard_negatives() -> None:
    rounds, calls = run_rounds([0.2, 0.3, 0.4], 2)
    assert calls == [
        ("mine", 0, None),
        ("train", 0, 0, None),
        ("mine", 1, Path("m0")),
        ("train", 1, 2, "m0"),
        ("mine", 2, Path("m1")),
        ("train", 2, 2, "m1"),
    ]
    assert (rounds.best, rounds.kept.folder) == (2, Path("m2"))


def test_rounds_end_when_one_is_no_better_and_the_better_one_is_kept() -> None:
    rounds, _ = run_rounds([0.2, 0.3, 0.3, 0.9], 3)
    assert (len(rounds.results), rounds.best) == (3, 1)
    assert [row["kept"] for row in rounds.table()] == [False, True, False]


def test_without_a_dev_slice_the_last_round_is_kept() -> None:
    assert run_rounds([None, None], 1)[0].best == 1


def test_the_command_trains_and_tells(index: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from dmnrag.cli.main import app

    write_dpr_json(tmp_path / "set.jsonl", ROWS)
    numbers = ["--epochs", "2", "--batch-size", "8", "--dev-questions", "6", "--seed", "3"]
    options = ["--first-layer", "plain", "--from-dpr-json", str(tmp_path / "set.jsonl"), "--accept-worse", "--json"]
    done = CliRunner().invoke(app, ["train", str(index), *options, *numbers])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["retriever"], report["generation"], report["dev_questions"]) == ("plain", 2, 6)
    with Index.open(index) as opened:
        run = json.loads((Path(opened.dense_settings("plain").encoder) / "training" / "run.json").read_text())
    assert (run["settings"]["epochs"], run["settings"]["seed"], run["settings"]["batch_size"]) == (2, 3, 8)


def test_info_shows_the_dev_figures_and_no_hashes(index: Path) -> None:
    from typer.testing import CliRunner

    from dmnrag.cli.main import app

    train_retriever(index, plan(), accept_worse=True)
    text = CliRunner().invoke(app, ["info", str(index)]).stdout
    assert "joint (index:models/dpr-joint-000002; dev recall@3 " in text
    assert "(untrained " in text
    summary = json.loads(CliRunner().invoke(app, ["info", str(index), "--json"]).stdout)
    assert summary["retrievers"]["joint"]["info"]["questions"] == 34
    assert "files" not in summary["retrievers"]["joint"]["info"]
