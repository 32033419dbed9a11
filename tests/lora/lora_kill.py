"""Run by test_lora_resume: kills a fine-tuning at many places, goes on, and compares the adapters.

A process of its own, because PyTorch cannot compute gradients in a forked child once its parent has done so. Each
training here runs in a child of this process, which itself never trains.

    python lora_kill.py FOLDER EVERY         prints one JSON object
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
from lora_tiny import make_index, plan, quick, save_model

from dmnrag import _io
from dmnrag.training.lora_finetune import finetune

KILLED, DONE = 137, 0
SETTINGS = quick(dropout=0.2, evaluate_steps=3, checkpoint_steps=2)


def in_child(index: Path, llm: str, target: Path, kill_at: int, log: Path | None = None) -> int:
    """Fine-tune in a child that dies at that place; -1 never. Returns how it ended."""
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
        finetune(index, plan(llm, training=SETTINGS), target)
        if log is not None:
            log.write_text(str(steps))
        status = DONE
    finally:
        os._exit(status)


def outcome(target: Path) -> tuple[str, object]:
    weights = hashlib.sha256((target / "adapter_model.safetensors").read_bytes()).hexdigest()
    record = json.loads((target / "dmnrag.json").read_text(encoding="utf-8"))
    del record["training"]["result"]["seconds"]
    return weights, record


def main(folder: Path, every: int) -> None:
    os.fsync = lambda _descriptor: None  # type: ignore[assignment]  # a killed process loses nothing that it wrote
    torch.set_num_threads(1)
    llm, index = save_model(folder / "llm"), make_index(folder / "index")
    assert in_child(index, llm, folder / "whole", -1, folder / "steps") == DONE
    n_places = int((folder / "steps").read_text())
    expected = outcome(folder / "whole")
    wrong, early, left = [], [], []
    for place in range(0, n_places, every):
        home = folder / f"killed-{place}"
        target = home / "lora-x"
        assert in_child(index, llm, target, place) == KILLED
        if target.exists() and outcome(target) != expected:
            early.append(place)
        # Killed once more, further on, then left to end.
        in_child(index, llm, target, 25)
        assert in_child(index, llm, target, -1) == DONE
        if outcome(target) != expected:
            wrong.append(place)
        left += [path.name for path in home.iterdir() if path.name != "lora-x"]
    print(json.dumps({"places": n_places, "wrong": wrong, "early": early, "left": left}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
