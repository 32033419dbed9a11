"""The held-out questions: as JSON, and what an update must respect: no leak into the index, no gold that is gone."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from dmnrag.data import find_leakage
from dmnrag.types import Document, Example, Query

_CHUNK = 4096
"""Documents compared at once: their texts are in memory, never those of the whole input."""


class LeakGuard:
    """Lets documents through that hold no question and no answer of the held-out split; counts the others.

    An index that learns what it is tested on measures copying (see `dmnrag.data.split`).
    """

    def __init__(self, examples: Sequence[Example]) -> None:
        self._examples = examples
        self.left_out: list[str] = []
        """doc_ids of those not let through, in order."""

    def pass_through(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The documents that may be added, in order."""
        rows = iter(documents)
        while chunk := list(islice(rows, _CHUNK)):
            leaking = find_leakage(chunk, self._examples).doc_ids
            self.left_out += [document.doc_id for document in chunk if document.doc_id in leaking]
            yield from (document for document in chunk if document.doc_id not in leaking)


def without_gold(examples: Sequence[Example], removed: Collection[str]) -> list[Example]:
    """The held-out questions without gold documents that were removed from the index."""
    gone = set(removed)
    return [
        replace(example, gold_doc_ids=tuple(doc_id for doc_id in example.gold_doc_ids if doc_id not in gone))
        for example in examples
    ]


def example_to_dict(example: Example) -> dict[str, Any]:
    """JSON-ready form of a held-out question."""
    return {
        "query_id": example.query.query_id,
        "text": example.query.text,
        "domain": list(example.query.domain),
        "references": list(example.references),
        "gold_doc_ids": list(example.gold_doc_ids),
        "cluster": example.cluster,
    }


def example_from_dict(row: dict[str, Any]) -> Example:
    """The held-out question that `example_to_dict` described."""
    return Example(
        Query(row["query_id"], row["text"], tuple(row["domain"])),
        tuple(row["references"]),
        tuple(row["gold_doc_ids"]),
        row["cluster"],
    )
