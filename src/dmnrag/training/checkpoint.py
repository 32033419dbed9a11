"""The state of a training run on disk: whole or not there, whenever the process is killed.

    RUN/checkpoint-00000120/    weights.safetensors   optimizer.safetensors   best.safetensors   state.json

A checkpoint is written under another name, pushed to the disk and renamed; only then the former one goes.
Safetensors and JSON only: nothing in it is executed when it is read. There is no random state to keep: batches
and dropout are functions of the seed and the step.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dmnrag._io import fault_point, fsync_path, link_or_copy, rename, write_json_atomic
from dmnrag._optional import require

_PREFIX = "checkpoint-"
_STAGING = ".checkpoint.tmp"
_WEIGHTS, _OPTIMIZER, _BEST, _STATE = "weights.safetensors", "optimizer.safetensors", "best.safetensors", "state.json"


@dataclass(slots=True)
class RunState:
    """Where a run stands, beside weights and optimizer."""

    step: int = 0
    """Steps done."""
    losses: list[float] = field(default_factory=list)
    """Of every step so far."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """One entry per measurement."""
    best_step: int = 0
    """Step of the best measurement."""
    stale: int = 0
    """Measurements since then."""
    seconds: float = 0.0
    """Time spent, former starts included."""
    finished: bool = False
    """No step is left, or the run was stopped early."""


def save_checkpoint(run: Path, state: RunState, weights: Mapping[str, Any], optimizer: Any, *, is_best: bool) -> None:
    """Write the state as the run's newest checkpoint and remove older ones.

    Args:
        run: folder of the run.
        state: where it stands; a step is saved once.
        weights: tensors by name.
        optimizer: torch's, over these weights in this order.
        is_best: these weights are the best so far; otherwise the former checkpoint's best ones stay.
    """
    save = require("safetensors.torch", "dense").save_file
    former = newest_checkpoint(run)
    staging = run / _STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    for name, tensors in ((_WEIGHTS, dict(weights)), (_OPTIMIZER, _optimizer_tensors(optimizer))):
        fault_point("write", staging / name)
        save({key: tensor.detach().contiguous() for key, tensor in tensors.items()}, str(staging / name))
        fsync_path(staging / name)
    if is_best:
        link_or_copy(staging / _WEIGHTS, staging / _BEST)
    elif former is not None and (former / _BEST).is_file():
        link_or_copy(former / _BEST, staging / _BEST)
    write_json_atomic(staging / _STATE, asdict(state))
    fsync_path(staging)
    target = run / f"{_PREFIX}{state.step:08d}"
    rename(staging, target)
    for path in _checkpoints(run):
        if path != target:
            shutil.rmtree(path, ignore_errors=True)


def newest_checkpoint(run: Path) -> Path | None:
    """The folder of the newest whole checkpoint."""
    found = _checkpoints(run)
    return found[-1] if found else None


def load_checkpoint(run: Path, weights: Mapping[str, Any], optimizer: Any) -> RunState | None:
    """Set weights and optimizer as they were, and say where the run stood; None where there is no checkpoint."""
    folder = newest_checkpoint(run)
    if folder is None:
        return None
    _copy_into(weights, folder / _WEIGHTS)
    _restore_optimizer(optimizer, _read(folder / _OPTIMIZER))
    return RunState(**json.loads((folder / _STATE).read_text(encoding="utf-8")))


def load_best(run: Path, weights: Mapping[str, Any]) -> None:
    """Set the weights to the best ones, where a measurement was made."""
    folder = newest_checkpoint(run)
    if folder is not None and (folder / _BEST).is_file():
        _copy_into(weights, folder / _BEST)


def _checkpoints(run: Path) -> list[Path]:
    """Checkpoints, oldest first: a folder of this name is whole."""
    return sorted(run.glob(f"{_PREFIX}*"))


def _read(path: Path) -> dict[str, Any]:
    tensors: dict[str, Any] = require("safetensors.torch", "dense").load_file(str(path))
    return tensors


def _copy_into(weights: Mapping[str, Any], path: Path) -> None:
    tensors = _read(path)
    with require("torch", "dense").no_grad():
        for name, weight in weights.items():
            weight.copy_(tensors[name])


def _optimizer_tensors(optimizer: Any) -> dict[str, Any]:
    state = optimizer.state_dict()["state"]
    return {f"{number}.{name}": tensor for number, entry in state.items() for name, tensor in entry.items()}


def _restore_optimizer(optimizer: Any, tensors: Mapping[str, Any]) -> None:
    entries: dict[int, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        entries.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})
