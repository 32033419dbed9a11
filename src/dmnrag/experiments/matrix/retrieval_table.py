"""Retrieval by itself: every system of the index on all held-out questions, as `dmnrag evaluate` measures it."""

from pathlib import Path

from dmnrag.experiments.downstream import score_downstream
from dmnrag.experiments.matrix.corpora import Corpus, digest
from dmnrag.experiments.pool import score_pool
from dmnrag.experiments.records import Retrieval
from dmnrag.experiments.systems import pairs_of, rank_all
from dmnrag.index.build import Progress
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.dense import make_encoder
from dmnrag.retrieval.dense.resume import resumable

_DEPTH = 10
_SCRATCH = ".pool-"
"""Before a retriever's name: vectors of the answer pool that a killed run made."""


def retrieval_state(corpus: Corpus, *, pool: bool) -> str:
    """sha256 over all that decides the table: corpus, every second layer of the index, and what is measured."""
    layers = {name: corpus.retriever_state(name) for name in corpus.index.manifest.retrievers}
    return digest([corpus.card.fingerprint, layers, pool])


def measure_retrieval(corpus: Corpus, folder: Path, *, pool: bool, on_progress: Progress) -> Retrieval:
    """The table; `folder` takes what a killed run need not do again.

    Raises:
        QueryError: a held-out question that cannot be searched for.
    """
    index = corpus.index
    scratch = {name: folder / f"{_SCRATCH}{name}" for name in index.manifest.retrievers}
    # Encoders of its own: vectors must not depend on what the cells asked before.
    encoders = {
        name: resumable(make_encoder(index.dense_settings(name).encoder), path) for name, path in scratch.items()
    }
    pipeline = Pipeline(index, encoders=encoders)
    values = score_downstream(index, rank_all(pipeline, index.examples, _DEPTH))
    if pool:
        for system, by_metric in score_pool(pipeline, on_progress).items():
            values[system] |= by_metric
    for path in scratch.values():
        path.unlink(missing_ok=True)
    systems = set(values)
    return Retrieval(
        n=len(index.examples),
        clusters=tuple(example.cluster or example.query.query_id for example in index.examples),
        values={
            system: {metric: tuple(column) for metric, column in by_metric.items()}
            for system, by_metric in values.items()
        },
        pairs=tuple(pair for pair in dict.fromkeys(pairs_of(index)) if set(pair) <= systems),
        fingerprint=retrieval_state(corpus, pool=pool),
    )
