"""Killed at any place, the same call goes on and ends with the adapter of an uninterrupted run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lora_tiny import make_index, plan, quick

from dmnrag import _io
from dmnrag.errors import ConfigError
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.training.lora_finetune import finetune


def killed_and_resumed(folder: Path, every: int) -> dict[str, Any]:
    script = Path(__file__).with_name("lora_kill.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(folder), str(every)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(found: dict[str, Any]) -> None:
    assert found["places"] > 40
    assert found["early"] == []  # nothing looks finished before it is
    assert found["wrong"] == []
    assert found["left"] == []


def test_a_run_killed_at_several_places_ends_with_the_same_adapter(tmp_path: Path) -> None:
    check(killed_and_resumed(tmp_path, 47))


@pytest.mark.slow
def test_a_run_killed_at_every_fifth_place_ends_with_the_same_adapter(tmp_path: Path) -> None:
    check(killed_and_resumed(tmp_path, 5))


class Killed(BaseException):
    """Stands for the end of the process where the test wants to look at what is left."""


def stop_at(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def hook(step: str, path: Path) -> None:
        if step == "rename" and path.name == name:
            raise Killed

    monkeypatch.setattr(_io, "FAULT_HOOK", hook)


def test_another_plan_or_other_documents_begin_anew(llm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, target = make_index(tmp_path / "i"), tmp_path / "lora-x"
    work = tmp_path / ".train-lora-x"
    stop_at(monkeypatch, "checkpoint-00000004")
    with pytest.raises(Killed):
        finetune(index, plan(llm), target)
    assert (work / "checkpoint-00000003").is_dir()
    steps: list[int] = []
    stop_at(monkeypatch, "lora-x")
    with pytest.raises(Killed):
        finetune(index, plan(llm), target, on_measurement=lambda entry: steps.append(entry["step"]))
    assert steps == [4, 6, 8]  # it went on
    steps.clear()
    monkeypatch.setattr(_io, "FAULT_HOOK", None)
    other = plan(llm, training=quick(seed=1))
    finetune(index, other, target, on_measurement=lambda entry: steps.append(entry["step"]))
    assert steps == [0, 2, 4, 6, 8]  # it began anew
    assert not work.exists()


def test_done_is_done_and_another_plan_does_not_replace_it(llm: str, index: Path, tmp_path: Path) -> None:
    target = tmp_path / "lora-x"
    first = finetune(index, plan(llm), target)
    steps: list[int] = []
    again = finetune(index, plan(llm), target, on_measurement=lambda entry: steps.append(entry["step"]))
    assert steps == []
    assert again == first
    other = plan(llm, training=quick(rank=2), retrieval=RetrievalSettings(k=1, layer="sparse"))
    with pytest.raises(ConfigError, match=r"was trained otherwise \(retrieval, training\); it is not replaced"):
        finetune(index, other, target)
    assert [path.name for path in tmp_path.iterdir()] == ["lora-x"]


def test_a_refused_plan_leaves_nothing(llm: str, index: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no linear layer W_pack"):
        finetune(index, plan(llm, training=quick(target_modules=("W_pack",))), tmp_path / "lora-x")
    assert list(tmp_path.iterdir()) == []
