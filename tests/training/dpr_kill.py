"""Run by test_dpr_train: kills a training at many places, goes on, and compares the weights.

A process of its own, because PyTorch cannot compute gradients in a forked child once its parent has done so. Each
training here runs in a child of this process, which itself never trains.

    python dpr_kill.py FOLDER EVERY         prints one JSON object
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
from dpr_tiny import random_instances, write_encoder

from dmnrag import _io
from dmnrag.training.dpr import train_dpr
from dmnrag.training.settings import DprSettings

SETTINGS = DprSettings(
    epochs=2, batch_size=4, learning_rate=1e-3, checkpoint_steps=2, evaluate_steps=3, dev_questions=4, mini_batch=3,
    dropout=True,
)  # fmt: skip
KILLED, DONE = 137, 0


def in_child(run: Path, encoder: Path, kill_at: int, log: Path | None = None) -> int:
    """Train in a child that dies at that place; -1 never. Returns how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        steps = 0

        def hook(step: str, path: Path) -> None:
            nonlocal steps
            if steps == kill_at:
                os._exit(KILLED)
            steps += 1

        _io.FAULT_HOOK = hook
        train_dpr(random_instances(24), run, SETTINGS, encoder=str(encoder))
        if log is not None:
            log.write_text(str(steps))
        status = DONE
    finally:
        os._exit(status)


def outcome(run: Path) -> tuple[str, object]:
    weights = hashlib.sha256((run / "model" / "model.safetensors").read_bytes()).hexdigest()
    return weights, json.loads((run / "model" / "training" / "history.json").read_text())


def main(folder: Path, every: int) -> None:
    os.fsync = lambda _descriptor: None  # type: ignore[assignment]  # a killed process loses nothing that it wrote
    torch.set_num_threads(1)
    encoder = write_encoder(folder / "encoder")
    assert in_child(folder / "whole", encoder, -1, folder / "steps") == DONE
    n_places = int((folder / "steps").read_text())
    expected = outcome(folder / "whole")
    wrong, left = [], []
    for place in range(0, n_places, every):
        run = folder / f"killed-{place}"
        assert in_child(run, encoder, place) == KILLED
        # Killed once more, further on, then left to end.
        in_child(run, encoder, 25)
        assert in_child(run, encoder, -1) == DONE
        if outcome(run) != expected:
            wrong.append(place)
        left += [path.name for path in run.iterdir() if path.name not in ("model", "run.json")]
    print(json.dumps({"places": n_places, "wrong": wrong, "left": left, "history": expected[1]}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
