"""Weighted terms."""

from math import log, sqrt

import numpy as np
import pytest

from dmnrag.domain.terms import TermWeights, term_segmenter

SEGMENTER = term_segmenter(simplify=False)


def learn(texts: list[str], max_terms: int = 100) -> TermWeights:
    return TermWeights.learn(texts, SEGMENTER, max_terms)


def test_terms_are_those_of_two_texts_most_frequent_first_ties_by_term() -> None:
    weights = learn(["咳嗽 fever", "咳嗽 cold", "fever 咳", "cold"])
    # df: 咳 3, cold 2, fever 2, 咳嗽 2, 嗽 2
    assert list(weights.numbers) == ["咳", "cold", "fever", "咳嗽", "嗽"]
    assert weights.idf.tolist() == pytest.approx([log(5 / 4) + 1] + [log(5 / 3) + 1] * 4, abs=1e-6)
    assert weights.unknown_idf == pytest.approx(log(5 / 2) + 1)


def test_max_terms_keeps_the_most_frequent() -> None:
    assert list(learn(["a b", "a b", "a"], 1).numbers) == ["a"]


def test_values_by_hand() -> None:
    weights = learn(["a b", "a b", "c d"])
    # idf of a and b: ln(4/3) + 1 = 1.2877; of an unknown term ln(4/2) + 1 = 1.6931
    # text "a a b z": a = (1 + ln 2) * 1.2877, b = 1.2877, z = 1.6931 counts in the length alone
    a, b, z = (1 + log(2)) * (log(4 / 3) + 1), log(4 / 3) + 1, log(2) + 1
    length = sqrt(a * a + b * b + z * z)
    ids, values = weights.vector("a a b z")
    assert dict(zip(ids.tolist(), values.tolist(), strict=True)) == pytest.approx(
        {weights.numbers["a"]: a / length, weights.numbers["b"]: b / length}
    )


def test_unknown_words_shorten_the_vector() -> None:
    weights = learn(["a b", "a b"])
    lengths = [np.linalg.norm(weights.vector(text)[1]) for text in ("a", "a x", "a x y z", "x y")]
    assert lengths[0] == pytest.approx(1)
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] == 0


@pytest.mark.parametrize("text", ["", "?!", " \n"])
def test_a_text_without_terms_is_an_empty_row(text: str) -> None:
    ids, values = learn(["a b", "a b"]).vector(text)
    assert len(ids) == len(values) == 0


def test_matrix_rows_are_the_vectors() -> None:
    weights = learn(["咳嗽 a", "咳嗽 b", "a b"])
    texts = ["咳嗽咳嗽 a", "", "zzz b"]
    matrix = weights.matrix(texts).toarray()
    assert matrix.shape == (3, len(weights.idf))
    for row, text in zip(matrix, texts, strict=True):
        ids, values = weights.vector(text)
        assert row[ids].tolist() == values.tolist()
        assert np.count_nonzero(row) == len(ids)


def test_traditional_characters_are_read_as_simplified_ones_where_asked() -> None:
    weights = TermWeights.learn(["头痛", "头痛"], term_segmenter(simplify=True), 10)
    assert len(weights.vector("頭痛")[0]) == len(weights.vector("头痛")[0]) == 3
