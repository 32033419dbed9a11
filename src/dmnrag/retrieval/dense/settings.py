"""What a second layer is built with. Kept in the index's manifest: a search uses what the build used."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from dmnrag._settings import FLAG, Rule, check_settings, one_of, refuse_unknown, whole

PassageText = Literal["question+answer", "answer"]
VectorKind = Literal["exact", "hnsw"]
EncoderPrecision = Literal["fp32", "bf16", "int8"]


@dataclass(frozen=True, slots=True)
class DenseSettings:
    """Settings of one second layer."""

    encoder: str = "builtin"
    """`builtin`, a sentence-transformers name, or a folder (see `make_encoder`)."""
    passage: PassageText = "question+answer"
    """What the encoder reads of a document. A trained DPR reads the answer alone (PAPER.md)."""
    domain_in_passage: bool = False
    """The domain labels stand in front of the passage."""
    kind: VectorKind = "exact"
    """`exact` compares every passage; `hnsw` walks a graph: faster from about 100,000 passages on, and it
    may miss some of the best, most of all where one passage stands there many times."""
    hnsw_m: int = 32
    """Neighbours of a passage in the graph. More: fewer misses, 8 bytes of memory each, slower to build."""
    hnsw_ef_construction: int = 200
    """Candidates considered when a passage is put into the graph. More: a better graph, slower to build."""
    hnsw_ef_search: int = 128
    """Candidates kept while a query walks the graph. More: fewer of the best are missed, slower."""
    encoder_precision: EncoderPrecision = "fp32"
    """What passages are encoded in. Questions are encoded in fp32 always, so that a search needs nothing more."""

    def __post_init__(self) -> None:
        check_settings(self, _RULES, "dense")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DenseSettings":
        """The settings that `to_dict` described; what is left out keeps its default.

        Raises:
            ConfigError: an unknown name or an unusable value.
        """
        refuse_unknown(values, cls, "dense retrieval")
        return cls(**values)


_RULES: dict[str, Rule] = {
    "encoder": (lambda value: isinstance(value, str) and bool(value), "a name or folder"),
    "encoder_precision": one_of(get_args(EncoderPrecision)),
    "passage": one_of(get_args(PassageText)),
    "kind": one_of(get_args(VectorKind)),
    "domain_in_passage": FLAG,
    "hnsw_m": whole(2, 10_000),  # 2 is the least with which FAISS builds a graph that can be walked
    "hnsw_ef_construction": whole(1, 10_000),
    "hnsw_ef_search": whole(1, 10_000),
}
