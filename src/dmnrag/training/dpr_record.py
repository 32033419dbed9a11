"""What is written beside a trained model, so that the run can be repeated and judged.

MODEL/training/run.json             settings, encoder, library versions, hash of the training set
MODEL/training/history.json         every measurement on the dev slice
MODEL/training/training-set.jsonl   the training set in DPR JSON, one question a line
MODEL/training/result.json          what `train_dpr` returned
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dmnrag._io import write_json_atomic
from dmnrag._optional import require
from dmnrag.data.exchange import DprInstance, write_dpr_json
from dmnrag.training.dev import DevScores
from dmnrag.training.dpr_model import DprModel
from dmnrag.training.settings import DprSettings

FOLDER = "training"
RUN_FILE, HISTORY_FILE, SET_FILE, RESULT_FILE = "run.json", "history.json", "training-set.jsonl", "result.json"

_LIBRARIES = ("dmnrag", "sentence-transformers", "torch", "transformers", "numpy", "safetensors")


@dataclass(frozen=True, slots=True)
class DprResult:
    """A trained encoder."""

    folder: Path
    """The sentence-transformers folder; its subfolder `training` holds the record."""
    n_questions: int
    """Questions trained on."""
    n_dev: int
    """Questions measured on."""
    n_steps: int
    best_step: int
    """The step whose weights were kept."""
    seconds: float
    """Time spent, former starts of a resumed run included."""
    scores: DevScores | None
    """Of the weights that were kept; None without dev questions."""
    untrained: DevScores | None
    """Of the encoder before training."""
    bm25: DevScores | None
    """Of the first layer, without the domain, on the same pool."""
    warnings: tuple[str, ...] = ()
    """What the doctor found."""

    @property
    def is_gain(self) -> bool:
        """Whether the dev slice speaks for the trained encoder; True where nothing was measured."""
        return self.scores is None or self.untrained is None or self.scores.mrr_10 > self.untrained.mrr_10

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, without the folder."""
        scores = {
            name: None if value is None else value.to_dict()
            for name, value in (("dev", self.scores), ("untrained", self.untrained), ("bm25", self.bm25))
        }
        return {
            "questions": self.n_questions,
            "dev_questions": self.n_dev,
            "steps": self.n_steps,
            "best_step": self.best_step,
            "seconds": round(self.seconds, 1),
            **scores,
            "warnings": list(self.warnings),
        }


def read_result(folder: Path) -> DprResult:
    """What training wrote into the model's folder."""
    values = json.loads((folder / FOLDER / RESULT_FILE).read_text(encoding="utf-8"))
    dev, untrained, bm25 = (
        None if values[name] is None else DevScores.from_dict(values[name]) for name in ("dev", "untrained", "bm25")
    )
    return DprResult(
        folder,
        values["questions"],
        values["dev_questions"],
        values["steps"],
        values["best_step"],
        values["seconds"],
        dev,
        untrained,
        bm25,
        tuple(values["warnings"]),
    )


def describe_run(instances: Sequence[DprInstance], settings: DprSettings, encoder: str) -> dict[str, Any]:
    """Everything that the trained weights depend on, but for the machine: two runs of one description are one run."""
    return {
        "encoder": encoder,
        "settings": settings.to_dict(),
        "questions": len(instances),
        "training_set_sha256": hash_instances(instances),
        "library_versions": _versions(),
    }


def describe_machine(model: DprModel, n_processes: int) -> dict[str, Any]:
    """What else the last digits depend on."""
    torch = require("torch", "dense")
    return {
        "device": str(model.device),
        "threads": torch.get_num_threads(),
        "processes": n_processes,
        "trained_weights": sum(weight.numel() for weight in model.trained.values()),
        "all_weights": sum(weight.numel() for weight in model.model.parameters()),
        "frozen_layers": {role: tower.n_frozen for role, tower in model.towers.items()},
    }


def write_record(
    folder: Path,
    run: dict[str, Any],
    instances: Sequence[DprInstance],
    history: Sequence[dict[str, Any]],
    result: DprResult,
) -> None:
    """Write the record into a model's folder."""
    home = folder / FOLDER
    home.mkdir(parents=True, exist_ok=True)
    write_json_atomic(home / RUN_FILE, run)
    write_json_atomic(home / HISTORY_FILE, list(history))
    write_dpr_json(home / SET_FILE, instances)
    write_json_atomic(home / RESULT_FILE, result.to_dict())


def hash_instances(instances: Sequence[DprInstance]) -> str:
    """sha256 over the instances' JSON."""
    digest = hashlib.sha256()
    for instance in instances:
        digest.update(json.dumps(instance.to_dict(), ensure_ascii=False, sort_keys=True).encode())
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
