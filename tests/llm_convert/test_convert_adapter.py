"""LoRA adapters of the original fused layers on converted models: the same update, number for number."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from convert_checkpoints import ALPHA, RANK, Golden, change_config, change_weights, copy_of, load_model, trained
from safetensors.torch import load_file, save_file

from dmnrag.errors import ConfigError, DataError
from dmnrag.llm.convert import convert_adapter, convert_checkpoint

KINDS = {
    "chatglm2": ["down_proj", "gate_up_proj", "k_proj", "o_proj", "q_proj", "v_proj"],
    "baichuan2": ["k_proj", "q_proj", "up_proj", "v_proj"],
}


def merge(weights: dict[str, torch.Tensor], adapter: dict[str, torch.Tensor]) -> None:
    """Add every update of the adapter to its layer."""
    for key in [key for key in adapter if ".lora_A" in key]:
        layer = key.removeprefix("base_model.model.").split(".lora_A")[0]
        update = adapter[key.replace("lora_A", "lora_B")] @ adapter[key]
        weights[f"{layer}.weight"] += update * (ALPHA / RANK)


@pytest.mark.parametrize("infix", ["", ".default"])
def test_merged_after_conversion_equals_converted_after_merging(golden: Golden, tmp_path: Path, infix: str) -> None:
    source = trained(golden, tmp_path / "adapter", infix)
    assert convert_adapter(source, golden.folder, tmp_path / "out") == KINDS[golden.name]
    adapter = load_file(tmp_path / "out" / "adapter_model.safetensors")
    found = load_file(golden.folder / "model.safetensors")
    merge(found, adapter)

    merged = copy_of(golden.source, tmp_path / "merged")
    change_weights(merged, lambda weights: merge(weights, load_file(source / "adapter_model.safetensors")))
    convert_checkpoint(merged, tmp_path / "merged-stock")
    wanted = load_file(tmp_path / "merged-stock" / "model.safetensors")
    base = load_file(golden.folder / "model.safetensors")
    assert found.keys() == wanted.keys()
    for key in wanted:
        assert torch.allclose(found[key], wanted[key], atol=1e-5), key
    changed = [key for key in wanted if not torch.equal(wanted[key], base[key])]
    assert {key.split(".")[-2] for key in changed} == set(KINDS[golden.name])


def test_the_new_configuration_names_base_and_layers(golden: Golden, tmp_path: Path) -> None:
    convert_adapter(trained(golden, tmp_path / "adapter"), golden.folder, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text(encoding="utf-8"))
    assert config == {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(golden.folder), "r": RANK,
        "lora_alpha": ALPHA, "lora_dropout": 0.1, "bias": "none", "target_modules": KINDS[golden.name],
        "inference_mode": True,
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_peft_loads_the_adapter(golden: Golden, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    convert_adapter(trained(golden, tmp_path / "adapter"), golden.folder, tmp_path / "out")
    model = peft.PeftModel.from_pretrained(load_model(golden.folder), tmp_path / "out")
    ids = golden.tensors["single.input_ids"]
    with torch.inference_mode():
        with_adapter = model(input_ids=ids).logits
        merged = model.merge_and_unload()(input_ids=ids).logits
    assert torch.allclose(with_adapter, merged, atol=1e-3)
    assert float((with_adapter - golden.tensors["single.logits"]).abs().max()) > 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "PREFIX_TUNING"}, "peft_type is 'PREFIX_TUNING'"),
        ({"use_dora": True}, "use_dora is True"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save is \['lm_head'\]"),
        ({"rank_pattern": {"dense": 8}}, "rank_pattern"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
    ],
)
def test_other_kinds_of_adapters_are_refused_by_name(
    goldens: dict[str, Golden], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    source = trained(goldens["chatglm2"], tmp_path / "adapter")
    change_config(source, "adapter_config.json", **change)
    with pytest.raises(ConfigError, match=message):
        convert_adapter(source, goldens["chatglm2"].folder, tmp_path / "out")


def test_adapters_that_do_not_fit_the_base_are_refused(goldens: dict[str, Golden], tmp_path: Path) -> None:
    chatglm2, baichuan2 = goldens["chatglm2"], goldens["baichuan2"]
    source, out = trained(chatglm2, tmp_path / "adapter"), tmp_path / "out"
    with pytest.raises(DataError, match=r"dense_4h_to_h.*which no layer of Baichuan2-7B-Chat has"):
        convert_adapter(source, baichuan2.folder, out)
    with pytest.raises(ConfigError, match=r"not a converted model \(conversion\.json is missing\)"):
        convert_adapter(source, chatglm2.source, out)
    with pytest.raises(ConfigError, match=r"it has no adapter_config\.json"):
        convert_adapter(chatglm2.folder, chatglm2.folder, out)
    path = source / "adapter_model.safetensors"
    whole = load_file(path)
    key = next(key for key in whole if "query_key_value.lora_B" in key)

    def refused(change: Callable[[dict[str, torch.Tensor]], Any], message: str) -> None:
        tensors = dict(whole)
        change(tensors)
        save_file(tensors, path)
        with pytest.raises(DataError, match=message):
            convert_adapter(source, chatglm2.folder, out)

    refused(lambda tensors: tensors.pop(key), "query_key_value has only one of lora_A and lora_B")
    refused(lambda tensors: tensors.update({key: torch.zeros(7, RANK)}), r"lora_B \[7, 4\] do not fit \[128, 64\]")
    refused(lambda tensors: tensors.update({"base_model.model.x": torch.zeros(1)}), "holds .*base_model.model.x")
    refused(lambda tensors: tensors.clear(), "holds no tensors")
    assert not out.exists()
