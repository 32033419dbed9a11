"""An encoding that was killed goes on where it stopped."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models

from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.dense import make_encoder
from dmnrag.retrieval.dense.encoder import SentenceTransformerEncoder
from dmnrag.retrieval.dense.resume import ResumableEncoder, resumable

N = 700
TEXTS = [f"{'头痛吃药'[i % 4]}{'abcdefgh'[i % 8]}{'高血压' * (i % 11)}{'a' * (i % 13)}" for i in range(N)]
N_DISTINCT = len(set(TEXTS))


class Counting(SentenceTransformerEncoder):
    """Remembers what it encoded, and is killed before a call."""

    encoded: list[str]
    calls_left = 1000

    def encode_passages(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> FloatMatrix:
        if not self.calls_left:
            raise KeyboardInterrupt
        self.calls_left -= 1
        self.encoded += texts
        return super().encode_passages(texts, progress)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write_encoder(tmp_path_factory.mktemp("tiny"), {})


@pytest.fixture
def encoder(folder: Path) -> Counting:
    return counting(folder)


def counting(folder: Path, **settings: Any) -> Counting:
    loaded = make_encoder(str(folder), device="cpu")
    assert isinstance(loaded, SentenceTransformerEncoder)
    made = Counting(loaded.model, str(folder), threads=1, **settings)
    made.encoded = []
    return made


def test_a_killed_encoding_encodes_only_what_is_left(tmp_path: Path, encoder: Counting) -> None:
    expected = encoder.encode_passages(TEXTS)
    path = tmp_path / "new" / "vectors"
    encoder.encoded, encoder.calls_left = [], 1
    with pytest.raises(KeyboardInterrupt):
        ResumableEncoder(encoder, path).encode_passages(TEXTS)
    n_done, encoder.encoded, encoder.calls_left = len(encoder.encoded), [], 1000
    told: list[int] = []
    found = ResumableEncoder(encoder, path).encode_passages(TEXTS, told.append)
    assert 0 < n_done < N_DISTINCT
    assert len(encoder.encoded) == N_DISTINCT - n_done
    assert sum(told) == N
    np.testing.assert_allclose(found, expected, atol=2e-6)
    encoder.encoded = []
    np.testing.assert_array_equal(ResumableEncoder(encoder, path).encode_passages(TEXTS[::-1]), found[::-1])
    assert encoder.encoded == []


@pytest.mark.parametrize("damage", ["cut", "zeros", "bit"])
def test_a_damaged_record_is_encoded_again(tmp_path: Path, encoder: Counting, damage: str) -> None:
    path = tmp_path / "vectors"
    expected = ResumableEncoder(encoder, path).encode_passages(TEXTS[:9])
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[:-3]
    elif damage == "zeros":
        content[-20:] = bytes(20)
    else:
        content[-30] ^= 1
    path.write_bytes(content)
    encoder.encoded = []
    np.testing.assert_allclose(ResumableEncoder(encoder, path).encode_passages(TEXTS[:9]), expected, atol=2e-6)
    assert len(encoder.encoded) == 1
    encoder.encoded = []
    ResumableEncoder(encoder, path).encode_passages(TEXTS[:9])
    assert encoder.encoded == []


@pytest.mark.parametrize("settings", [{"max_tokens": 20}, {"precision": "bf16"}])
def test_another_encoders_vectors_are_not_used(
    tmp_path: Path, folder: Path, encoder: Counting, settings: dict[str, Any]
) -> None:
    path = tmp_path / "vectors"
    ResumableEncoder(encoder, path).encode_passages(TEXTS[:9])
    other = counting(folder, **settings)
    ResumableEncoder(other, path).encode_passages(TEXTS[:9])
    assert len(other.encoded) == 9


def test_fingerprint_goes_by_weights_not_by_name(tmp_path: Path, encoder: Counting, folder: Path) -> None:
    assert counting(folder).fingerprint() == encoder.fingerprint()
    encoder.model[0].model.encoder.layer[0].output.dense.weight.data[0, 0] += 1
    assert counting(folder).fingerprint() != encoder.fingerprint()


def test_the_rest_is_the_encoders(tmp_path: Path, encoder: Counting) -> None:
    wrapped = resumable(encoder, tmp_path / "vectors")
    assert (wrapped.name, wrapped.dimension, wrapped.max_tokens) == (
        encoder.name, encoder.dimension, encoder.max_tokens,
    )  # fmt: skip
    assert wrapped.passage_tokens(["头痛"]) == encoder.passage_tokens(["头痛"])
    np.testing.assert_array_equal(wrapped.encode_queries(["头痛"]), encoder.encode_queries(["头痛"]))
    assert wrapped.encode_passages([]).shape == (0, 16)


def test_an_encoder_without_weights_needs_no_file(tmp_path: Path) -> None:
    fake = make_encoder("fake")
    assert resumable(fake, tmp_path / "vectors") is fake
