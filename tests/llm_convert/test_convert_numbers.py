"""Converted models against numbers of the original code (../shared/golden), and controls that must differ."""

from pathlib import Path
from typing import Any

import pytest
import torch
from convert_checkpoints import Golden, load_model

from dmnrag.llm.convert import folder as folders
from dmnrag.llm.convert import weights as weight_writer
from dmnrag.llm.convert.checkpoint import Checkpoint

ATOL = 1e-4


def logits(model: Any, ids: torch.Tensor, **arguments: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=ids, **arguments).logits
    return found


def largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


def test_logits_of_one_text_equal_the_originals(golden: Golden) -> None:
    ids = golden.tensors["single.input_ids"]
    assert largest(logits(golden.model, ids), golden.tensors["single.logits"]) <= ATOL
    long = logits(golden.model, golden.tensors["long.input_ids"])[:, -4:]
    assert largest(long, golden.tensors["long.logits_last4"]) <= ATOL


@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_of_padded_batches_equal_the_originals(golden: Golden, side: str) -> None:
    given = golden.tensors
    mask = given[f"{side}.attention_mask"]
    positions = {"position_ids": given["left.position_ids"]} if side == "left" else {}
    found = logits(golden.model, given[f"{side}.input_ids"], attention_mask=mask, **positions)
    assert largest(found[mask.bool()], given[f"{side}.logits"][mask.bool()]) <= ATOL


def test_hidden_states_of_every_block_equal_the_originals(golden: Golden) -> None:
    with torch.inference_mode():
        found = golden.model(golden.tensors["single.input_ids"], output_hidden_states=True).hidden_states
    wanted = golden.tensors["single.hidden_states"]
    assert len(found) == len(wanted)
    # The last one is after the final norm here, before it in ChatGLM2's code.
    for own, theirs in zip(found[:-1], wanted[:-1], strict=True):
        assert largest(own, theirs) <= ATOL


def test_the_training_loss_equals_the_originals(golden: Golden) -> None:
    given = golden.tensors
    with torch.inference_mode():
        found = golden.model(
            input_ids=given["right.input_ids"],
            attention_mask=given["right.attention_mask"],
            labels=given["right.labels"],
        ).loss
    assert largest(found, given["right.loss"][0]) <= ATOL


@pytest.mark.parametrize(("name", "penalty"), [("", 1.0), ("_rp105", 1.05), ("_rp150", 1.5)])
def test_greedy_tokens_equal_the_originals(golden: Golden, name: str, penalty: float) -> None:
    wanted = golden.tensors[f"gen_single{name}.sequences"]
    found = generate(golden.model, golden.tensors["single.input_ids"], repetition_penalty=penalty)
    assert found.sequences.tolist() == wanted.tolist()


def test_greedy_tokens_of_a_left_padded_batch_equal_the_originals(golden: Golden) -> None:
    given = golden.tensors
    found = generate(golden.model, given["left.input_ids"], attention_mask=given["left.attention_mask"])
    assert found.sequences.tolist() == given["gen_left.sequences"].tolist()
    steps = torch.stack(found.logits, dim=1)
    assert largest(steps, given["gen_left.step_logits"]) <= ATOL


def generate(model: Any, ids: torch.Tensor, **arguments: Any) -> Any:
    from transformers import GenerationConfig

    config = GenerationConfig(
        do_sample=False, max_new_tokens=16, eos_token_id=model.config.vocab_size - 1, pad_token_id=0,
        repetition_penalty=arguments.pop("repetition_penalty", 1.0), temperature=1.0, top_p=1.0, top_k=50,
        return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip
    before, model.generation_config = model.generation_config, config
    try:
        return model.generate(input_ids=ids, **arguments)
    finally:
        model.generation_config = before


def test_the_head_of_baichuan2_is_the_one_its_first_evaluation_leaves(goldens: dict[str, Golden]) -> None:
    golden = goldens["baichuan2"]
    assert largest(golden.model.lm_head.weight.detach(), golden.tensors["lm_head_normalised"]) == 0.0


@pytest.mark.parametrize(
    ("dtype", "name", "atol"), [(torch.bfloat16, "bf16", 0.15), (torch.float16, "fp16", 0.02)], ids=["bf16", "fp16"]
)
def test_half_precision_is_as_near_to_float32_as_the_originals(
    golden: Golden, dtype: torch.dtype, name: str, atol: float
) -> None:
    model = load_model(golden.folder).to(dtype)
    found = logits(model, golden.tensors["single.input_ids"]).float()
    exact = golden.tensors["single.logits"]
    assert largest(found, exact) <= 1.6 * largest(golden.tensors[f"{name}.single.logits"], exact) <= 1.6 * atol


# Controls: what would go wrong if a rule of the conversion were left out. The figures are those of FACTS-llms.md.


def test_control_a_head_that_is_not_normalised_differs(
    goldens: dict[str, Golden], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = goldens["baichuan2"]
    monkeypatch.setattr(weight_writer, "_stock", lambda tensor, target: tensor[target.start : target.stop].contiguous())
    folders.convert_checkpoint(golden.source, tmp_path / "out")
    difference = largest(
        logits(load_model(tmp_path / "out"), golden.tensors["single.input_ids"]), golden.tensors["single.logits"]
    )
    assert difference == pytest.approx(1.32, abs=0.01)


def test_control_gate_and_up_swapped_differ(goldens: dict[str, Golden]) -> None:
    golden = goldens["chatglm2"]
    model = load_model(golden.folder)
    for layer in model.model.layers:
        gate, up = layer.mlp.gate_up_proj.weight.data.chunk(2)
        layer.mlp.gate_up_proj.weight.data = torch.cat([up, gate])
    difference = largest(logits(model, golden.tensors["single.input_ids"]), golden.tensors["single.logits"])
    assert difference == pytest.approx(4.97, abs=0.01)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"rms_norm_eps": 1.5625e-7}, 8.3e-5),  # GLM-4's
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}}, 3.06),
    ],
    ids=["eps", "whole-head-rotated"],
)
def test_control_defaults_of_glm_4_differ(
    goldens: dict[str, Golden], change: dict[str, Any], difference: float
) -> None:
    golden = goldens["chatglm2"]
    found = logits(load_model(golden.folder, **change), golden.tensors["single.input_ids"])
    assert largest(found, golden.tensors["single.logits"]) == pytest.approx(difference, rel=0.02)
    # The wrong eps hides below the tolerance: only that the right one gives the very same numbers shows it.
    right = logits(golden.model, golden.tensors["single.input_ids"])
    assert largest(right, golden.tensors["single.logits"]) < 1e-5


def test_every_original_number_is_in_the_stock_model_once(golden: Golden) -> None:
    original = Checkpoint.of_model(golden.source)
    n_original = sum(original[key].numel() for key in original.keys() if "inv_freq" not in key)  # noqa: SIM118
    assert sum(weight.numel() for weight in golden.model.state_dict().values()) == n_original
