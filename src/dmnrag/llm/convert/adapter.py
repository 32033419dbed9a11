"""LoRA adapters that were trained on the original fused layers, for the converted model.

A fused layer's update is B A. Its first rows belong to the query, the next to the key, the last to the value. So each
stock layer gets the same A and its own rows of B, and the update stays the same number for number.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dmnrag._io import fault_point, write_json_atomic
from dmnrag._optional import require
from dmnrag.errors import ConfigError, DataError
from dmnrag.llm.convert import baichuan2, chatglm2
from dmnrag.llm.convert.checkpoint import Checkpoint
from dmnrag.llm.convert.folder import RECORD, read_json, staging, write_record
from dmnrag.llm.convert.recipe import Target, Weight

_TABLES: dict[str, Callable[[Any], dict[str, Weight]]] = {
    chatglm2.TITLE: chatglm2.original_weights,
    baichuan2.TITLE: baichuan2.original_weights,
}
"""By the name that a conversion has in its record."""

_ALLOWED: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "fan_in_fan_out": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "layer_replication": (None,),
    # Others change the base model's weights before training, which then are not those of the published one.
    "init_lora_weights": (True, False, None, "gaussian"),
}
"""Fields of adapter_config.json that must have one of these values, where they are given."""

_KEPT = ("r", "lora_alpha", "lora_dropout", "use_rslora")
_PREFIX = "base_model.model."


def convert_adapter(source: Path, base: Path, target: Path, *, replace: bool = False) -> list[str]:
    """Write the adapter for the converted model; returns the stock layers' kinds that it has (`target_modules`).

    Args:
        source: The adapter folder: adapter_config.json and adapter_model.safetensors or .bin.
        base: The converted model (`convert_checkpoint`) of the original that the adapter was trained on.
        target: The folder to make.
        replace: Take the place of a former conversion at `target`.

    Raises:
        ConfigError: no such folder, or a kind of adapter that cannot be converted; names it.
        DataError: a tensor is missing, unknown or of another shape; names it.
    """
    given = read_json(source / "adapter_config.json", what="an adapter folder")
    for name, allowed in _ALLOWED.items():
        if name in given and given[name] not in allowed:
            raise ConfigError(f"{source}: {name} is {given[name]!r} in adapter_config.json: only plain LoRA converts")
    title, layers = _fused_layers(base)
    with staging(target, replace=replace) as work:
        tensors = _tensors(Checkpoint.of_adapter(source), layers, title)
        kinds = sorted({key.removeprefix(_PREFIX).split(".lora_")[0].rsplit(".", 1)[1] for key in tensors})
        path = work / "adapter_model.safetensors"
        fault_point("write", path)
        require("safetensors.torch", "llm").save_file(tensors, path, metadata={"format": "pt"})
        kept = {name: given[name] for name in _KEPT if name in given}
        write_json_atomic(work / "adapter_config.json", {
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(base.resolve()),
            **kept, "bias": "none", "target_modules": kinds, "inference_mode": True,
        })  # fmt: skip
        write_record(work, f"LoRA adapter of {title}")
    return kinds


def _fused_layers(base: Path) -> tuple[str, dict[str, Weight]]:
    """Name of the original, and its linear layers by module name."""
    if not (base / RECORD).is_file():
        raise ConfigError(f"{base} is not a converted model ({RECORD} is missing): convert the adapter's base first")
    title = read_json(base / RECORD, what="a converted model").get("converted_from")
    if title not in _TABLES:
        raise ConfigError(f"{base} is a conversion of {title!r}: allowed are {' and '.join(_TABLES)}")
    config = require("transformers", "llm").AutoConfig.from_pretrained(base, trust_remote_code=False)
    weights = _TABLES[title](config)
    return title, {
        key.removesuffix(".weight"): weight
        for key, weight in weights.items()
        if ".layers." in key and key.endswith(".weight") and len(weight.shape) > 1
    }


def _tensors(checkpoint: Checkpoint, layers: dict[str, Weight], title: str) -> dict[str, Any]:
    # Some trainers save PEFT's own state, with the adapter's name in every key.
    by_name = {key.replace(".default.weight", ".weight"): key for key in checkpoint.keys()}  # noqa: SIM118
    tensors: dict[str, Any] = {}
    for layer, weight in layers.items():
        a, b = (by_name.pop(f"{_PREFIX}{layer}.lora_{kind}.weight", None) for kind in "AB")
        if a is None and b is None:
            continue
        if a is None or b is None:
            raise DataError(f"{layer} has only one of lora_A and lora_B: copy the adapter again")
        down, up = checkpoint[a], checkpoint[b]
        if (up.shape[0], down.shape[1], up.shape[1]) != (*weight.shape, down.shape[0]):
            raise DataError(
                f"{layer}: lora_A {list(down.shape)} and lora_B {list(up.shape)} do not fit {list(weight.shape)}: "
                "the base model is another"
            )
        for part in weight.targets:
            tensors |= _split(part, down, up)
    if by_name:
        raise DataError(f"the adapter holds {json.dumps(sorted(by_name)[:5])}, which no layer of {title} has")
    if not tensors:
        raise DataError("the adapter holds no tensors: copy it again")
    return tensors


def _split(part: Target, down: Any, up: Any) -> dict[str, Any]:
    # Cloned: a file of safetensors holds no tensor twice under two names.
    module = _PREFIX + part.name.removesuffix(".weight")
    return {
        f"{module}.lora_A.weight": down.clone(),
        f"{module}.lora_B.weight": up[part.start : part.stop].clone(),
    }
