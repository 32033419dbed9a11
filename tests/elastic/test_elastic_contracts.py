"""Both layers on a real server pass the contracts of the embedded ones, unchanged, on both releases."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest
from elastic_builder import ONE, build, dense_of, layout_of, rows_of, sparse_of, vector_layout, vector_rows

from dmnrag.protocols import DenseIndex, SparseIndex
from dmnrag.retrieval.elastic import Cluster, ShardSettings, delete_index, remove_documents
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.testing.dense_contract import DenseContract, VectorDocument, random_documents, unit
from dmnrag.testing.sparse_contract import SparseContract
from dmnrag.types import Document

pytestmark = pytest.mark.service


class TestSparse(SparseContract):
    shards: ClassVar[ShardSettings] = ONE

    @pytest.fixture(autouse=True)
    def _server(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def build(self, documents: Sequence[Document], *, k1: float, b: float, indexed_text: str) -> SparseIndex:
        layout = layout_of(Bm25Settings(k1, b))
        return sparse_of(
            self.cluster, build(self.cluster, self.name, rows_of(documents, indexed_text), layout, self.shards)
        )


class TestSparseInThreeShards(TestSparse):
    shards = ShardSettings(shards=3, replicas=0)


@pytest.fixture(scope="module")
def compiled(cluster: Cluster) -> None:
    """The server adds up in another order before its code is compiled, and the last bit of a score with it."""
    documents = random_documents(200, 12, seed=9)
    queries = unit(*np.random.default_rng(9).standard_normal((1000, 12)))
    for kind in ("int8_hnsw", "hnsw", "flat"):
        opened = build(cluster, "warm-up", vector_rows(documents), layout_of(base=vector_layout(12, kind=kind)))
        dense_of(cluster, opened).search(queries, 10)
    delete_index(cluster, "warm-up")


@pytest.mark.usefixtures("compiled")
class TestDense(DenseContract):
    kind: ClassVar[str] = "int8_hnsw"
    shards: ClassVar[ShardSettings] = ONE

    @pytest.fixture(autouse=True)
    def _server(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def build(self, documents: Sequence[VectorDocument]) -> DenseIndex:
        layout = layout_of(base=vector_layout(documents[0].parts.shape[1], kind=self.kind))
        opened = build(self.cluster, self.name, vector_rows(documents), layout, self.shards)
        remove_documents(self.cluster, opened, [d.doc_id for d in documents if d.removed])
        return dense_of(self.cluster, opened)


class TestDenseInThreeShards(TestDense):
    shards = ShardSettings(shards=3, replicas=0)


class TestDenseHnsw(TestDense):
    kind = "hnsw"


class TestDenseFlat(TestDense):
    kind = "flat"
