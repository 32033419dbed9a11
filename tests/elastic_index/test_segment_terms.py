"""What a segment and a vector file hold of each document, read back by hand-made and random documents."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from cluster_corpus import many

from dmnrag.retrieval.dense import DenseSettings, EncodedDocuments, write_vectors
from dmnrag.retrieval.dense.vectors import document_vectors
from dmnrag.retrieval.sparse import merge_segments, write_segment
from dmnrag.retrieval.sparse.unpack import segment_terms
from dmnrag.text import SegmenterSettings, make_segmenter


def test_terms_of_text_and_labels_come_back_repeated_as_they_occur(tmp_path: Path) -> None:
    segmenter = make_segmenter(SegmenterSettings())
    write_segment(tmp_path / "s", [("胃疼胃疼 BMI", ("胃疼", "内科")), ("", ()), ("发烧", ("胃疼",))], segmenter)
    found = [(sorted(text), sorted(labels)) for text, labels in segment_terms(tmp_path / "s")]
    # 胃疼胃疼 is three pairs; 疼胃 stands between the two.
    assert found == [
        (["bmi", "疼胃", "胃疼", "胃疼"], ["内科", "胃疼"]),
        ([], []),
        (["发烧"], ["胃疼"]),
    ]


@pytest.mark.parametrize("block", [1, 7, 1000])
@pytest.mark.parametrize("segmenter", ["bigram", "jieba"])
def test_terms_are_the_segmenters_whatever_the_block(tmp_path: Path, block: int, segmenter: str) -> None:
    chosen = make_segmenter(SegmenterSettings(name=segmenter))  # type: ignore[arg-type]
    documents = [(d.question + d.answers[0], d.domain) for d in many(40)]
    write_segment(tmp_path / "s", documents, chosen)
    found = list(segment_terms(tmp_path / "s", block_documents=block))
    for (text, labels), (terms, of_labels) in zip(documents, found, strict=True):
        assert Counter(terms) == Counter(chosen.segment(text))
        assert Counter(of_labels) == Counter(term for label in labels for term in chosen.segment(label))


def test_terms_of_joined_segments_are_those_of_their_documents(tmp_path: Path) -> None:
    segmenter = make_segmenter(SegmenterSettings())
    documents = [(d.question, d.domain) for d in many(20)]
    write_segment(tmp_path / "a", documents[:12], segmenter)
    write_segment(tmp_path / "b", documents[12:], segmenter)
    live = np.arange(12) != 4
    merge_segments(tmp_path / "c", [tmp_path / "a", tmp_path / "b"], [live, None])
    found = [(Counter(text), Counter(labels)) for text, labels in segment_terms(tmp_path / "c")]
    kept = [document for number, document in enumerate(documents) if number != 4]
    assert found == [
        (Counter(segmenter.segment(text)), Counter(t for label in labels for t in segmenter.segment(label)))
        for text, labels in kept
    ]


def test_vectors_come_back_by_document(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    documents = [draw.normal(size=(n_parts, 3)).astype(np.float32) for n_parts in (1, 3, 1, 2)]
    owners = np.array([0, 1, 1, 1, 2, 3, 3])
    write_vectors(tmp_path / "v", EncodedDocuments(np.concatenate(documents), owners, 2), DenseSettings())
    for found, wanted in zip(document_vectors(tmp_path / "v"), documents, strict=True):
        np.testing.assert_array_equal(found, wanted)
