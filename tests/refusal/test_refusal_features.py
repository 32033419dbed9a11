"""Each feature by hand."""

from math import log

import numpy as np
import pytest

from dmnrag.domain import Inference
from dmnrag.refusal.features import NAMES, Found, bigrams, measure
from dmnrag.retrieval.layers import LayerHits
from dmnrag.types import Document, Hit

DOCUMENTS = [
    Document("a", "", ("血压高不喝酒",), ("内科", "心血管")),
    Document("b", "喝酒", ("不行",), ("儿科",)),
    Document("c", "", ("多休息",), ("内科",)),
]
INFERRED = Inference(("内科",), 0.9, False, (("内科", 0.9), ("儿科", 0.2)))


def hits(**scores: float) -> list[Hit]:
    return [Hit(doc_id, score, rank) for rank, (doc_id, score) in enumerate(scores.items(), start=1)]


def features(found: Found) -> dict[str, float]:
    return dict(zip(NAMES, measure(found).tolist(), strict=True))


def test_all_features_of_a_hybrid_search() -> None:
    # 高血压能喝酒吗 has the pairs 高血 血压 压能 能喝 喝酒 酒吗: six.
    layers = LayerHits(hits(a=2, b=2, c=1), hits(a=12.0, b=9.0, d=3.0, e=1), hits(a=0.9, c=0.8, f=0.7))
    found = features(Found("高血压能喝酒吗？", layers, DOCUMENTS, INFERRED, k=3))
    # Pairs held: a 血压 喝酒, b 喝酒, c none.
    expected = {
        "sparse score per term": 12 / 6,
        "sparse fall": (12 - 3) / 12,
        "sparse lead": (12 - 9) / 12,
        "dense best": 0.9,
        "dense mean": 0.8,
        "dense lead": 0.1,
        "layers agree": 1 / 3,  # a alone stands among the three best of both
        "same first": 1.0,
        "share in first": 2 / 6,
        "share in best": 2 / 6,
        "share in all": 2 / 6,
        "departments agree": 2 / 3,
        "departments spread": -(2 / 3) * log(2 / 3) - (1 / 3) * log(1 / 3),
        "domain agrees": 2 / 3,
        "domain probability": 0.9,
        "domain known": 1.0,
        "question length": log(6),
    }
    assert found == pytest.approx({name: expected[name] for name in NAMES})


def test_labels_of_a_set_count_each() -> None:
    documents = [Document("a", "", ("x",), ("合同", "物权")), Document("b", "", ("x",), ("物权",))]
    found = features(Found("物权法", LayerHits([], [], []), documents, None, k=2, domain_kind="set"))
    assert found["departments agree"] == 1.0  # 物权 is on both
    assert found["domain probability"] == found["domain agrees"] == found["domain known"] == 0.0


def test_nothing_found_gives_finite_numbers() -> None:
    found = measure(Found("高", LayerHits([], [], []), [], None, k=3))
    assert np.isfinite(found).all()
    assert not found.any()


def test_hits_beyond_k_change_nothing() -> None:
    short = LayerHits(hits(a=3, b=2), hits(a=3, b=2), hits(a=0.5, b=0.4))
    long = LayerHits(hits(a=3, b=2, c=1), hits(a=3, b=2, c=1), hits(a=0.5, b=0.4, c=0.1))
    first, second = (measure(Found("喝酒吗", x, DOCUMENTS[:2], INFERRED, k=2)) for x in (short, long))
    assert first.tolist() == second.tolist()


def test_pairs_are_of_letters_and_digits_alone() -> None:
    assert bigrams("Ａb，c") == {"ab", "bc"}
    assert bigrams("高") == {"高"}
