"""Retrieval scored on the answer pool (PAPER, last table).

The pool is the answers of both splits as passages without their questions; held-out questions are the
queries and their own answers the gold. It lives in a temporary index and is never used to answer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dmnrag.experiments.systems import rank_all
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.index.build import UNTRAINED, Progress, no_progress
from dmnrag.index.cluster_writer import ClusterTarget
from dmnrag.index.retrievers import add_retriever
from dmnrag.metrics import retrieval_measures
from dmnrag.pipeline import Pipeline
from dmnrag.protocols import Encoder
from dmnrag.retrieval.dense import make_encoder
from dmnrag.types import Document, Domain, Example

MEASURES = ("recall@3", "recall@10", "MRR@10", "nDCG@10")
_DEPTH = 10


def pool_settings(settings: IndexSettings) -> IndexSettings:
    """The index's own settings with passages of answers alone."""
    dense = None if settings.dense is None else replace(settings.dense, passage="answer")
    return replace(settings, indexed_text="answer", dense=dense)


def pool_passages(index: Index) -> Iterator[tuple[str, Domain]]:
    """Each distinct answer of both splits once, with the domain it first came with."""
    seen: set[str] = set()
    rows = [(example.references, example.query.domain) for example in index.examples]
    rows += [(document.answers, document.domain) for document in index.all_documents()]
    for answers, domain in rows:
        for answer in answers:
            if answer not in seen:
                seen.add(answer)
                yield answer, domain


def score_pool(
    pipeline: Pipeline, on_progress: Progress = no_progress, *, target: ClusterTarget | None = None
) -> dict[str, dict[str, list[float | None]]]:
    """system -> measure -> a value per held-out question, for every retriever that the index has.

    `target` puts the pool into a cluster, to compare engines; there it stays.
    """
    index = pipeline.index
    encoders = {name: _encoder(pipeline, name) for name in index.manifest.retrievers}
    passages = list(pool_passages(index))
    # Held-out answers come first in `passages` and get the last ids, so a tie never favours a gold.
    ids = {text: f"{len(passages) - i:08d}" for i, (text, _) in enumerate(passages)}
    documents = (Document(ids[text], "", (text,), domain) for text, domain in passages)
    with TemporaryDirectory() as folder:
        _build_pool(index, Path(folder) / "pool", documents, encoders, target, on_progress)
        with Index.open(Path(folder) / "pool") as pool:
            rankings = rank_all(Pipeline(pool, encoders=encoders), index.examples, _DEPTH)
    qrels = {e.query.query_id: {ids[a]: 1 for a in _right_answers(index, e)} for e in index.examples}
    query_ids = [e.query.query_id for e in index.examples]
    values: dict[str, dict[str, list[float | None]]] = {}
    for system, ranked in rankings.items():
        run = dict(zip(query_ids, ranked, strict=True))
        scores = retrieval_measures(run, qrels, MEASURES)
        values[system] = {f"pool {m}": [scores[m][q] for q in query_ids] for m in MEASURES}
    return values


def _encoder(pipeline: Pipeline, retriever: str) -> Encoder:
    """A second layer's encoder, in the precision that its documents are encoded in."""
    settings = pipeline.index.dense_settings(retriever)
    if settings.encoder_precision == "fp32":
        return pipeline.encoder_of(retriever)
    return make_encoder(settings.encoder, precision=settings.encoder_precision)


def _build_pool(
    index: Index,
    folder: Path,
    documents: Iterator[Document],
    encoders: Mapping[str, Encoder],
    target: ClusterTarget | None,
    on_progress: Progress,
) -> None:
    def report(stage: str, done: int, total: int) -> None:
        on_progress(f"pool {stage}", done, total)

    settings = pool_settings(index.settings)
    base = encoders.get(UNTRAINED)
    build_index(folder, documents, settings, encoder=base, target=target, with_domain_model=False, on_progress=report)
    for name, encoder in encoders.items():
        if name != UNTRAINED:
            info = index.retriever_info(name)
            dense = replace(index.dense_settings(name), passage="answer")
            add_retriever(folder, name, dense, encoder, info=info, on_progress=report)


def _right_answers(index: Index, example: Example) -> list[str]:
    golds = index.documents(example.gold_doc_ids)
    return [*example.references, *(answer for gold in golds for answer in gold.answers)]
