"""What a retrieval looks like, in numbers: scores of both layers, shared text, departments.

Nothing here knows whether the evidence is enough; `model` weighs these numbers. All are taken from the first k hits,
so that they mean the same however deep a layer was searched. What a search does not have (a layer, a domain model)
gives 0, and a feature that never changes is left out of a model.
"""

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from math import log

import numpy as np
import numpy.typing as npt

from dmnrag.data.comparable import comparable
from dmnrag.domain import Inference
from dmnrag.index.settings import DomainKind
from dmnrag.retrieval.layers import LayerHits
from dmnrag.types import Document, Hit

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Found:
    """One question and what was found for it."""

    question: str
    layers: LayerHits
    documents: Sequence[Document]
    """Of the first k hits."""
    inferred: Inference | None
    """None: the index has no domain model."""
    k: int
    domain_kind: DomainKind = "path"


def measure(found: Found) -> Floats:
    """(n_features,) in the order of `NAMES`."""
    return np.array([feature(found) for feature in _FEATURES.values()])


@lru_cache(maxsize=64)
def bigrams(text: str) -> Set[str]:
    """Pairs of neighbouring letters or digits; the text itself where it has one only.

    Several features of one search read the same few texts, so the last ones are kept.
    """
    form = comparable(text)
    return frozenset(form[i : i + 2] for i in range(max(1, len(form) - 1)))


def _scores(hits: Sequence[Hit], k: int) -> list[float]:
    """The first k scores; 0 where there are fewer."""
    scores = [hit.score for hit in hits[:k]]
    return scores + [0.0] * (k - len(scores))


def _sparse_per_term(found: Found) -> float:
    """Best BM25 score for each pair of characters of the question: long questions score higher by themselves."""
    return _scores(found.layers.sparse, 1)[0] / len(bigrams(found.question))


def _sparse_fall(found: Found) -> float:
    """How far the score falls from the first to the k-th hit, as a share of the first."""
    scores = _scores(found.layers.sparse, found.k)
    return (scores[0] - scores[-1]) / scores[0] if scores[0] else 0.0


def _sparse_lead(found: Found) -> float:
    """How far the first hit is ahead of the second, as a share of the first."""
    first, second = _scores(found.layers.sparse, 2)
    return (first - second) / first if first else 0.0


def _dense_best(found: Found) -> float:
    return _scores(found.layers.dense, 1)[0]


def _dense_mean(found: Found) -> float:
    return float(np.mean(_scores(found.layers.dense, found.k)))


def _dense_lead(found: Found) -> float:
    first, second = _scores(found.layers.dense, 2)
    return first - second if second else 0.0


def _layers_agree(found: Found) -> float:
    """Share of the first layer's k best that are among the second's."""
    first, second = ({hit.doc_id for hit in hits[: found.k]} for hits in (found.layers.sparse, found.layers.dense))
    return len(first & second) / found.k


def _same_first(found: Found) -> float:
    """1 where both layers have the same best document."""
    first, second = found.layers.sparse[:1], found.layers.dense[:1]
    return float(bool(first and second) and first[0].doc_id == second[0].doc_id)


def _shares(found: Found) -> list[float]:
    """Share of the question's character pairs that each document holds."""
    wanted = bigrams(found.question)
    return [len(wanted & bigrams(_text(document))) / len(wanted) for document in found.documents]


def _share_best(found: Found) -> float:
    return max(_shares(found), default=0.0)


def _share_first(found: Found) -> float:
    return next(iter(_shares(found)), 0.0)


def _share_all(found: Found) -> float:
    """Share of the question's character pairs that the documents hold together."""
    wanted = bigrams(found.question)
    held = set().union(*(bigrams(_text(document)) for document in found.documents))
    return len(wanted & held) / len(wanted)


def _question_length(found: Found) -> float:
    return log(len(bigrams(found.question)))


def _labels(found: Found) -> list[Sequence[str]]:
    """What each document's department is called: the top label of a path, every label of a set."""
    return [d.domain if found.domain_kind == "set" else d.domain[:1] for d in found.documents]


def _departments_agree(found: Found) -> float:
    """Share of the documents that carry their most frequent label."""
    counts = Counter(label for labels in _labels(found) for label in set(labels))
    return max(counts.values()) / len(found.documents) if counts else 0.0


def _departments_spread(found: Found) -> float:
    """Entropy of the documents' labels, in nats."""
    counts = np.array(list(Counter(label for labels in _labels(found) for label in labels).values()), float)
    shares = counts / counts.sum() if len(counts) else counts
    return float(-(shares * np.log(shares)).sum()) + 0.0


def _likeliest(found: Found) -> tuple[str, float]:
    """The question's likeliest top label and its probability; a model of no labels gives none."""
    alternatives = () if found.inferred is None else found.inferred.alternatives
    return alternatives[0] if alternatives else ("", 0.0)


def _domain_agrees(found: Found) -> float:
    """Share of the documents that carry the question's likeliest label."""
    likeliest, _ = _likeliest(found)
    if not found.documents:
        return 0.0
    return sum(likeliest in labels for labels in _labels(found)) / len(found.documents)


def _domain_probability(found: Found) -> float:
    return _likeliest(found)[1]


def _domain_known(found: Found) -> float:
    return float(found.inferred is not None and not found.inferred.abstained)


def _text(document: Document) -> str:
    return "\n".join((document.question, *document.answers))


_FEATURES: dict[str, Callable[[Found], float]] = {
    "sparse score per term": _sparse_per_term,
    "sparse fall": _sparse_fall,
    "sparse lead": _sparse_lead,
    "dense best": _dense_best,
    "dense mean": _dense_mean,
    "dense lead": _dense_lead,
    "layers agree": _layers_agree,
    "same first": _same_first,
    "share in first": _share_first,
    "share in best": _share_best,
    "share in all": _share_all,
    "question length": _question_length,
    "departments agree": _departments_agree,
    "departments spread": _departments_spread,
    "domain agrees": _domain_agrees,
    "domain probability": _domain_probability,
    "domain known": _domain_known,
}

NAMES = tuple(_FEATURES)
"""Of the features, in order. A name stands for what is computed: one that changes its meaning gets another name."""
