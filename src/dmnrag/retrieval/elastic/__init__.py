"""Both layers on an Elasticsearch cluster, behind the protocols of the embedded ones. Extra: `elastic`.

    with connect(ConnectionSettings.load({"urls": "http://localhost:9200"})) as cluster:
        build_index(cluster, "medical", rows, layout)
        opened = open_index(cluster, "medical", layout)
        sparse = ElasticSparseIndex(cluster, opened.physical, segmenter)
        dense = ElasticDenseIndex(cluster, opened.physical, opened.field("base"), opened.retrievers["base"])

Knows nothing of index folders; importing it loads no client library.
"""

from dmnrag.retrieval.elastic.build import (
    ElasticBuildReport,
    WrittenIndex,
    build_index,
    count,
    delete_index,
    delete_physical,
    prune,
    roll_back,
    switch_alias,
    write_index,
)
from dmnrag.retrieval.elastic.bulk import BATCH_BYTES
from dmnrag.retrieval.elastic.catalog import (
    OpenedIndex,
    PhysicalIndex,
    check_name,
    list_physical,
    open_index,
    open_physical,
)
from dmnrag.retrieval.elastic.connection import Cluster, connect
from dmnrag.retrieval.elastic.copying import copy_index
from dmnrag.retrieval.elastic.dense import ElasticDenseIndex
from dmnrag.retrieval.elastic.diagnose import Finding, diagnose
from dmnrag.retrieval.elastic.documents import ElasticDocuments
from dmnrag.retrieval.elastic.layout import (
    ElasticVectorKind,
    IndexLayout,
    ShardSettings,
    VectorLayout,
    check_vector_kind,
)
from dmnrag.retrieval.elastic.rows import IndexedDocument, segment_documents
from dmnrag.retrieval.elastic.settings import ConnectionSettings, check_borrowed_urls
from dmnrag.retrieval.elastic.settle import settle
from dmnrag.retrieval.elastic.sparse import ElasticSparseIndex
from dmnrag.retrieval.elastic.update import (
    add_documents,
    add_vectors,
    rebuild_index,
    remove_documents,
    shards_of,
)
from dmnrag.retrieval.elastic.usage import ClusterUsage, cluster_usage

__all__ = [
    "BATCH_BYTES",
    "Cluster",
    "ClusterUsage",
    "ConnectionSettings",
    "ElasticBuildReport",
    "ElasticDenseIndex",
    "ElasticDocuments",
    "ElasticSparseIndex",
    "ElasticVectorKind",
    "Finding",
    "IndexLayout",
    "IndexedDocument",
    "OpenedIndex",
    "PhysicalIndex",
    "ShardSettings",
    "VectorLayout",
    "WrittenIndex",
    "add_documents",
    "add_vectors",
    "build_index",
    "check_borrowed_urls",
    "check_name",
    "check_vector_kind",
    "cluster_usage",
    "connect",
    "copy_index",
    "count",
    "delete_index",
    "delete_physical",
    "diagnose",
    "list_physical",
    "open_index",
    "open_physical",
    "prune",
    "rebuild_index",
    "remove_documents",
    "roll_back",
    "segment_documents",
    "settle",
    "shards_of",
    "switch_alias",
    "write_index",
]
