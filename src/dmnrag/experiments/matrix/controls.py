"""What bounds the methods: documents that no retrieval found, and answers that no LLM wrote."""

import random
from collections.abc import Sequence

from dmnrag.errors import DataError
from dmnrag.experiments.records import Evidence, EvidenceDocument
from dmnrag.index import Index
from dmnrag.types import Document, Domain, Example

_GOLD = "gold:"
"""Before the query_id, the id of a document that is no document of the index."""


def without_documents(examples: Sequence[Example], domains: Sequence[Domain]) -> list[Evidence]:
    """Closed book: what the LLM knows by itself."""
    return [_row(example, domain, []) for example, domain in zip(examples, domains, strict=True)]


def gold_documents(index: Index, examples: Sequence[Example], domains: Sequence[Domain]) -> list[Evidence]:
    """The right answer as the one document: the most that retrieval can give.

    The index's own gold documents where the corpus names them. Otherwise the held-out pair itself, which is not in
    the index: question and right answers.
    """
    rows = []
    for example, domain in zip(examples, domains, strict=True):
        named = index.documents(example.gold_doc_ids)
        own = Document(_GOLD + example.query.query_id, example.query.text, example.references, example.query.domain)
        rows.append(_row(example, domain, named or [own]))
    return rows


def random_documents(
    index: Index, examples: Sequence[Example], domains: Sequence[Domain], k: int, *, seed: int
) -> list[Evidence]:
    """k documents of the index by chance: what any documents do to the answer.

    Each question draws by itself, so the other questions change nothing. Reads every document once.
    """
    places = range(index.n_documents)
    chosen = [
        random.Random(f"{seed} random documents {example.query.query_id}").sample(places, min(k, len(places)))
        for example in examples
    ]
    wanted = {place for of_question in chosen for place in of_question}
    found = {place: document for place, document in enumerate(index.all_documents()) if place in wanted}
    return [
        _row(example, domain, [found[place] for place in of_question])
        for example, domain, of_question in zip(examples, domains, chosen, strict=True)
    ]


def first_answer(row: Evidence) -> str:
    """The first answer of the first document, copied; empty where nothing was found."""
    return row.documents[0].answers[0] if row.documents and row.documents[0].answers else ""


def with_documents(
    example: Example, domain: Domain, documents: Sequence[Document], scores: Sequence[float]
) -> Evidence:
    """A row from what was found, best first."""
    if len(documents) != len(scores):
        raise DataError(f"{len(documents)} documents with {len(scores)} scores: one each is needed")
    return Evidence(
        example.query.query_id,
        example.query.text,
        domain,
        tuple(
            EvidenceDocument(d.doc_id, score, d.domain, d.question, d.answers)
            for d, score in zip(documents, scores, strict=True)
        ),
    )


def _row(example: Example, domain: Domain, documents: Sequence[Document]) -> Evidence:
    # No layer scored them; falling numbers keep their order in a TREC run.
    return with_documents(example, domain, documents, [1.0 / rank for rank in range(1, len(documents) + 1)])
