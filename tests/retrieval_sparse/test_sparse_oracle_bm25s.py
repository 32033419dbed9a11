"""bm25s stands beside the embedded index as oracle: its scores times k1+1 are eq. 2's."""

from pathlib import Path

import bm25s
import numpy as np
import pytest
from sparse_builder import Words, open_rows

from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.types import PLAIN, Query


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.9, 0.4), (2.0, 1.0)])
def test_scores_equal_those_of_bm25s(tmp_path: Path, k1: float, b: float) -> None:
    random = np.random.default_rng(7)
    words = [f"w{i}" for i in range(200)]
    draw = 1 / np.arange(1, 201)
    texts = [" ".join(random.choice(words, random.integers(1, 120), p=draw / draw.sum())) for _ in range(300)]
    oracle = bm25s.BM25(method="lucene", k1=k1, b=b)
    oracle.index([text.split() for text in texts], show_progress=False)
    rows = [(f"d{i:03d}", text, ()) for i, text in enumerate(texts)]
    index = open_rows(tmp_path, [rows[:120], rows[120:]], settings=Bm25Settings(k1=k1, b=b))

    queries = [" ".join(random.choice(words, 6, replace=False)) for _ in range(20)]
    rankings = index.search([Query("q", text) for text in queries], 300, use=PLAIN)
    for text, hits in zip(queries, rankings, strict=True):
        expected = oracle.get_scores(Words().segment(text)) * (k1 + 1)
        found = {hit.doc_id: hit.score for hit in hits}
        assert len(found) == np.count_nonzero(expected)
        assert [found.get(f"d{i:03d}", 0.0) for i in range(300)] == pytest.approx(expected.tolist(), rel=1e-5)
