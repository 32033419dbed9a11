"""What a second layer is built with. Kept in the index's manifest: a search uses what the build used."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from dmnrag.errors import ConfigError

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
        _check("encoder", self.encoder, isinstance(self.encoder, str) and bool(self.encoder), "a name or folder")
        precisions = get_args(EncoderPrecision)
        _check("encoder_precision", self.encoder_precision, self.encoder_precision in precisions, ", ".join(precisions))
        _check("passage", self.passage, self.passage in get_args(PassageText), " or ".join(get_args(PassageText)))
        _check("kind", self.kind, self.kind in get_args(VectorKind), " or ".join(get_args(VectorKind)))
        flag = self.domain_in_passage
        _check("domain_in_passage", flag, isinstance(flag, bool), "true and false")
        # 2 is the least with which FAISS builds a graph that can be walked.
        for name, lowest in (("hnsw_m", 2), ("hnsw_ef_construction", 1), ("hnsw_ef_search", 1)):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            _check(name, value, whole and lowest <= value <= 10_000, f"whole numbers from {lowest} to 10000")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DenseSettings":
        """The settings that `to_dict` described; what is left out keeps its default.

        Raises:
            ConfigError: an unknown name or an unusable value.
        """
        unknown = sorted(set(values) - set(cls.__slots__))
        if unknown:
            raise ConfigError(
                f"dense retrieval has no setting {', '.join(unknown)}: allowed are {', '.join(cls.__slots__)}"
            )
        return cls(**values)


def _check(name: str, value: object, usable: bool, allowed: str) -> None:
    if not usable:
        raise ConfigError(f"dense setting {name} is {value!r}: allowed are {allowed}")
