"""The retrieval systems that are compared, and the rankings they give."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dmnrag.index import Index
from dmnrag.index.build import UNTRAINED
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.dense.memo import MemoEncoder
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.types import JOINT, PLAIN, DomainUse, Example, Hit, Layer, Query

Rankings = Mapping[str, Sequence[Sequence[Hit]]]
"""system -> a ranking per question."""


@dataclass(frozen=True, slots=True)
class System:
    """A layer with or without the domain in its first layer."""

    name: str
    layer: Layer
    use: DomainUse
    retriever: str | None = UNTRAINED
    """Of the second layer; None where there is none."""
    inferred: bool = False
    """Asked with the domain that the index infers, and plainly where it infers none, as `ask` does."""

    @property
    def joint(self) -> bool:
        """Whether the domain acts in retrieval."""
        return self.use != PLAIN


SYSTEMS = (
    System("BM25 plain", "sparse", PLAIN, None),
    System("BM25 joint", "sparse", JOINT, None),
    System("dense", "dense", PLAIN),
    System("cascade plain", "cascade", PLAIN),
    System("cascade joint", "cascade", JOINT),
    System("hybrid plain", "hybrid", PLAIN),
    System("hybrid joint", "hybrid", JOINT),
)

INFERRED = (
    System("BM25 joint, inferred domain", "sparse", JOINT, None, inferred=True),
    System("hybrid joint, inferred domain", "hybrid", JOINT, inferred=True),
)
"""What an inferred instead of the given domain costs."""

PAIRS = (
    ("BM25 joint", "BM25 plain"),
    ("cascade joint", "cascade plain"),
    ("hybrid joint", "hybrid plain"),
    ("dense", "BM25 plain"),
    ("hybrid joint", "BM25 joint"),
    ("cascade joint", "hybrid joint"),
    ("BM25 joint, inferred domain", "BM25 joint"),
    ("hybrid joint, inferred domain", "hybrid joint"),
)
"""Joint against plain, layer against layer, and the inferred domain against the given one."""

TABLE_SYSTEMS = ("BM25 plain", "BM25 joint", "dense", "cascade joint", "hybrid joint")


def available(index: Index) -> list[System]:
    """The systems that an index can do: without vectors no second layer, without domains (or a model of them) no joint
    one (that infers them)."""
    has_base = UNTRAINED in index.manifest.retrievers
    systems = SYSTEMS if index.domain_model is None else SYSTEMS + INFERRED
    untrained = [s for s in systems if (has_base or s.layer == "sparse") and (index.domains or not s.joint)]
    trained = [name for name in index.manifest.retrievers if name != UNTRAINED]
    return untrained + [s for name in trained for s in trained_systems(name, joint=bool(index.domains))]


def trained_systems(retriever: str, *, joint: bool) -> list[System]:
    """A trained retriever alone and behind the first layer that it goes with; `joint`: the index has domains."""
    use, kind = (JOINT, "joint") if joint and retriever != "plain" else (PLAIN, "plain")
    return [
        System(f"DPR-{retriever}", "dense", PLAIN, retriever),
        System(f"cascade {kind}, DPR-{retriever}", "cascade", use, retriever),
        System(f"hybrid {kind}, DPR-{retriever}", "hybrid", use, retriever),
    ]


def pairs_of(index: Index) -> list[tuple[str, str]]:
    """The systems of an index to compare: `PAIRS`, and each trained retriever against what it should beat."""
    trained = [name for name in index.manifest.retrievers if name != UNTRAINED]
    pairs = list(PAIRS)
    for name in trained:
        alone, cascade, hybrid = (system.name for system in trained_systems(name, joint=bool(index.domains)))
        untrained_cascade, untrained_hybrid = (of.partition(",")[0] for of in (cascade, hybrid))
        pairs += [(alone, "dense"), (alone, "BM25 plain"), (alone, "BM25 joint")]
        pairs += [(cascade, untrained_cascade), (hybrid, untrained_hybrid)]
    if {"joint", "plain"} <= set(trained):
        pairs += [("DPR-joint", "DPR-plain"), ("hybrid joint, DPR-joint", "hybrid plain, DPR-plain")]
        pairs += [("cascade joint, DPR-joint", "cascade plain, DPR-plain")]
    return pairs


def rank_all(pipeline: Pipeline, examples: Sequence[Example], k: int) -> dict[str, list[list[Hit]]]:
    """Each system's ranking of each held-out question, k deep."""
    queries = [example.query for example in examples]
    # Several systems ask a second layer the same questions: each is encoded once.
    encoders = {name: MemoEncoder(pipeline.encoder_of(name)) for name in pipeline.index.manifest.retrievers}
    pipeline = Pipeline(pipeline.index, encoders=encoders)
    rankings = {}
    for system in available(pipeline.index):
        settings = RetrievalSettings(k=k, layer=system.layer, use=system.use, retriever=system.retriever)
        rank = _rank_inferred if system.inferred else Pipeline.search
        rankings[system.name] = rank(pipeline, queries, settings)
    return rankings


def _rank_inferred(pipeline: Pipeline, queries: Sequence[Query], settings: RetrievalSettings) -> list[list[Hit]]:
    inferences = pipeline.infer([query.text for query in queries])
    asked = [replace(query, domain=found.domain) for query, found in zip(queries, inferences, strict=True)]
    joint, plain = pipeline.search(asked, settings), pipeline.search(asked, replace(settings, use=PLAIN))
    return [j if query.domain else p for query, j, p in zip(asked, joint, plain, strict=True)]
