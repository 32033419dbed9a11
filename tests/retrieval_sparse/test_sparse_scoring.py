"""Leaving out what cannot be among the best k changes neither documents nor scores."""

import numpy as np
import pytest

from dmnrag.retrieval.sparse import formulas, scoring
from dmnrag.retrieval.sparse.scoring import ScoredTerm, best_documents

N_DOCUMENTS = 3000


def random_terms(random: np.random.Generator, n_terms: int) -> list[ScoredTerm]:
    """Rare terms weigh much, frequent ones little, as IDF has it; many documents tie."""
    terms = []
    for _ in range(n_terms):
        n_postings = int(random.integers(1, 40) if random.random() < 0.6 else random.integers(500, 2500))
        docs = np.sort(random.choice(N_DOCUMENTS, n_postings, replace=False)).astype(np.int32)
        counts = random.integers(1, 4, n_postings).astype(np.uint8)
        terms.append(ScoredTerm(formulas.idf(N_DOCUMENTS, n_postings) * random.integers(1, 3), docs, counts))
    return sorted(terms, key=lambda term: -term.weight)


def all_scores(terms: list[ScoredTerm], factors: np.ndarray, k1: float) -> np.ndarray:
    scores = np.zeros(len(factors))
    for term in terms:
        for doc, count in zip(term.docs, term.counts, strict=True):
            scores[doc] += float(count) / (float(count) + factors[doc]) * (term.weight * (k1 + 1))
    return scores


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("k", [1, 3, 50])
def test_best_documents_equal_those_of_all_scores(seed: int, k: int) -> None:
    random = np.random.default_rng(seed)
    terms = random_terms(random, int(random.integers(1, 15)))
    factors = random.choice([0.5, 1.0, 1.7], N_DOCUMENTS)
    allowed = None if seed % 2 else random.random(N_DOCUMENTS) < 0.3
    expected = all_scores(terms, factors, 1.2)
    if allowed is not None:
        expected[~allowed] = 0
    documents, scores = best_documents(terms, factors, 1.2, k, allowed)
    assert np.array_equal(scores, expected[documents])  # to the last bit: ties stay ties
    kth = np.sort(expected)[-k]
    assert set(np.flatnonzero((expected >= kth) & (expected > 0))) <= set(documents)
    assert (scores > 0).all()


def test_frequent_terms_are_looked_up_and_not_added_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[int] = []
    term_score = formulas.term_score

    def counting(weight: float, counts: np.ndarray, factors: np.ndarray, k1: float) -> np.ndarray:
        scored.append(len(counts))
        return term_score(weight, counts, factors, k1)

    monkeypatch.setattr(scoring.formulas, "term_score", counting)
    rare = ScoredTerm(7.0, np.array([5, 900], np.int32), np.array([1, 2], np.uint8))
    common = ScoredTerm(0.2, np.arange(N_DOCUMENTS, dtype=np.int32), np.ones(N_DOCUMENTS, np.uint8))
    documents, _ = best_documents([rare, common], np.ones(N_DOCUMENTS), 1.2, 1, None)
    assert documents.tolist() == [900]
    assert sum(scored) <= 4


def test_fewer_documents_than_k_are_all_found() -> None:
    term = ScoredTerm(1.0, np.array([1], np.int32), np.array([1], np.uint8))
    documents, scores = best_documents([term], np.ones(2), 1.0, 10, None)
    assert documents.tolist() == [1]
    assert scores.tolist() == [1.0]  # 1 * (1+1) / (1+1)
