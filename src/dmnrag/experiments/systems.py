"""The retrieval systems that are compared, and the rankings they give."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dmnrag.index import Index
from dmnrag.index.build import UNTRAINED
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.dense.memo import MemoEncoder
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.types import JOINT, PLAIN, DomainUse, Example, Hit, Layer

Rankings = Mapping[str, Sequence[Sequence[Hit]]]
"""system -> a ranking per question."""


@dataclass(frozen=True, slots=True)
class System:
    """A layer with or without the domain in its first layer."""

    name: str
    layer: Layer
    use: DomainUse

    @property
    def joint(self) -> bool:
        """Whether the domain acts in retrieval."""
        return self.use != PLAIN


SYSTEMS = (
    System("BM25 plain", "sparse", PLAIN),
    System("BM25 joint", "sparse", JOINT),
    System("dense", "dense", PLAIN),
    System("cascade plain", "cascade", PLAIN),
    System("cascade joint", "cascade", JOINT),
    System("hybrid plain", "hybrid", PLAIN),
    System("hybrid joint", "hybrid", JOINT),
)

PAIRS = (
    ("BM25 joint", "BM25 plain"),
    ("cascade joint", "cascade plain"),
    ("hybrid joint", "hybrid plain"),
    ("dense", "BM25 plain"),
    ("hybrid joint", "BM25 joint"),
    ("cascade joint", "hybrid joint"),
)
"""Joint against plain, and layer against layer."""

TABLE_SYSTEMS = ("BM25 plain", "BM25 joint", "dense", "cascade joint", "hybrid joint")


def available(index: Index) -> list[System]:
    """The systems that an index can do: without vectors no second layer, without domains no joint one."""
    has_dense = bool(index.manifest.retrievers)
    return [s for s in SYSTEMS if (has_dense or s.layer == "sparse") and (index.domains or not s.joint)]


def rank_all(pipeline: Pipeline, examples: Sequence[Example], k: int) -> dict[str, list[list[Hit]]]:
    """Each system's ranking of each held-out question, k deep."""
    queries = [example.query for example in examples]
    if UNTRAINED in pipeline.index.manifest.retrievers:
        # Five of the systems ask the second layer the same questions: each is encoded once.
        pipeline = Pipeline(pipeline.index, encoder=MemoEncoder(pipeline.encoder))
    return {
        system.name: pipeline.search(queries, RetrievalSettings(k=k, layer=system.layer, use=system.use))
        for system in available(pipeline.index)
    }
