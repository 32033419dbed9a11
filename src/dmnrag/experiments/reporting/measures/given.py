"""How good the documents are that an arm was given: same-domain@k, and against gold documents where they are known."""

from collections.abc import Mapping, Sequence

from dmnrag.experiments.results import Evidence
from dmnrag.metrics import retrieval_measures, same_domain_at_k
from dmnrag.retrieval.layers import DomainKind
from dmnrag.types import Example, Hit

Column = tuple[float | None, ...]


def given_columns(
    evidence: Mapping[str, Evidence], questions: Sequence[Example], k: int, kind: DomainKind
) -> dict[str, Column]:
    """metric -> a value per question; empty where no documents were given.

    The question's own domain counts, whichever the arm worked with.
    """
    if not evidence or k < 1:
        return {}
    given = [evidence.get(example.query.query_id) for example in questions]
    found: dict[str, Column] = {}
    if any(example.query.domain for example in questions):
        found[f"same-domain@{k}"] = tuple(
            same_domain_at_k([d.domain for d in row.documents] if row else [], example.query.domain, k, kind=kind)
            for row, example in zip(given, questions, strict=True)
        )
    return found | _against_gold(given, questions, k)


def _against_gold(given: Sequence[Evidence | None], questions: Sequence[Example], k: int) -> dict[str, Column]:
    qrels = {e.query.query_id: dict.fromkeys(e.gold_doc_ids, 1) for e in questions if e.gold_doc_ids}
    if not qrels:
        return {}
    run = {
        row.query_id: [Hit(d.doc_id, d.score, rank) for rank, d in enumerate(row.documents, start=1)]
        for row in given
        if row
    }
    measures = (f"recall@{k}", f"MRR@{k}", f"nDCG@{k}")
    values = retrieval_measures(run, qrels, measures)
    return {m: tuple(values[m].get(e.query.query_id) for e in questions) for m in measures}
