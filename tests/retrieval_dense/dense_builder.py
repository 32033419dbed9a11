"""Builds embedded dense indexes from plain lists, in one or several segments."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from dmnrag.retrieval.dense import DenseSettings, EncodedDocuments, FaissDenseIndex, write_vectors
from dmnrag.retrieval.table import DocumentTable
from dmnrag.testing.dense_contract import VectorDocument

EXACT = DenseSettings()
HNSW = DenseSettings(kind="hnsw", hnsw_m=8, hnsw_ef_construction=40, hnsw_ef_search=32)


def encoded(documents: Sequence[VectorDocument]) -> EncodedDocuments:
    sizes = [len(document.parts) for document in documents]
    vectors = np.concatenate([document.parts for document in documents])
    return EncodedDocuments(vectors, np.repeat(np.arange(len(documents), dtype=np.int64), sizes), n_long=0)


def write_segments(
    folder: Path, documents: Sequence[VectorDocument], n_segments: int, settings: DenseSettings
) -> list[Path]:
    bounds = np.linspace(0, len(documents), n_segments + 1).astype(int)
    folders = []
    for number, (start, end) in enumerate(pairwise(bounds)):
        folders.append(folder / f"{number:03d}")
        write_vectors(folders[-1], encoded(documents[start:end]), settings)
    return folders


def table_of(documents: Sequence[VectorDocument]) -> DocumentTable:
    live = np.array([not document.removed for document in documents])
    return DocumentTable.from_lists([d.doc_id for d in documents], [d.domain for d in documents], live)


def build_dense(
    folder: Path, documents: Sequence[VectorDocument], n_segments: int = 1, settings: DenseSettings = EXACT
) -> FaissDenseIndex:
    return FaissDenseIndex(write_segments(folder, documents, n_segments, settings), table_of(documents), settings)
