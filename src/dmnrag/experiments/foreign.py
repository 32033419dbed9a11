"""`evaluate --queries --qrels`: retrieval on questions and judgements that come from elsewhere.

Figures are those of trec_eval with `-c`: a question without hits counts 0, a judged document that the
index lacks counts as never found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dmnrag.data import read_queries, repost_groups
from dmnrag.data.exchange import read_beir_queries, refuse_unasked
from dmnrag.data.exchange.lines import json_objects
from dmnrag.errors import DataError
from dmnrag.experiments.statistics import Evaluation, summarise
from dmnrag.experiments.systems import pairs_of, rank_all
from dmnrag.metrics import retrieval_measures
from dmnrag.pipeline import Pipeline
from dmnrag.types import Example, Query

MEASURES = ("recall@3", "recall@10", "MRR@10", "nDCG@10")
_DEPTH = 10


@dataclass(frozen=True, slots=True)
class ForeignEvaluation:
    """The figures, and what of the two files took no part in them."""

    figures: Evaluation
    unjudged_queries: int
    """Questions without a judgement; left out, as evaluators do."""
    absent_documents: int
    """Relevant documents that the index lacks; they count as never found."""


def read_foreign_queries(path: Path) -> list[Query]:
    """Questions from our own JSON lines or from BEIR's `queries.jsonl`, told apart by the first line's keys.

    Raises:
        DataError: as the two formats; names the line.
    """
    try:
        _, first = next(json_objects(path), ("", {}))
    except DataError:
        first = {}  # `read_queries` knows more formats, and says what it needs
    return read_beir_queries(path) if "_id" in first else read_queries(path)


def evaluate_foreign(
    pipeline: Pipeline,
    queries: Sequence[Query],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    allow_unknown_domain: bool = False,
) -> ForeignEvaluation:
    """Every system that the index can do, on the judged questions; intervals draw near-identical ones together.

    Args:
        pipeline: without an LLM.
        queries: their domain labels must be the index's, or `allow_unknown_domain`.
        qrels: relevance of doc_ids for each query_id; above 0 is relevant.
        allow_unknown_domain: take labels that no document carries as they are.

    Raises:
        DataError: a judged question without text, or no question that is judged.
        DomainUnknownError: a label that no document carries.
    """
    refuse_unasked(qrels, {query.query_id for query in queries})
    judged = [query for query in queries if query.query_id in qrels]
    if not judged:
        raise DataError(f"none of the {len(queries):,} questions is judged: do both files belong together?")
    asked = [
        replace(query, domain=pipeline.resolve(query.domain or None, allow_unknown=allow_unknown_domain))
        for query in judged
    ]
    values = {}
    for system, rankings in rank_all(pipeline, [Example(query, ()) for query in asked], _DEPTH).items():
        run = {query.query_id: hits for query, hits in zip(asked, rankings, strict=True)}
        found = retrieval_measures(run, qrels, MEASURES)
        values[system] = {m: [found[m][query.query_id] for query in asked] for m in MEASURES}
    clusters = repost_groups([query.text for query in asked], [""] * len(asked))
    relevant = {doc_id for of_query in qrels.values() for doc_id, relevance in of_query.items() if relevance > 0}
    return ForeignEvaluation(
        summarise(values, list(map(str, clusters)), pairs_of(pipeline.index)),
        unjudged_queries=len(queries) - len(judged),
        absent_documents=len(pipeline.index.missing(sorted(relevant))),
    )
