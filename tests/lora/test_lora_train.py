"""The loss by hand, equal however a step is divided; training on few pairs; the adapter that comes out."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lora_tiny import make_tokenizer, open_tiny, quick, save_model

from dmnrag.errors import ConfigError, DataError
from dmnrag.llm.adapters import attach_adapter
from dmnrag.llm.encoding import PromptEncoder
from dmnrag.training.doctor import TrainingError
from dmnrag.training.lora import LoraRows, rate_of_step, train_lora
from dmnrag.training.lora_examples import LoraExample
from dmnrag.training.lora_model import LoraModel, precision_of
from dmnrag.training.lora_rows import Row, collate, encode_rows
from dmnrag.training.lora_settings import LoraSettings
from dmnrag.types import Prompt

PAIRS = (
    ("高血压怎么办", "少吃盐"),
    ("感冒发烧", "多喝水，注意休息"),
    ("失眠多梦能喝酒吗", "不要喝酒"),
    ("贫血", "去医院检查"),
)


def make_rows(settings: LoraSettings) -> list[Row]:
    examples = [LoraExample(q, Prompt(q), a) for q, a in PAIRS]
    return encode_rows(examples, PromptEncoder(make_tokenizer()), 2, settings)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_loss_is_that_of_each_answer_token_by_itself(kind: str, tmp_path: Path) -> None:
    """Oracle: every row alone, without padding, all logits, minus the log probability of each learnt token."""
    rows = make_rows(quick())
    local = open_tiny(save_model(tmp_path / "m", kind=kind))
    expected = 0.0
    with torch.no_grad():
        for row in rows:
            scores = local.model(torch.tensor([row.ids])).logits[0].log_softmax(-1)
            for place in range(len(row.ids) - row.n_answer, len(row.ids)):
                expected -= float(scores[place - 1, row.ids[place]])
    model = LoraModel(local, quick())
    model.training(False)
    with torch.no_grad():
        found = float(model.summed_loss(collate(rows, model.pad_id)))
    assert found == pytest.approx(expected, abs=1e-4)


def trained_weights(folder: Path, llm: str, rows: list[Row], settings: LoraSettings) -> dict[str, torch.Tensor]:
    model = LoraModel(open_tiny(llm), settings)
    train_lora(model, LoraRows(rows), folder, settings)
    return {name: weight.detach().clone() for name, weight in model.trained.items()}


def test_a_step_is_the_same_however_it_is_divided(llm: str, tmp_path: Path) -> None:
    """Also with answers of different lengths: each token counts the same."""
    found = []
    for number, (size, batches) in enumerate(((4, 1), (2, 2), (1, 4))):
        settings = quick(batch_size=size, gradient_accumulation=batches, dropout=0.0, dev_questions=0)
        found.append(trained_weights(tmp_path / str(number), llm, make_rows(settings), settings))
    for other in found[1:]:
        for name, weight in found[0].items():
            assert torch.allclose(weight, other[name], atol=1e-5), name


def test_gradient_checkpointing_changes_nothing(llm: str, tmp_path: Path) -> None:
    without, with_it = (
        trained_weights(tmp_path / str(on), llm, make_rows(quick()), quick(gradient_checkpointing=on, dropout=0.3))
        for on in (False, True)
    )
    assert all(torch.allclose(weight, with_it[name], atol=1e-6) for name, weight in without.items())


@pytest.mark.parametrize(("on", "n_runs"), [(False, 1), (True, 2)])
def test_gradient_checkpointing_runs_a_layer_again_on_the_way_back(llm: str, on: bool, n_runs: int) -> None:
    local = open_tiny(llm)
    model = LoraModel(local, quick(gradient_checkpointing=on))
    runs: list[int] = []
    local.model.model.layers[0].input_layernorm.register_forward_hook(lambda *_: runs.append(1))
    model.training(True)
    model.summed_loss(collate(make_rows(quick()), model.pad_id)).backward()
    assert len(runs) == n_runs


def test_a_few_pairs_are_learnt_and_then_generated(llm: str, tmp_path: Path) -> None:
    settings = quick(
        epochs=150, rank=16, alpha=32.0, dropout=0.0, batch_size=4, gradient_accumulation=1, learning_rate=2e-2,
        evaluate_steps=75, checkpoint_steps=1000,
    )  # fmt: skip
    local = open_tiny(llm)
    model = LoraModel(local, settings)
    rows = make_rows(settings)
    result = train_lora(model, LoraRows(rows, rows, rows[::-1]), tmp_path / "run", settings)
    assert result.losses.untrained is not None
    assert result.losses.best is not None
    assert result.losses.best < 0.1 < result.losses.untrained
    assert result.losses.best == min(entry["dev_loss"] for entry in result.history)
    (tmp_path / "adapter").mkdir()
    model.save(tmp_path / "adapter")
    adapted = attach_adapter(open_tiny(llm).model, tmp_path / "adapter")
    for row in rows:
        prompt = torch.tensor([row.ids[: -row.n_answer]])
        made = adapted.generate(input_ids=prompt, max_new_tokens=row.n_answer, do_sample=False)
        assert tuple(made[0].tolist()) == row.ids


def test_the_best_weights_are_kept_and_patience_ends_the_run(llm: str, tmp_path: Path) -> None:
    """The dev rows contradict the training rows: each step makes the dev loss worse."""
    settings = quick(epochs=30, evaluate_steps=2, patience=2, learning_rate=2e-2, dropout=0.0, warmup_share=0.0)
    rows = make_rows(settings)
    ids = rows[0].ids
    wrong = [Row((*ids[: -rows[0].n_answer], *reversed(ids[-rows[0].n_answer :])), rows[0].n_answer, cut=False)]
    model = LoraModel(open_tiny(llm), settings)
    result = train_lora(model, LoraRows(rows, wrong), tmp_path / "run", settings)
    by_step = {entry["step"]: entry["dev_loss"] for entry in result.history if entry["step"]}
    assert result.best_step == min(by_step, key=lambda step: by_step[step])
    assert result.n_steps == result.best_step + 2 * settings.evaluate_steps < 30
    model.training(False)
    with torch.no_grad():
        loss = float(model.summed_loss(collate(wrong, model.pad_id))) / wrong[0].n_answer
    assert loss == pytest.approx(by_step[result.best_step], abs=1e-5)


def test_an_adapter_starts_as_the_base_model_and_follows_the_seed(llm: str) -> None:
    models = [LoraModel(open_tiny(llm), quick(seed=seed)) for seed in (1, 1, 2)]
    firsts = [[weight for name, weight in model.trained.items() if "lora_A" in name] for model in models]
    assert all(torch.equal(a, b) for a, b in zip(firsts[0], firsts[1], strict=True))
    assert not torch.equal(firsts[0][0], firsts[2][0])
    assert all(not weight.any() for name, weight in models[0].trained.items() if "lora_B" in name)


def test_the_folder_is_peft_s_and_the_same_each_time(llm: str, tmp_path: Path) -> None:
    content = []
    for number in (0, 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        LoraModel(open_tiny(llm), quick()).save(folder)
        content.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert content[0] == content[1]
    assert set(content[0]) == {"adapter_config.json", "adapter_model.safetensors"}
    config = json.loads(content[0]["adapter_config.json"])
    wanted = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert (config["peft_type"], config["target_modules"], config["inference_mode"]) == ("LORA", wanted, True)


def test_a_loss_that_is_no_number_stops_the_run(llm: str, tmp_path: Path) -> None:
    local = open_tiny(llm)
    local.model.lm_head.weight.data[:] = float("nan")
    settings = quick()
    with pytest.raises(TrainingError, match="loss of step 1 is nan: lower the learning rate"):
        train_lora(LoraModel(local, settings), LoraRows(make_rows(settings)), tmp_path / "run", settings)


def test_a_base_model_that_computes_nan_is_refused_before_the_first_step(llm: str, tmp_path: Path) -> None:
    local = open_tiny(llm)
    local.model.lm_head.weight.data[:] = float("nan")
    rows = make_rows(quick())
    with pytest.raises(TrainingError, match="loss of step 0 is nan"):
        train_lora(LoraModel(local, quick()), LoraRows(rows, rows), tmp_path / "run", quick())


def test_masked_rows_are_refused(llm: str, tmp_path: Path) -> None:
    settings = quick()
    rows = [Row((1, 9, 2), 1, cut=False)] * 3
    with pytest.raises(DataError, match="all labels are masked"):
        train_lora(LoraModel(open_tiny(llm), settings), LoraRows(rows), tmp_path / "run", settings)


def test_the_rate_rises_and_falls_in_straight_lines() -> None:
    settings: Any = quick(learning_rate=1.0, warmup_share=0.3)
    # 10 steps, 3 of warm-up: 1/4, 2/4, 3/4, then 7/7 down to 1/7.
    rates = [rate_of_step(step, 10, settings) for step in range(10)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7])


def test_four_bits_need_a_gpu_and_the_cpu_computes_in_fp32() -> None:
    with pytest.raises(ConfigError, match="four_bit needs a CUDA GPU"):
        precision_of(quick(four_bit=True), "cpu")
    assert precision_of(quick(), "cpu") == ("cpu", "float32")
    assert precision_of(quick(precision="bf16"), "cpu") == ("cpu", "bfloat16")


def test_bf16_trains_on_the_cpu_too(llm: str, tmp_path: Path) -> None:
    from dmnrag.llm.base_model import open_local

    settings = quick(precision="bf16", epochs=20)
    model = LoraModel(open_local(llm, device="cpu", dtype="bfloat16"), settings)
    assert {weight.dtype for weight in model.trained.values()} == {torch.float32}
    rows = make_rows(settings)
    losses = train_lora(model, LoraRows(rows, rows), tmp_path / "run", settings).losses
    assert losses.best is not None
    assert losses.untrained is not None
    assert losses.best < losses.untrained
