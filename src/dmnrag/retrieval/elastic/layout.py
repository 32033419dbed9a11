"""What one physical index holds and how: settings, mapping, and the description kept in its `_meta`.

One index serves all methods and retrievers: `text` holds the segmented question and answers, `joint` the
same with the labels' terms (filled by the server from `text` and `label_terms`), and each retriever has a
nested field of vectors, one for each part of a document. Fields:

- `doc_id`: for ties; sorts by code points, as Python does
- `text`, `joint`: BM25 (eq. 2) with the index's k1 and b; `label_terms` is only copied
- `domain`: labels as they are, for filters
- `question`, `answers`, `metadata`, `replaced_terms`: kept, not searched
- `v1.vector`, `v2.vector`, ...: a retriever's; `v1_parts`: number of parts, where more than one
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dmnrag.errors import ConfigError
from dmnrag.retrieval.dense.settings import DenseSettings
from dmnrag.retrieval.sparse.settings import Bm25Settings

FORMAT = 1
"""Raised when an index of an older release can no longer be read."""

META = "dmnrag"
"""Everything of ours in `_meta` stands under this key."""

WINDOW = 10_000
"""`index.max_result_window` and the most candidates of kNN, both the server's defaults."""

ElasticVectorKind = Literal["int8_hnsw", "hnsw", "bbq_hnsw", "flat"]

_BBQ_LEAST, _MOST_DIMENSIONS = 64, 4096
"""Limits of the server's `dense_vector`."""


def check_vector_kind(kind: str, oversample: float) -> None:
    """Refuse what no vectors can be kept as.

    Raises:
        ConfigError: an unknown kind, or an oversampling out of its range.
    """
    if kind not in get_args(ElasticVectorKind):
        raise ConfigError(f"vector kind is {kind!r}: allowed are {', '.join(get_args(ElasticVectorKind))}")
    if not 1 <= oversample <= 100:
        raise ConfigError(f"oversample is {oversample!r}: allowed are numbers from 1 to 100")


@dataclass(frozen=True, slots=True)
class VectorLayout:
    """How the vectors of one retriever are kept."""

    dimension: int
    dense: DenseSettings
    """The encoder and what it reads; `hnsw_m`, `hnsw_ef_construction` and `hnsw_ef_search` act here too."""
    kind: ElasticVectorKind = "int8_hnsw"
    """`int8_hnsw`: a graph over vectors of one byte a number; `hnsw`: over full ones; `bbq_hnsw`: over one bit a
    number; `flat`: every vector compared. All keep the full vectors for re-scoring."""
    oversample: float = 3.0
    """The graph over quantised vectors finds this many times as many candidates, which are scored at full
    precision. More: fewer of the best are missed, slower."""

    def __post_init__(self) -> None:
        check_vector_kind(self.kind, self.oversample)
        least = _BBQ_LEAST if self.kind == "bbq_hnsw" else 1
        if not least <= self.dimension <= _MOST_DIMENSIONS:
            raise ConfigError(
                f"vectors of kind {self.kind} have {self.dimension} numbers: the server takes {least} to "
                f"{_MOST_DIMENSIONS}"
            )

    @property
    def quantised(self) -> bool:
        """Whether the graph's scores are approximate."""
        return self.kind in ("int8_hnsw", "bbq_hnsw")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "dimension": self.dimension,
            "dense": self.dense.to_dict(),
            "kind": self.kind,
            "oversample": self.oversample,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "VectorLayout":
        """What `to_dict` described."""
        return cls(
            dimension=values["dimension"],
            dense=DenseSettings.from_dict(values["dense"]),
            kind=values["kind"],
            oversample=values["oversample"],
        )

    def properties(self, name: str) -> dict[str, Any]:
        """The mapping of the field `name` and of the number of its parts."""
        options: dict[str, Any] = {"type": self.kind}
        if self.kind != "flat":
            options |= {"m": self.dense.hnsw_m, "ef_construction": self.dense.hnsw_ef_construction}
        vector = {
            "type": "dense_vector",
            "dims": self.dimension,
            "index": True,
            # The inner product, whatever the vectors' lengths: what every retriever of this package is compared by.
            "similarity": "max_inner_product",
            "index_options": options,
        }
        return {
            name: {"type": "nested", "dynamic": "strict", "properties": {"vector": vector}},
            parts_field(name): {"type": "integer"},
        }


def parts_field(name: str) -> str:
    """The field that tells how many parts a document has, where more than one."""
    return f"{name}_parts"


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """What an index is built with; searches must use the same."""

    segmenter: Mapping[str, Any]
    """Describes the segmenter, JSON-ready; word lists are kept as their hash alone."""
    bm25: Bm25Settings = field(default_factory=Bm25Settings)
    """k1 and b. Lengths are always rounded, as `lucene_lengths` rounds them."""
    indexed_text: str = "question+answer"
    retrievers: Mapping[str, VectorLayout] = field(default_factory=dict)
    """By name."""


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """How an index is spread over the nodes."""

    shards: int = 1
    """Parts of the index. Hits do not depend on it; one holds some tens of gigabytes well."""
    replicas: int = 1
    """Further copies of each part; with 1 the loss of a node loses nothing."""

    def __post_init__(self) -> None:
        for name, value, lowest, highest in (("shards", self.shards, 1, 1024), ("replicas", self.replicas, 0, 100)):
            if not lowest <= value <= highest:
                raise ConfigError(f"{name} is {value!r}: allowed are whole numbers from {lowest} to {highest}")


ONE_SHARD = ShardSettings()


def index_settings(layout: IndexLayout, shards: ShardSettings) -> dict[str, Any]:
    """The settings of a new physical index."""
    return {
        "number_of_shards": shards.shards,
        "number_of_replicas": shards.replicas,
        "refresh_interval": "-1",  # until the build is done
        # So that the documents that were removed or replaced leave the statistics when the index is settled.
        "merge.policy.expunge_deletes_allowed": 0,
        "similarity": {"bm25": {"type": "BM25", "k1": layout.bm25.k1, "b": layout.bm25.b}},
    }


def new_mapping(layout: IndexLayout, name: str) -> dict[str, Any]:
    """The mapping of a new physical index of the alias `name`."""
    searched = {"type": "text", "analyzer": "whitespace", "index_options": "freqs", "similarity": "bm25"}
    kept = {"type": "text", "index": False, "norms": False}
    fields = field_names(layout)
    properties: dict[str, Any] = {
        "doc_id": {"type": "keyword", "index": False},
        "text": searched | {"copy_to": "joint"},
        "label_terms": kept | {"copy_to": "joint"},
        "joint": searched,
        "domain": {"type": "keyword"},
        "question": kept,
        "answers": kept,
        "replaced_terms": kept,
        "metadata": {"type": "object", "enabled": False},
    }
    for retriever, vectors in layout.retrievers.items():
        properties |= vectors.properties(fields[retriever])
    return {"dynamic": "strict", "_meta": describe(layout, name, fields), "properties": properties}


def field_names(layout: IndexLayout) -> dict[str, str]:
    """The vector field of each retriever of a new index."""
    return {retriever: f"v{number}" for number, retriever in enumerate(layout.retrievers, start=1)}


def describe(layout: IndexLayout, name: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """What `_meta` says of an index: everything that a search must agree with."""
    return {
        META: {
            "format": FORMAT,
            "name": name,
            "segmenter": _without_lists(layout.segmenter),
            "bm25": {"k1": layout.bm25.k1, "b": layout.bm25.b},
            "indexed_text": layout.indexed_text,
            "retrievers": {
                retriever: vectors.to_dict() | {"field": fields[retriever]}
                for retriever, vectors in layout.retrievers.items()
            },
        }
    }


def _without_lists(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping travels to every node of the cluster: word lists of a megabyte do not belong there."""
    return {
        key: f"{len(value)} entries, sha256 {_digest(value)}" if isinstance(value, list | tuple) and value else value
        for key, value in settings.items()
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """How the description of an index differs from the one that is expected, each in words.

    Args:
        found: what stands under `META` in the mapping.
        expected: what `describe` gives for the settings of the caller. Retrievers that only the index has do
            not matter, nor do settings that act on searches alone.
    """
    return list(_compare(_essential(found, expected), _essential(expected, expected), ""))


def _essential(meta: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    parts = {key: meta.get(key) for key in ("segmenter", "bm25", "indexed_text")}
    retrievers = {
        name: {"dimension": r["dimension"], "kind": r["kind"]}
        | {key: r["dense"].get(key) for key in ("encoder", "passage", "domain_in_passage")}
        for name, r in meta.get("retrievers", {}).items()
        if name in expected.get("retrievers", {})
    }
    return parts | {"retrievers": retrievers}


def _compare(found: Any, expected: Any, path: str) -> Iterator[str]:
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for key in sorted({*found, *expected}):
            inner = f"{path}.{key}" if path else key
            yield from _compare(found.get(key), expected.get(key), inner)
    elif found != expected and not (found in ([], ()) and expected in ([], ())):
        yield f"{path} is {_shown(found)} in the index and {_shown(expected)} here"


def _shown(value: Any) -> str:
    return "absent" if value is None else repr(value)
