"""Splitting what is longer than the encoder reads. The fake encoder's tokens are characters and two more."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.errors import ConfigError
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.dense import encode_documents, split_passage
from dmnrag.testing.fakes import HashEncoder

SHORT = HashEncoder(max_tokens=12)
"""Reads 10 characters."""


def test_text_that_fits_is_left_alone() -> None:
    assert split_passage("一二三。四五六七。八", SHORT) == ["一二三。四五六七。八"]


def test_sentences_are_put_together_as_long_as_they_fit() -> None:
    """4 + 5 = 9 characters fit, with the next 4 it were 13; 4 + 6 = 10 fit."""
    text = "一二三。四五六七。八九十。一二三四五。"
    assert split_passage(text, SHORT) == ["一二三。四五六七。", "八九十。一二三四五。"]


def test_long_sentence_is_halved() -> None:
    """16 characters without an end: two halves of 8."""
    assert split_passage("一二三四五六七八" * 2, SHORT) == ["一二三四五六七八"] * 2


def test_long_sentence_is_cut_at_the_space_nearest_its_middle() -> None:
    """12 characters, middle 6; behind the spaces are 4 and 7: the second is nearer."""
    assert split_passage("abc ef hijkl", SHORT) == ["abc ef ", "hijkl"]


@given(st.text(alphabet="甲乙 ab。！\n", max_size=120), st.integers(3, 20))
def test_parts_fit_and_give_the_text_back(text: str, max_tokens: int) -> None:
    encoder = HashEncoder(max_tokens=max_tokens)
    parts = split_passage(text, encoder)
    assert "".join(parts) == text
    assert all(n <= max_tokens for n in encoder.passage_tokens(parts))


class MergeableEncoder(HashEncoder):
    """Joined text may have more tokens than its pieces: every stop between characters counts three."""

    def passage_tokens(self, texts: list[str]) -> list[int]:  # type: ignore[override]
        return [len(text) + 2 + 2 * text[:-1].count("。") for text in texts]


def test_part_that_grew_by_joining_is_halved_again() -> None:
    """Alone each sentence has 3 tokens and the frame, so three are joined (9 <= 10); joined they have 13."""
    parts = split_passage("一二。三四。五六。", MergeableEncoder(max_tokens=12))
    assert "".join(parts) == "一二。三四。五六。"
    assert all(n <= 12 for n in MergeableEncoder(max_tokens=12).passage_tokens(parts))


def test_documents_are_encoded_in_parts_and_the_long_ones_counted() -> None:
    encoded = encode_documents(["短", "一二三四五六。七八九十。", "", "一二三四五六七八九。" * 3], SHORT)
    assert encoded.owners.tolist() == [0, 1, 1, 2, 3, 3, 3]
    assert (encoded.n_long, encoded.n_documents) == (2, 4)
    np.testing.assert_array_equal(encoded.vectors[[1, 2]], SHORT.encode_passages(["一二三四五六。", "七八九十。"]))
    assert encoded.vectors.dtype == np.float32


def test_progress_counts_texts_not_parts() -> None:
    told: list[int] = []
    encode_documents(["一二三四五六七八九。" * 3, "短", "短"], SHORT, told.append)
    assert sum(told) == 3
    assert min(told) >= 0


def test_no_texts_give_no_vectors() -> None:
    encoded = encode_documents([], SHORT)
    assert encoded.vectors.shape == (0, 256)
    assert (encoded.n_documents, encoded.n_long) == (0, 0)


class BrokenEncoder(HashEncoder):
    def encode_passages(self, texts: list[str], progress: object = None) -> FloatMatrix:  # type: ignore[override]
        return np.full((len(texts), self.dimension), np.nan, np.float32)


def test_vectors_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ConfigError, match="finite"):
        encode_documents(["短"], BrokenEncoder())


def test_fake_encoder_is_deterministic_and_of_length_1() -> None:
    vectors = HashEncoder().encode_queries(["高血压", "高血压", "", "\ud800"])
    np.testing.assert_array_equal(vectors[0], vectors[1])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
