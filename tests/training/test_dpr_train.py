import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dpr_tiny import random_instances, write_encoder

from dmnrag.data.exchange import read_dpr_json
from dmnrag.errors import DataError
from dmnrag.retrieval.dense import make_encoder
from dmnrag.training import dpr
from dmnrag.training.doctor import TrainingError
from dmnrag.training.dpr import learning_rate, train_dpr
from dmnrag.training.dpr_record import hash_instances
from dmnrag.training.settings import DprSettings

QUICK = DprSettings(epochs=2, batch_size=6, learning_rate=2e-3, dev_questions=4, mini_batch=4)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_encoder(tmp_path_factory.mktemp("encoder")))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(former)


def weights_of(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_eight_pairs_are_learnt_by_heart(encoder: str, tmp_path: Path) -> None:
    rows = random_instances(8)
    settings = DprSettings(epochs=40, batch_size=8, learning_rate=1e-2, dev_questions=0, patience=0)
    result = train_dpr(rows, tmp_path / "run", settings, encoder=encoder)
    history = json.loads((result.folder / "training" / "history.json").read_text())
    assert history[1]["loss"] > 1
    assert history[-1]["loss"] < 0.05
    trained = make_encoder(str(result.folder), device="cpu")
    scores = (
        trained.encode_queries([row.question for row in rows])
        @ trained.encode_passages([row.positive_ctxs[0].text for row in rows]).T
    )
    assert scores.argmax(axis=1).tolist() == list(range(8))
    assert result.scores is None
    assert result.is_gain


def test_the_frozen_layers_are_not_touched(encoder: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    result = train_dpr(random_instances(24), tmp_path / "run", QUICK, encoder=encoder)
    before, after = load_file(f"{encoder}/model.safetensors"), load_file(result.folder / "model.safetensors")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("layer.1." in name for name in changed)


def test_everything_needed_to_repeat_the_run_is_in_the_models_folder(encoder: str, tmp_path: Path) -> None:
    rows = random_instances(24)
    result = train_dpr(rows, tmp_path / "run", QUICK, encoder=encoder)
    home = result.folder / "training"
    run = json.loads((home / "run.json").read_text())
    assert DprSettings.from_dict(run["settings"]) == QUICK
    assert run["encoder"] == encoder
    assert "torch" in run["library_versions"]
    assert run["machine"]["threads"] == 1
    kept = list(read_dpr_json(home / "training-set.jsonl"))
    assert kept == rows
    assert run["training_set_sha256"] == hash_instances(kept)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"model", "run.json"}


def test_a_dev_slice_is_measured_before_and_while_training_and_the_best_weights_are_kept(
    encoder: str, tmp_path: Path
) -> None:
    seen: list[dict[str, Any]] = []
    settings = replace(QUICK, patience=0, epochs=4)
    result = train_dpr(random_instances(24), tmp_path / "run", settings, encoder=encoder, on_measurement=seen.append)
    assert (result.n_questions, result.n_dev) == (20, 4)
    # 20 questions in batches of at most 6: 4 steps an epoch, measured 3 times an epoch, so after every step.
    assert [entry["step"] for entry in seen] == list(range(17))
    assert result.untrained is not None
    assert result.untrained.mrr_10 == seen[0]["MRR@10"]
    assert result.bm25 is not None
    best = max(entry["MRR@10"] for entry in seen[1:])
    assert result.scores is not None
    assert result.scores.mrr_10 == best
    assert result.best_step == next(entry["step"] for entry in seen[1:] if entry["MRR@10"] == best)
    assert {"recall@3", "recall@10", "MRR@10", "mean_cosine", "loss", "epoch"} <= seen[-1].keys()


def test_the_weights_that_are_kept_give_the_best_measurement(
    encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, Any] = {}
    monkeypatch.setattr(dpr, "split_dev", lambda *a: kept.setdefault("dev", _split(*a)))
    result = train_dpr(random_instances(24), tmp_path / "run", QUICK, encoder=encoder)
    dev = kept["dev"][1]
    trained = make_encoder(str(result.folder), device="cpu")
    scores = dpr.score_vectors(dev, trained.encode_queries(dev.questions), trained.encode_passages(dev.pool))
    assert result.scores is not None
    assert scores.mrr_10 == pytest.approx(result.scores.mrr_10)


_split = dpr.split_dev


def test_training_stops_early_when_nothing_gets_better(
    encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dpr, "score_vectors", lambda *_: dpr.DevScores(0.5, 0.5, 0.5))
    result = train_dpr(random_instances(24), tmp_path / "run", replace(QUICK, epochs=9, patience=2), encoder=encoder)
    # Step 1 is the best so far; 2 and 3 are no better.
    assert (result.n_steps, result.best_step) == (3, 1)
    assert not result.is_gain
    assert any("not better than the untrained" in warning for warning in result.warnings)


def test_a_finished_run_is_not_repeated_and_one_with_other_settings_begins_anew(encoder: str, tmp_path: Path) -> None:
    rows = random_instances(24)
    first = train_dpr(rows, tmp_path / "run", QUICK, encoder=encoder)
    steps: list[Any] = []
    again = train_dpr(rows, tmp_path / "run", QUICK, encoder=encoder, on_progress=lambda *a: steps.append(a))
    assert replace(again, seconds=0) == replace(first, seconds=0)
    assert steps == []
    before = weights_of(first.folder)
    other = train_dpr(rows, tmp_path / "run", replace(QUICK, seed=1), encoder=encoder)
    assert weights_of(other.folder) != before


def test_the_same_run_gives_the_same_weights(encoder: str, tmp_path: Path) -> None:
    rows = random_instances(24)
    settings = replace(QUICK, dropout=True)
    first, second = (train_dpr(rows, tmp_path / name, settings, encoder=encoder) for name in "ab")
    assert weights_of(first.folder) == weights_of(second.folder)


def test_progress_counts_the_steps(encoder: str, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    train_dpr(
        random_instances(24), tmp_path / "run", replace(QUICK, patience=0), encoder=encoder,
        on_progress=lambda *a: seen.append(a),
    )  # fmt: skip
    assert [done for stage, done, _ in seen if stage == "training"] == list(range(1, 9))
    assert {total for stage, _, total in seen if stage == "training"} == {8}
    assert any(stage == "frozen layers" for stage, _, _ in seen)


def test_a_set_without_negatives_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    rows = [replace(row, hard_negative_ctxs=()) for row in random_instances(24)]
    with pytest.raises(DataError, match="hard_negatives to 0"):
        train_dpr(rows, tmp_path / "run", QUICK, encoder="no-such-model")


def test_a_learning_rate_that_breaks_the_weights_stops_with_the_cure(encoder: str, tmp_path: Path) -> None:
    settings = replace(QUICK, learning_rate=1e30, epochs=9)
    with pytest.raises(TrainingError, match="lower the learning rate"):
        train_dpr(random_instances(24), tmp_path / "run", settings, encoder=encoder)


def test_two_encoders_drift_apart(encoder: str, tmp_path: Path) -> None:
    settings = replace(QUICK, two_encoders=True, dev_questions=0)
    result = train_dpr(random_instances(24), tmp_path / "run", settings, encoder=encoder)
    trained = make_encoder(str(result.folder), device="cpu")
    assert np.abs(trained.encode_queries(["高"]) - trained.encode_passages(["高"])).max() > 1e-2


def test_the_rate_rises_then_falls_in_straight_lines() -> None:
    settings = DprSettings(learning_rate=1.0, warmup_share=0.2)
    # 10 steps, 2 of warm-up: 1/3, 2/3, then 8/8, 7/8, ... 1/8.
    rates = [learning_rate(step, 10, settings) for step in range(10)]
    assert rates == pytest.approx([1 / 3, 2 / 3, *(n / 8 for n in range(8, 0, -1))])


def killed_everywhere(folder: Path, every: int) -> dict[str, Any]:
    script = Path(__file__).with_name("dpr_kill.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder), str(every)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check_killed(found: dict[str, Any]) -> None:
    assert found["places"] > 60
    assert found["wrong"] == []
    assert found["left"] == []
    assert len(found["history"]) > 3


def test_killed_at_some_places_and_started_again_the_weights_are_those_of_an_uninterrupted_run(tmp_path: Path) -> None:
    check_killed(killed_everywhere(tmp_path, 29))


@pytest.mark.slow
def test_killed_at_any_place_and_started_again_the_weights_are_those_of_an_uninterrupted_run(tmp_path: Path) -> None:
    check_killed(killed_everywhere(tmp_path, 1))


@pytest.mark.slow
def test_two_processes_train_what_one_does(encoder: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("dpr_processes_run.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29731"]
    subprocess.run([*command, str(script), str(tmp_path / "two"), encoder], check=True, capture_output=True)
    subprocess.run([sys.executable, str(script), str(tmp_path / "one"), encoder], check=True, capture_output=True)
    two, one = (make_encoder(str(tmp_path / name / "model"), device="cpu") for name in ("two", "one"))
    start = make_encoder(encoder, device="cpu").encode_queries(["高血压头痛"])
    np.testing.assert_allclose(two.encode_queries(["高血压头痛"]), one.encode_queries(["高血压头痛"]), atol=1e-3)
    assert np.abs(start - one.encode_queries(["高血压头痛"])).max() > 1e-2
    assert json.loads((tmp_path / "two/model/training/run.json").read_text())["machine"]["processes"] == 2
