"""The golden checkpoints: where they are, their reference numbers, and copies with something changed."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

MODELS = ("chatglm2", "baichuan2")

RANK, ALPHA = 4, 32
LORA_LAYERS = {
    "chatglm2": [
        f"transformer.encoder.layers.{n}.{part}"
        for n in range(3)
        for part in ("self_attention.query_key_value", "self_attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h")
    ],
    "baichuan2": [f"model.layers.{n}.{part}" for n in range(3) for part in ("self_attn.W_pack", "mlp.up_proj")],
}


@dataclass
class Golden:
    """One model: its original folder and the converted one."""

    name: str
    source: Path
    folder: Path

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """What the original code computed."""
        return load_file(self.source / "reference.safetensors")

    @cached_property
    def model(self) -> Any:
        """The converted model as anybody loads it."""
        return load_model(self.folder)

    @cached_property
    def tokenizer(self) -> Any:
        """The converted tokenizer as anybody loads it."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder)

    def json(self, kind: str) -> Any:
        """One of the reference files in JSON."""
        return json.loads((self.source / f"{self.name}_{kind}.json").read_text(encoding="utf-8"))


def load_model(folder: Path, **changes: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    for name, value in changes.items():
        setattr(config, name, value)
    return AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32).eval()


def copy_of(source: Path, folder: Path, *, weights: bool = True) -> Path:
    """A writable copy of the original folder without its reference numbers."""
    folder.mkdir(parents=True)
    for path in source.iterdir():
        if "reference" not in path.name and (weights or path.name != "model.safetensors"):
            shutil.copyfile(path, folder / path.name)
    return folder


def change_config(folder: Path, file: str = "config.json", **changes: Any) -> None:
    """Set fields; the value `...` removes one."""
    path = folder / file
    values = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not ...}), encoding="utf-8")


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def save_as(source: Path, folder: Path, layout: str) -> Path:
    """The checkpoint in another layout: "bin", "bin-shards" or "safetensors-shards"."""
    copy_of(source, folder, weights=False)
    tensors = load_file(source / "model.safetensors")
    if layout == "bin":
        torch.save(tensors, folder / "pytorch_model.bin")
        return folder
    stem, ending, index = {
        "bin-shards": ("pytorch_model", "bin", "pytorch_model.bin.index.json"),
        "safetensors-shards": ("model", "safetensors", "model.safetensors.index.json"),
    }[layout]
    keys = sorted(tensors)
    where = {}
    for i in range(3):
        name = f"{stem}-{i + 1:05d}-of-00003.{ending}"
        part = {key: tensors[key] for key in keys[i::3]}
        torch.save(part, folder / name) if ending == "bin" else save_file(part, folder / name)
        where |= dict.fromkeys(part, name)
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": where}), encoding="utf-8")
    return folder


def trained(golden: Golden, folder: Path, infix: str = "") -> Path:
    """A random adapter in the layout that PEFT saved for the original code."""
    folder.mkdir()
    original = load_file(golden.source / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for layer in LORA_LAYERS[golden.name]:
        out, width = original[f"{layer}.weight"].shape
        for kind, shape in (("A", (RANK, width)), ("B", (out, RANK))):
            key = f"base_model.model.{layer}.lora_{kind}{infix}.weight"
            tensors[key] = torch.randn(shape, generator=generator) * 0.1
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.1, "bias": "none",
        "base_model_name_or_path": "THUDM/chatglm2-6b", "target_modules": ["query_key_value"],
        "modules_to_save": None, "fan_in_fan_out": False, "inference_mode": True, "auto_mapping": None,
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
