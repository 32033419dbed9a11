"""The embedded index passes the contract of every BM25 backend, from one segment or several."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from sparse_builder import open_rows, rows_of

from dmnrag.protocols import SparseIndex
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.testing.sparse_contract import SparseContract
from dmnrag.types import Document


class TestEmbeddedSparseIndex(SparseContract):
    @pytest.fixture(autouse=True)
    def _keep_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def build(self, documents: Sequence[Document], *, k1: float, b: float, indexed_text: str) -> SparseIndex:
        return open_rows(self.folder, [rows_of(documents, indexed_text)], settings=Bm25Settings(k1, b))


class TestSeveralSegments(TestEmbeddedSparseIndex):
    def build(self, documents: Sequence[Document], *, k1: float, b: float, indexed_text: str) -> SparseIndex:
        rows = rows_of(documents, indexed_text)
        settings = Bm25Settings(k1, b)
        return open_rows(self.folder, [rows[:1], [], rows[1:3], rows[3:]], settings=settings)


class TestWithLuceneLengths(TestEmbeddedSparseIndex):
    """Lengths under 40 are exact in Lucene, so the contract's scores stay the same."""

    def build(self, documents: Sequence[Document], *, k1: float, b: float, indexed_text: str) -> SparseIndex:
        settings = Bm25Settings(k1, b, lucene_lengths=True)
        return open_rows(self.folder, [rows_of(documents, indexed_text)], settings=settings)
