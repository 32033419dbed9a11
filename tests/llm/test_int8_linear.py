"""int8 linear layers: what they compute, where they are refused."""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from llm_tiny_models import make_model, make_tokenizer, save_tiny

from dmnrag._openvino import rounded
from dmnrag.errors import ConfigError, MissingDependencyError
from dmnrag.llm import int8, make_generator
from dmnrag.llm.int8 import round_linear_layers
from dmnrag.llm.transformers_lm import TransformersGenerator
from dmnrag.protocols import Generator
from dmnrag.testing.generator_contract import GeneratorContract
from dmnrag.types import GenerationSettings, Prompt

if find_spec("openvino") is None:  # not imported: only `load_openvino` leaves its telemetry out
    pytest.skip("needs the extra int8", allow_module_level=True)
SETTINGS = GenerationSettings(max_tokens=8, temperature=0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "model")


def test_weights_have_a_scale_for_each_output() -> None:
    weights = np.array([[1.27, -0.5, 0.004], [0.0, 0.0, 0.0], [-254.0, 2.0, 3.1]], np.float32)
    whole, scales = rounded(weights)
    # 1.27 / 127 = .01 and 254 / 127 = 2: -.5 / .01 = -50, .004 / .01 = .4, 3.1 / 2 = 1.55
    assert whole.tolist() == [[127, -50, 0], [0, 0, 0], [-127, 1, 2]]
    assert scales.ravel().tolist() == pytest.approx([0.01, 1.0, 2.0])


def test_blocks_of_rows_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(0).standard_normal((10, 6)).astype(np.float32)
    wanted = rounded(weights)
    monkeypatch.setattr("dmnrag._openvino._BLOCK_ROWS", 3)
    for one, other in zip(rounded(weights), wanted, strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("round_inputs", [True, False])
def test_a_layer_computes_the_product_of_rounded_weights(round_inputs: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 40)
    whole, scales = rounded(layer.weight.detach().numpy())
    stored = torch.from_numpy(whole * scales)
    inputs = torch.randn(2, 5, 64)
    with torch.inference_mode():
        found = int8._int8_linear()(layer, round_inputs=round_inputs)(inputs)
        wanted = torch.nn.functional.linear(inputs, stored, layer.bias)
    assert found.shape == wanted.shape
    # Rounding 64 inputs to 8 bits errs by less than 1 % of the outputs' size; not at all where they are kept.
    error = float((found - wanted).norm() / wanted.norm())
    assert error < (0.02 if round_inputs else 1e-6)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(0)
    layer = int8._int8_linear()(torch.nn.Linear(64, 40), round_inputs=True)
    rows = torch.randn(7, 64)
    with torch.inference_mode():
        together = layer(rows * torch.tensor([1, 1, 1, 1, 1, 1, 1000.0])[:, None])
        alone = torch.cat([layer(row[None]) for row in rows[:6]])
    assert torch.allclose(together[:6], alone, rtol=1e-5, atol=1e-5)


def test_scores_stay_near_those_of_fp32_and_every_linear_layer_is_replaced() -> None:
    tokenizer = make_tokenizer()
    model = make_model("llama", vocab_size=len(tokenizer))
    ids = torch.arange(10, 40)[None]
    with torch.inference_mode():
        exact = model(ids).logits
        found = round_linear_layers(model, "tiny")(ids).logits
    assert not [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    error = float((found - exact).norm() / exact.norm())
    assert 0 < error < 0.1


def test_int8_is_named_behind_the_model(folder: Path) -> None:
    spec = f"{folder}:int8"
    generator = make_generator(spec)
    assert generator.name == spec
    assert isinstance(generator, TransformersGenerator)
    assert type(generator.model.lm_head).__name__ == "Int8Linear"
    assert generator.model.get_input_embeddings().weight.dtype == torch.float32
    by_argument = make_generator(str(folder), dtype="int8")
    prompts = [Prompt("头疼"), Prompt("血压高怎么办" * 4)]
    assert by_argument.generate(prompts, SETTINGS) == generator.generate(prompts, SETTINGS)


class TestInt8(GeneratorContract):
    """The contract without the equality of batches, which int8 does not promise; tiny models keep it."""

    @pytest.fixture
    def generator(self) -> Generator:
        tokenizer = make_tokenizer()
        model = round_linear_layers(make_model("llama", vocab_size=len(tokenizer)), "tiny")
        return TransformersGenerator(model, tokenizer, name="int8", batch_size=2)


def test_int8_is_refused_where_it_cannot_act(folder: Path, tmp_path: Path) -> None:
    for spec in ("fake:int8", "openai:m@http://127.0.0.1:9/v1:int8"):
        with pytest.raises(ConfigError, match=r"a precision \(int8\) is for models that are loaded here"):
            make_generator(spec)
    with pytest.raises(ConfigError, match="names the precision int8, and bfloat16 is given too"):
        make_generator(f"{folder}:int8", dtype="bfloat16")
    with pytest.raises(ConfigError, match="int8 is for CPUs and the device is 'cuda:0'"):
        make_generator(f"{folder}:int8", device="cuda:0")
    other = save_tiny(tmp_path / "gpt2", kind="gpt2")
    with pytest.raises(ConfigError, match=r"linear layers, which hold \d+% of the weights"):
        make_generator(f"{other}:int8")


def test_a_model_that_bears_no_rounding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = make_tokenizer()
    monkeypatch.setattr(int8, "_LEAST_COSINE", 1.1)
    with pytest.raises(ConfigError, match="int8 changes what 'tiny' computes too much"):
        round_linear_layers(make_model("llama", vocab_size=len(tokenizer)), "tiny")


def test_a_missing_openvino_is_told_with_its_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'dmnrag\[int8\]'"):
        make_generator(f"{folder}:int8")


@pytest.mark.parametrize("name", ["bfloat16", "float32"])
def test_other_precisions_are_named_the_same_way(folder: Path, name: str) -> None:
    generator = make_generator(f"{folder}:{name}")
    assert isinstance(generator, TransformersGenerator)
    assert generator.model.dtype == getattr(torch, name)
    assert generator.name == f"{folder}:{name}"
