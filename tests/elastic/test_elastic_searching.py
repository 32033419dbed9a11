"""Searches on a real server: few requests for many queries, exact where exactness is promised, clear limits."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from elastic_builder import build, dense_of, layout_of, rows_of, sparse_of, vector_layout, vector_rows

from dmnrag.errors import QueryError
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.elastic import (
    Cluster,
    ElasticDenseIndex,
    delete_index,
)
from dmnrag.testing.dense_contract import EAST, SMALL, VectorDocument, reference_ranking, unit
from dmnrag.testing.sparse_contract import DOCUMENTS
from dmnrag.types import Query

pytestmark = pytest.mark.service


@pytest.fixture
def n_requests(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the server, one entry a request."""
    asked: list[str] = []
    real = cluster.call

    def counting(what: str, ask: Any, **options: Any) -> Any:
        asked.append(what)
        return real(what, ask, **options)

    monkeypatch.setattr(cluster, "call", counting)
    return asked


def test_a_hundred_searches_are_one_request_and_cascade_is_two(
    cluster: Cluster, name: str, n_requests: list[str]
) -> None:
    rows = rows_of(DOCUMENTS)
    vectors = {d.doc_id: unit([1, i, 0, 0]) for i, d in enumerate(DOCUMENTS)}
    with_vectors = [
        type(row)(row.document, row.terms, row.label_terms, {"base": vectors[row.document.doc_id]}) for row in rows
    ]
    opened = build(cluster, name, with_vectors, layout_of(base=vector_layout(4)))
    sparse, dense = sparse_of(cluster, opened), dense_of(cluster, opened)
    queries = [Query(str(i), "chest rest", ("heart",)) for i in range(90)]
    n_requests.clear()
    candidates = [[hit.doc_id for hit in hits] for hits in sparse.search(queries, 100)]
    assert len(n_requests) == 1
    hits = dense.rescore(np.repeat(EAST, 90, axis=0), candidates, 3)
    assert len(n_requests) == 2
    assert [hit.doc_id for hit in hits[0]] == ["d1", "d2", "d3"]
    n_requests.clear()
    dense.search(np.repeat(EAST, 90, axis=0), 3)
    assert len(n_requests) == 1
    sparse.search(queries * 5, 3)
    assert len(n_requests) == 1 + 5


@pytest.mark.parametrize("k", [10_001, 10**6])
def test_more_hits_than_the_server_gives_are_refused_with_the_limit(cluster: Cluster, name: str, k: int) -> None:
    opened = build(cluster, name, vector_rows(SMALL), layout_of(base=vector_layout(4)))
    dense = dense_of(cluster, opened)
    for search in (
        lambda: sparse_of(cluster, opened).search([Query("q", "x")], k),
        lambda: dense.search(EAST, k),
        lambda: dense.rescore(EAST, [["east"]], k),
        lambda: dense.rescore(EAST, [[str(i) for i in range(k)]], 3),
    ):
        with pytest.raises(QueryError, match="10000"):
            search()
    assert len(sparse_of(cluster, opened).search([Query("q", "x")], 10_000)[0]) == len(SMALL)
    assert len(dense.search(EAST, 10_000)[0]) == len(SMALL)


DIMENSION = 128


@pytest.fixture(scope="module")
def passages() -> tuple[list[VectorDocument], FloatMatrix]:
    """3,000 documents and 50 queries as encoders make them: in a narrow cone, of few real dimensions; one document
    in ten has parts that are near to each other."""
    random = np.random.default_rng(11)
    axes, centre = random.standard_normal((24, DIMENSION)), 5 * random.standard_normal(DIMENSION)

    def draw(n: int) -> FloatMatrix:
        return unit(*(centre + random.standard_normal((n, 24)) @ axes + 0.5 * random.standard_normal((n, DIMENSION))))

    documents = []
    for i, vector in enumerate(draw(3000)):
        near = vector + 0.01 * random.standard_normal((4, DIMENSION))
        documents.append(
            VectorDocument(f"d{i:04d}", unit(*near) if i % 10 == 0 else vector[None], ("a", "b")[i % 2 : 1])
        )
    return documents, draw(50)


@pytest.fixture(scope="module", params=["int8_hnsw", "bbq_hnsw"])
def quantised(
    request: pytest.FixtureRequest, cluster: Cluster, passages: tuple[list[VectorDocument], FloatMatrix]
) -> Iterator[ElasticDenseIndex]:

    name = f"passages-{request.param.partition('_')[0]}"
    opened = build(
        cluster, name, vector_rows(passages[0]), layout_of(base=vector_layout(DIMENSION, kind=request.param))
    )
    yield dense_of(cluster, opened)
    delete_index(cluster, name)


def test_quantised_search_finds_the_exact_top_10_but_for_two_in_a_hundred(
    quantised: ElasticDenseIndex, passages: tuple[list[VectorDocument], FloatMatrix]
) -> None:
    documents, queries = passages
    shares = []
    for query, hits in zip(queries, quantised.search(queries, 10), strict=True):
        exact = dict(reference_ranking(documents, query, 10))
        shares.append(len(exact.keys() & {hit.doc_id for hit in hits}) / 10)
        for hit in hits:
            if hit.doc_id in exact:
                assert hit.score == pytest.approx(exact[hit.doc_id], abs=1e-6)
    assert np.mean(shares) >= 0.98


def test_candidates_are_scored_exactly_although_vectors_are_quantised(
    quantised: ElasticDenseIndex, passages: tuple[list[VectorDocument], FloatMatrix], n_requests: list[str]
) -> None:
    """A hundred candidates each, those of several parts with their best part."""
    documents, queries = passages
    random = np.random.default_rng(3)
    chosen = [[documents[i] for i in random.choice(3000, 100, replace=False)] for _ in queries]
    n_requests.clear()
    found = quantised.rescore(queries, [[d.doc_id for d in of_query] for of_query in chosen], 10)
    assert len(n_requests) == 1
    for query, of_query, hits in zip(queries, chosen, found, strict=True):
        expected = reference_ranking(of_query, query, 10)
        assert [hit.doc_id for hit in hits] == [doc_id for doc_id, _ in expected]
        assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected], abs=1e-6)


def test_vectors_of_any_length_are_compared_by_inner_product(cluster: Cluster, name: str) -> None:
    documents = [VectorDocument(f"d{i}", np.array([[float(i), -1.0]], np.float32)) for i in range(-3, 4)]
    opened = build(cluster, name, vector_rows(documents), layout_of(base=vector_layout(2, kind="hnsw")))
    [hits] = dense_of(cluster, opened).search(np.array([[2.0, 0.0]], np.float32), 7)
    assert [(hit.doc_id, hit.score) for hit in hits] == [
        (f"d{i}", pytest.approx(2.0 * i, abs=1e-5)) for i in range(3, -4, -1)
    ]


def test_threads_share_an_index(cluster: Cluster, name: str) -> None:
    sparse = sparse_of(cluster, build(cluster, name, rows_of(DOCUMENTS)))
    queries = [Query("q", text) for text in ("chest rest", "heart", "water night", "zebra")]
    expected = [sparse.search([query], 3)[0] for query in queries]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: sparse.search([queries[i % 4]], 3)[0], range(200)))
    assert found == [expected[i % 4] for i in range(200)]
