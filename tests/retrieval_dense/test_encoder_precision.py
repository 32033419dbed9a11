"""Passages in bf16 and int8: close to fp32, queries untouched."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models

from dmnrag.errors import ConfigError, MissingDependencyError
from dmnrag.retrieval.dense import make_encoder
from dmnrag.retrieval.dense.encoder import SentenceTransformerEncoder

TEXTS = ["高血压吃药", "头痛", "劳动合同怎么办。" * 4, "abc def", "", "头痛怎么办", "休息"] * 5

# Random weights scatter the outputs of a layer, so rounding costs them more than it costs a trained model.
LEAST_COSINE = {"bf16": 0.999, "int8": 0.99}

needs_openvino = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="needs the extra int8")
PRECISIONS = ["bf16", pytest.param("int8", marks=needs_openvino)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prompts = {"query": "a: ", "document": "b: "}
    return tiny_models.write_encoder(tmp_path_factory.mktemp("tiny"), prompts, hidden_size=64, intermediate_size=128)


@pytest.fixture(scope="module")
def exact(folder: Path) -> Any:
    return make_encoder(str(folder), device="cpu", threads=1)


@pytest.fixture(scope="module")
def rounded(folder: Path) -> Any:
    made: dict[str, Any] = {}

    def encoder(precision: Any) -> Any:
        if precision not in made:
            made[precision] = make_encoder(str(folder), precision=precision, device="cpu", batch_size=4, threads=1)
        return made[precision]

    return encoder


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_passages_are_close_to_fp32_but_not_equal(precision: str, exact: Any, rounded: Any) -> None:
    expected, found = exact.encode_passages(TEXTS), rounded(precision).encode_passages(TEXTS)
    assert found.dtype == np.float32
    assert cosines(expected, found).min() > LEAST_COSINE[precision]
    assert not np.allclose(expected, found, atol=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_queries_stay_fp32_before_and_after_passages(precision: str, exact: Any, rounded: Any) -> None:
    encoder = rounded(precision)
    before = encoder.encode_queries(TEXTS)
    encoder.encode_passages(TEXTS[:3])
    np.testing.assert_allclose(before, exact.encode_queries(TEXTS), atol=1e-5)
    np.testing.assert_array_equal(encoder.encode_queries(TEXTS), before)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_neighbours_change_a_vector_by_no_more_than_rounding_does(precision: str, rounded: Any) -> None:
    encoder = rounded(precision)
    alone = np.concatenate([encoder.encode_passages([text]) for text in TEXTS[:7]])
    assert cosines(encoder.encode_passages(TEXTS)[:7], alone).min() > LEAST_COSINE[precision]


@needs_openvino
def test_a_trained_folder_with_two_encoders_rounds_the_one_for_passages(tmp_path: Path, folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Router

    towers = [SentenceTransformer(str(folder), device="cpu") for _ in range(2)]
    routed = Router.for_query_document([towers[0][0]], [towers[1][0]])
    made = SentenceTransformer(modules=[routed, towers[0][1]], prompts=towers[0].prompts, device="cpu")
    made.save(str(tmp_path / "two"), create_model_card=False)
    exact, int8 = (make_encoder(str(tmp_path / "two"), precision=p, device="cpu") for p in ("fp32", "int8"))
    np.testing.assert_array_equal(int8.encode_queries(TEXTS), exact.encode_queries(TEXTS))
    found = cosines(exact.encode_passages(TEXTS), int8.encode_passages(TEXTS))
    assert LEAST_COSINE["int8"] < found.min() < 1 - 1e-6


@needs_openvino
def test_openvinos_telemetry_is_never_loaded(rounded: Any) -> None:
    rounded("int8")
    assert "openvino_telemetry" not in sys.modules


@needs_openvino
def test_a_network_that_bears_no_rounding_is_refused(tmp_path: Path, folder: Path) -> None:
    from safetensors.numpy import load_file, save_file

    copy = tiny_models.write_encoder(tmp_path, {}, hidden_size=64, intermediate_size=128)
    path = copy / "model.safetensors"
    weights = load_file(path)
    for name, values in weights.items():
        if name.endswith("intermediate.dense.weight"):
            values[:, 0] = 1e6  # sets the scale of all others, which round to 0
        elif "attention.output.LayerNorm" in name:
            values[0] = 0  # and is itself multiplied by 0
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"int8 changes what .* computes too much"):
        make_encoder(str(copy), precision="int8", device="cpu")


def test_int8_without_openvino_names_the_extra(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingDependencyError, match=r"dmnrag\[int8\]"):
        make_encoder(str(folder), precision="int8", device="cpu")


def test_what_has_no_such_precision_is_refused() -> None:
    with pytest.raises(ConfigError, match="precision is 'int4': allowed are fp32, bf16, int8"):
        make_encoder("fake", precision="int4")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'fake' has no int8"):
        make_encoder("fake", precision="int8")


def test_fp32_is_the_default(folder: Path, exact: SentenceTransformerEncoder) -> None:
    np.testing.assert_array_equal(
        make_encoder(str(folder), precision="fp32", device="cpu", threads=1).encode_passages(TEXTS),
        exact.encode_passages(TEXTS),
    )
