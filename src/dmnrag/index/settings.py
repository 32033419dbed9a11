"""What an index is built with. Stored in its manifest: a search uses what the build used."""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dmnrag.errors import ConfigError
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.text import SegmenterSettings
from dmnrag.types import Document

DomainKind = Literal["path", "set"]
IndexedText = Literal["question+answer", "answer"]


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings of one index folder."""

    segmenter: SegmenterSettings = field(default_factory=SegmenterSettings)
    """How text becomes the terms of the first layer."""
    bm25: Bm25Settings = field(default_factory=Bm25Settings)
    """k1 and b of eq. 2; applied at search time."""
    indexed_text: IndexedText = "question+answer"
    """What the first layer searches. Question and answer together retrieve better (docs/results.md)."""
    domain_kind: DomainKind = "path"
    """`path`: labels go from general to specific; `set`: labels have no order."""
    dense: DenseSettings | None = None
    """The untrained second layer; None builds an index without vectors."""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("indexed_text", self.indexed_text, get_args(IndexedText)),
            ("domain_kind", self.domain_kind, get_args(DomainKind)),
        ):
            if value not in allowed:
                raise ConfigError(f"{name} is {value!r}: allowed are {', '.join(allowed)}")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "segmenter": self.segmenter.to_dict(),
            "bm25": self.bm25.to_dict(),
            "indexed_text": self.indexed_text,
            "domain_kind": self.domain_kind,
            "dense": None if self.dense is None else self.dense.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "IndexSettings":
        """The settings that `to_dict` described."""
        return cls(
            segmenter=SegmenterSettings.from_dict(values["segmenter"]),
            bm25=Bm25Settings.from_dict(values["bm25"]),
            indexed_text=values["indexed_text"],
            domain_kind=values["domain_kind"],
            dense=None if values["dense"] is None else DenseSettings.from_dict(values["dense"]),
        )


def searchable_text(document: Document, kind: str) -> str:
    """The text of a document that a layer searches: question and answers, or the answers alone."""
    answers = "\n".join(document.answers)
    return answers if kind == "answer" else f"{document.question}\n{answers}"
