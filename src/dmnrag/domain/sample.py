"""Enough documents to learn domains from, read in one pass and in bounded memory."""

from collections.abc import Iterable
from dataclasses import dataclass

from dmnrag.types import Document, Domain


@dataclass(slots=True)
class _Kept:
    """What is kept of one domain."""

    documents: list[Document]
    n_seen: int = 0
    stride: int = 1
    """Every document of this number is kept."""


def sample_documents(documents: Iterable[Document], at_most: int) -> tuple[list[Document], list[float]]:
    """Documents that carry a domain, at most `at_most`, and how many each stands for.

    Whenever there are too many, every second document of the domain with the most kept ones goes (ties by labels);
    so frequent domains are thinned and rare ones stay whole. No chance is involved.

    Returns:
        Documents by domain in order of first appearance, and (n_documents,) weights from 1 upwards.
    """
    kept: dict[Domain, _Kept] = {}
    n_kept = 0
    for document in documents:
        if not document.domain:
            continue
        domain = kept.setdefault(document.domain, _Kept([]))
        if domain.n_seen % domain.stride == 0:
            domain.documents.append(document)
            n_kept += 1
        domain.n_seen += 1
        while n_kept > at_most and (fullest := _fullest(kept)) is not None:
            n_kept -= len(fullest.documents) // 2
            fullest.documents = fullest.documents[::2]
            fullest.stride *= 2
    chosen = [document for domain in kept.values() for document in domain.documents]
    weights = [domain.n_seen / len(domain.documents) for domain in kept.values() for _ in domain.documents]
    return chosen, weights


def _fullest(kept: dict[Domain, _Kept]) -> _Kept | None:
    """The domain with the most kept documents; None where each has one."""
    labels = max(kept, key=lambda labels: (len(kept[labels].documents), labels))
    return kept[labels] if len(kept[labels].documents) > 1 else None
