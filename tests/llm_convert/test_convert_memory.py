"""A checkpoint is converted in much less anonymous memory than it has bytes."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from convert_checkpoints import Golden, change_config, copy_of
from convert_memory_run import anonymous
from safetensors.torch import save_file

from dmnrag.llm.convert.folder import read_recipe

SIZES = {
    "chatglm2": {"hidden_size": 2048, "kv_channels": 128, "num_attention_heads": 16, "ffn_hidden_size": 5504},
    "baichuan2": {"hidden_size": 2048, "num_attention_heads": 16, "intermediate_size": 5504},
}
LAYERS = {"chatglm2": ("num_layers", 7), "baichuan2": ("num_hidden_layers", 6)}
ALLOWED = 100 * 10**6
"""Bytes: a sixth of the checkpoint. The largest tensor has 45 MB; copies of several would not fit."""


def grown(golden: Golden, folder: Path, layout: str) -> Path:
    """The same model with wider and more layers, about 600 MB in bfloat16."""
    copy_of(golden.source, folder, weights=False)
    field, n = LAYERS[golden.name]
    change_config(folder, **SIZES[golden.name], **{field: n})
    generator = torch.Generator().manual_seed(0)
    tensors = {
        key: torch.empty(weight.shape, dtype=torch.bfloat16).normal_(generator=generator)
        for key, weight in read_recipe(folder).weights.items()
    }
    assert sum(tensor.nbytes for tensor in tensors.values()) > 590 * 10**6
    if layout == "bin":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layout"), [("chatglm2", "safetensors"), ("baichuan2", "bin")])
def test_converting_600_mb_takes_less_than_100_mb_of_anonymous_memory(
    goldens: dict[str, Golden], tmp_path: Path, name: str, layout: str
) -> None:
    source = grown(goldens[name], tmp_path / "in", layout)
    command = [
        sys.executable,
        str(Path(__file__).with_name("convert_memory_run.py")),
        str(source),
        str(tmp_path / "out"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        before = int(process.stdout.readline())
        peak = before
        # Looked at from outside: a library that copies may hold the interpreter while it does.
        while process.poll() is None:
            peak = max(peak, anonymous(process.pid))
            time.sleep(0.002)
    assert process.returncode == 0
    assert (tmp_path / "out" / "model.safetensors").stat().st_size > 590 * 10**6
    print(f"{name}, {layout}: {(peak - before) / 1e6:.1f} MB of anonymous memory")  # noqa: T201
    assert peak - before < ALLOWED
