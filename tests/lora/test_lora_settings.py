"""Settings that cannot be, and the layers of each architecture."""

from typing import Any

import pytest
import torch
from lora_tiny import quick

from dmnrag.errors import ConfigError
from dmnrag.training.lora_settings import LoraSettings
from dmnrag.training.lora_targets import TARGETS, choose_targets

SIZES: dict[str, Any] = {
    "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 0,
}  # fmt: skip


def make(model_type: str, **changes: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **(SIZES | changes)))


@pytest.mark.parametrize("model_type", list(TARGETS))
def test_named_layers_are_all_linear_layers_of_the_blocks(model_type: str) -> None:
    """What is written down for an architecture is what an inspection of the installed class finds."""
    model = make(model_type)
    named = choose_targets(model)
    assert named == TARGETS[model_type]
    model.config.model_type = "unknown"
    assert set(choose_targets(model)) == set(named)


def test_an_unknown_architecture_is_inspected_and_its_output_layer_left() -> None:
    assert "olmo2" not in TARGETS
    found = choose_targets(make("olmo2"))
    assert set(found) == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert set(choose_targets(make("gpt2", n_embd=16, n_layer=2, n_head=2))) == {"c_attn", "c_proj", "c_fc"}


def test_routers_get_no_update() -> None:
    model = make("mixtral", num_local_experts=2, num_experts_per_tok=1)
    assert not {"gate", "router"} & set(choose_targets(model))


def test_the_caller_may_choose_among_those_there() -> None:
    model = make("llama")
    assert choose_targets(model, ("q_proj", "v_proj")) == ("q_proj", "v_proj")
    with pytest.raises(ConfigError, match=r"no linear layer query_key_value in its blocks: allowed are q_proj, k_proj"):
        choose_targets(model, ("query_key_value",))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rank", 0, "whole numbers from 1"),
        ("alpha", 0.0, "numbers above 0"),
        ("dropout", 1.0, "from 0, below 1"),
        ("epochs", True, "whole numbers"),
        ("learning_rate", float("nan"), "numbers above 0"),
        ("precision", "fp16", "auto, fp32, bf16"),
        ("max_length", 8, "from 32"),
        ("answer_tokens", 1, "from 2"),
        ("target_modules", ["q_proj"], "names of linear layers"),
        ("seed", -1, "from 0"),
    ],
)
def test_unusable_values_are_named(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} is .*{message}"):
        quick(**{name: value})


def test_the_answer_may_take_half_at_most() -> None:
    with pytest.raises(ConfigError, match="answer_tokens is 113 of max_length 224"):
        quick(answer_tokens=113)


def test_settings_survive_json() -> None:
    settings = quick(target_modules=("q_proj",))
    assert LoraSettings.from_dict(settings.to_dict()) == settings
    with pytest.raises(ConfigError, match="no setting epoch: allowed"):
        LoraSettings.from_dict({"epoch": 1})
