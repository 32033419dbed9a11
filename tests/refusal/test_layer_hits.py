"""The rankings that hits come from: those of the layers themselves, and no other hits than before."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dmnrag.data import load_sample
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.fusion import reciprocal_rank_fusion
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.testing.fakes import HashEncoder, OverlapReranker
from dmnrag.types import Layer, Query

ENCODER = HashEncoder()


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    folder: Path = tmp_path_factory.mktemp("layers") / "index"
    documents, _ = load_sample("legal")
    settings = IndexSettings(dense=DenseSettings(encoder="fake"))
    build_index(folder, documents, settings, encoder=ENCODER, with_domain_model=False)
    with Index.open(folder) as index:
        yield Pipeline(index, encoders={"base": ENCODER}, reranker=OverlapReranker())


@pytest.fixture(scope="module")
def queries() -> list[Query]:
    return [example.query for example in load_sample("legal")[1][:12]]


def test_rankings_are_those_of_each_layer(pipeline: Pipeline, queries: list[Query]) -> None:
    index = pipeline.index
    vectors = ENCODER.encode_queries([query.text for query in queries])
    sparse, dense = index.sparse.search(queries, 20), index.dense().search(vectors, 20)
    settings = RetrievalSettings(k=3, layer="hybrid", candidates=20)
    hybrid = pipeline.search_layers(queries, settings)
    assert [found.sparse for found in hybrid] == sparse
    assert [found.dense for found in hybrid] == dense
    assert [found.hits for found in hybrid] == [
        reciprocal_rank_fusion(pair, 3) for pair in zip(sparse, dense, strict=True)
    ]
    cascade = pipeline.search_layers(queries, RetrievalSettings(k=3, layer="cascade", candidates=20))
    assert [found.sparse for found in cascade] == sparse
    rescored = index.dense().rescore(vectors, [[hit.doc_id for hit in hits] for hits in sparse], 3)
    assert [found.hits for found in cascade] == [found.dense for found in cascade] == rescored


@pytest.mark.parametrize("layer", ["sparse", "dense"])
def test_one_layer_alone_leaves_the_other_empty(pipeline: Pipeline, queries: list[Query], layer: Layer) -> None:
    for found in pipeline.search_layers(queries, RetrievalSettings(k=3, layer=layer)):
        assert (found.dense if layer == "sparse" else found.sparse) == []
        assert found.hits == (found.sparse if layer == "sparse" else found.dense)
        assert len(found.hits) == 3


@pytest.mark.parametrize("rerank", [False, True])
@pytest.mark.parametrize("layer", ["sparse", "dense", "cascade", "hybrid"])
def test_hits_are_those_of_search(pipeline: Pipeline, queries: list[Query], layer: Layer, rerank: bool) -> None:
    settings = RetrievalSettings(k=3, layer=layer, candidates=20, rerank=rerank)
    found = pipeline.search_layers(queries, settings)
    assert [one.hits for one in found] == pipeline.search(queries, settings)
    assert all(len(one.hits) == 3 for one in found)


def test_a_reranker_orders_hits_and_leaves_the_rankings(pipeline: Pipeline, queries: list[Query]) -> None:
    plain = pipeline.search_layers(queries, RetrievalSettings(k=20, layer="hybrid", candidates=20))
    reranked = pipeline.search_layers(queries, RetrievalSettings(k=3, layer="hybrid", candidates=20, rerank=True))
    assert [one.sparse for one in reranked] == [one.sparse for one in plain]
    assert [one.dense for one in reranked] == [one.dense for one in plain]
    assert any(one.hits != other.hits[:3] for one, other in zip(reranked, plain, strict=True))
    scores = [hit.score for one in reranked for hit in one.hits]
    assert all(0 <= score <= 1 for score in scores)  # the reranker's own


def test_no_queries_give_nothing(pipeline: Pipeline) -> None:
    assert pipeline.search_layers([], RetrievalSettings()) == []
