"""The embedded second layer fulfils the contract: exact and HNSW, in one segment and in three."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from dense_builder import EXACT, HNSW, build_dense

from dmnrag.retrieval.dense import DenseSettings, FaissDenseIndex, store
from dmnrag.testing.dense_contract import DenseContract, VectorDocument


class EmbeddedContract(DenseContract):
    n_segments = 1
    settings: DenseSettings = EXACT

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def build(self, documents: Sequence[VectorDocument]) -> FaissDenseIndex:
        return build_dense(self.folder, documents, self.n_segments, self.settings)


class TestExact(EmbeddedContract):
    pass


class TestExactInThreeSegments(EmbeddedContract):
    n_segments = 3


class TestHnsw(EmbeddedContract):
    """On corpora this small the graph misses nothing."""

    settings = HNSW
    n_copies = 12

    @pytest.fixture(autouse=True)
    def _walk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store, "_FEW_ROWS", 0)


class TestHnswInTwoSegments(TestHnsw):
    n_segments = 2


class TestHnswOfFewRows(EmbeddedContract):
    """Compared exactly although there is a graph."""

    settings = HNSW
