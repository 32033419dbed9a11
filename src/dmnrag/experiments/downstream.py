"""Retrieval scored by what the LLM would be given: the top documents of the index.

same-domain@k as DESIGN defines it, best-of-k ROUGE-1 of the documents' answers against the right
answer, and, where the corpus names gold documents, recall and MRR.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from dmnrag.experiments.systems import Rankings
from dmnrag.index import Index
from dmnrag.metrics import Segmentation, retrieval_measures, same_domain_at_k, score_texts
from dmnrag.text import tokenize_characters, tokenize_words
from dmnrag.types import Document, Example, Hit

K = 3
"""Documents handed to the LLM, as in the paper."""

_GOLD_MEASURES = ("recall@3", "MRR@10", "nDCG@10")

SEGMENTATIONS: dict[Segmentation, Callable[[str], list[str]]] = {
    "word": tokenize_words,
    "character": tokenize_characters,
}
"""How ROUGE cuts text; every figure names which."""

Values = dict[str, list[float | None]]


def score_downstream(index: Index, rankings: Rankings) -> dict[str, Values]:
    """system -> metric -> a value per held-out question."""
    return {system: _score_system(index, ranked) for system, ranked in rankings.items()}


def _score_system(index: Index, ranked: Sequence[Sequence[Hit]]) -> Values:
    examples = index.examples
    top = [index.documents([hit.doc_id for hit in hits[:K]]) for hits in ranked]
    values: Values = {}
    if index.domains:
        values[f"same-domain@{K}"] = _same_domain(index, examples, top, "specific")
        if any(len(domain) > 1 for domain in index.domains):
            values[f"same-top-domain@{K}"] = _same_domain(index, examples, top, "general")
    for name in SEGMENTATIONS:
        values[f"best-of-{K} ROUGE-1 ({name})"] = _best_rouge(examples, top, name)
    if any(example.gold_doc_ids for example in examples):
        values |= _gold(examples, ranked)
    return values


def _same_domain(
    index: Index, examples: Sequence[Example], top: Sequence[Sequence[Document]], level: Literal["specific", "general"]
) -> list[float | None]:
    kind = index.settings.domain_kind
    return [
        same_domain_at_k([d.domain for d in documents], example.query.domain, K, kind=kind, level=level)
        for example, documents in zip(examples, top, strict=True)
    ]


def _best_rouge(
    examples: Sequence[Example], top: Sequence[Sequence[Document]], segmentation: Segmentation
) -> list[float | None]:
    tokenize = SEGMENTATIONS[segmentation]
    pairs = [(i, answer) for i, documents in enumerate(top) for document in documents for answer in document.answers]
    found = score_texts(
        [answer for _, answer in pairs],
        [list(examples[i].references) for i, _ in pairs],
        tokenize,
        segmentation=segmentation,
    )
    best = [0.0] * len(examples)
    for (i, _), score in zip(pairs, found.scores, strict=True):
        best[i] = max(best[i], score.rouge1)
    return list(best)


def _gold(examples: Sequence[Example], ranked: Sequence[Sequence[Hit]]) -> Values:
    query_ids = [example.query.query_id for example in examples]
    qrels = {e.query.query_id: dict.fromkeys(e.gold_doc_ids, 1) for e in examples if e.gold_doc_ids}
    found = retrieval_measures(dict(zip(query_ids, ranked, strict=True)), qrels, _GOLD_MEASURES)
    return {m: [found[m].get(q) for q in query_ids] for m in _GOLD_MEASURES}
