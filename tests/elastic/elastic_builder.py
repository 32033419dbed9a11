"""Small indexes on a real server, from plain lists."""

from collections.abc import Iterable, Sequence

from dmnrag.protocols import Segmenter
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.elastic import (
    Cluster,
    ElasticDenseIndex,
    ElasticSparseIndex,
    IndexedDocument,
    IndexLayout,
    OpenedIndex,
    ShardSettings,
    VectorLayout,
    build_index,
    open_index,
    segment_documents,
)
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.testing.dense_contract import VectorDocument
from dmnrag.testing.sparse_contract import searched_text
from dmnrag.types import Document


class Words:
    """Splits at white space and takes each Chinese character as a term."""

    name = "words"

    def segment(self, text: str) -> list[str]:
        return "".join(f" {c} " if "\u4e00" <= c <= "\u9fff" else c if c.isalnum() else " " for c in text).split()

    def segment_all(self, texts: Sequence[str]) -> list[list[str]]:
        return [self.segment(text) for text in texts]


WORDS = {"name": "words"}
ONE = ShardSettings(shards=1, replicas=0)


DEFAULT_BM25 = Bm25Settings()


def layout_of(bm25: Bm25Settings = DEFAULT_BM25, **retrievers: VectorLayout) -> IndexLayout:
    return IndexLayout(segmenter=WORDS, bm25=bm25, retrievers=retrievers)


def rows_of(
    documents: Sequence[Document], indexed_text: str = "question+answer", segmenter: Segmenter | None = None
) -> Iterable[IndexedDocument]:
    return segment_documents(((d, searched_text(d, indexed_text), {}) for d in documents), segmenter or Words())


def build(
    cluster: Cluster,
    name: str,
    rows: Iterable[IndexedDocument],
    layout: IndexLayout | None = None,
    shards: ShardSettings = ONE,
) -> OpenedIndex:
    layout = layout or layout_of()
    build_index(cluster, name, rows, layout, shards=shards)
    return open_index(cluster, name, layout)


def sparse_of(cluster: Cluster, opened: OpenedIndex) -> ElasticSparseIndex:
    return ElasticSparseIndex(cluster, opened.physical, Words())


def vector_layout(dimension: int, **options: object) -> VectorLayout:
    return VectorLayout(dimension, DenseSettings(encoder="test"), **options)  # type: ignore[arg-type]


def vector_rows(documents: Sequence[VectorDocument]) -> list[IndexedDocument]:
    return [IndexedDocument(Document(d.doc_id, "", (), d.domain), ("x",), (), {"base": d.parts}) for d in documents]


def dense_of(cluster: Cluster, opened: OpenedIndex, retriever: str = "base") -> ElasticDenseIndex:
    return ElasticDenseIndex(cluster, opened.physical, opened.field(retriever), opened.retrievers[retriever])
