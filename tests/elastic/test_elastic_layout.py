"""The mapping says how terms are counted and vectors compared; other settings than the index's are named."""

from typing import Any

import pytest

from dmnrag.errors import ConfigError
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.elastic import IndexLayout, ShardSettings, VectorLayout
from dmnrag.retrieval.elastic.layout import META, describe, differences, field_names, index_settings, new_mapping
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.text import SegmenterSettings


def layout(**changes: Any) -> IndexLayout:
    values: dict[str, Any] = {
        "segmenter": SegmenterSettings().to_dict(),
        "bm25": Bm25Settings(0.9, 0.4),
        "retrievers": {"base": VectorLayout(384, DenseSettings(encoder="e5", hnsw_m=20))},
    }
    return IndexLayout(**(values | changes))


def meta(of: IndexLayout) -> dict[str, Any]:
    content: dict[str, Any] = describe(of, "med", field_names(of))[META]
    return content


def test_fields_count_terms_without_positions_and_take_k1_and_b() -> None:
    mapping = new_mapping(layout(), "med")
    for name in ("text", "joint"):
        field = mapping["properties"][name]
        assert (field["analyzer"], field["index_options"], field["similarity"]) == ("whitespace", "freqs", "bm25")
    assert mapping["dynamic"] == "strict"
    assert mapping["properties"]["question"]["index"] is False
    settings = index_settings(layout(), ShardSettings(3, 1))
    assert settings["similarity"]["bm25"] == {"type": "BM25", "k1": 0.9, "b": 0.4}
    assert (settings["number_of_shards"], settings["number_of_replicas"]) == (3, 1)


@pytest.mark.parametrize(
    ("kind", "graph"),
    [("int8_hnsw", {"m": 20}), ("hnsw", {"m": 20}), ("bbq_hnsw", {"m": 20}), ("flat", {})],
)
def test_each_retriever_has_a_field_of_its_kind(kind: Any, graph: dict[str, int]) -> None:
    two = layout(
        retrievers={
            "base": VectorLayout(384, DenseSettings(hnsw_m=20), kind),
            "dpr": VectorLayout(128, DenseSettings(encoder="m")),
        }
    )
    properties = new_mapping(two, "med")["properties"]
    vector = properties["v1"]["properties"]["vector"]
    assert (vector["dims"], vector["similarity"]) == (384, "max_inner_product")
    assert vector["index_options"]["type"] == kind
    assert {key: vector["index_options"][key] for key in graph} == graph
    assert properties["v2"]["properties"]["vector"]["dims"] == 128


def test_the_same_settings_do_not_differ() -> None:
    assert differences(meta(layout()), meta(layout())) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bm25": Bm25Settings(1.2, 0.4)}, "bm25.k1 is 0.9 in the index and 1.2 here"),
        ({"bm25": Bm25Settings(0.9, 0.5)}, "bm25.b is 0.4 in the index and 0.5 here"),
        ({"indexed_text": "answer"}, "indexed_text is 'question+answer' in the index and 'answer' here"),
        ({"segmenter": SegmenterSettings("jieba").to_dict()}, "segmenter.name is 'bigram' in the index and 'jieba'"),
        (
            {"retrievers": {"base": VectorLayout(384, DenseSettings(encoder="bge"))}},
            "retrievers.base.encoder is 'e5' in the index and 'bge' here",
        ),
        (
            {"retrievers": {"base": VectorLayout(384, DenseSettings(encoder="e5"), "hnsw")}},
            "retrievers.base.kind is 'int8_hnsw' in the index and 'hnsw' here",
        ),
        (
            {"retrievers": {"dpr": VectorLayout(384, DenseSettings(encoder="e5"))}},
            "retrievers.dpr is absent in the index",
        ),
    ],
)
def test_each_difference_is_named(changes: dict[str, Any], words: str) -> None:
    found = differences(meta(layout()), meta(layout(**changes)))
    assert any(words in difference for difference in found), found


def test_word_lists_are_compared_but_do_not_travel_in_the_mapping() -> None:
    words = tuple(f"术语{i}" for i in range(10_000))
    with_words = layout(segmenter=SegmenterSettings(dictionary=words).to_dict())
    assert len(str(meta(with_words))) < 2000
    assert differences(meta(with_words), meta(with_words)) == []
    other = layout(segmenter=SegmenterSettings(dictionary=words[:-1]).to_dict())
    [difference] = differences(meta(with_words), meta(other))
    assert difference.startswith("segmenter.dictionary is '10000 entries")


def test_settings_of_searches_alone_do_not_matter() -> None:
    other = layout(
        retrievers={"base": VectorLayout(384, DenseSettings(encoder="e5", hnsw_ef_search=500), oversample=5)}
    )
    assert differences(meta(layout()), meta(other)) == []


def test_retrievers_that_only_the_index_has_do_not_matter() -> None:
    assert differences(meta(layout()), meta(layout(retrievers={}))) == []


def test_layout_is_read_back_from_the_description() -> None:
    [entry] = meta(layout())["retrievers"].values()
    assert VectorLayout.from_dict(entry) == layout().retrievers["base"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "int4"}, "int8_hnsw"),
        ({"dimension": 5000}, "4096"),
        ({"dimension": 32, "kind": "bbq_hnsw"}, "64"),
        ({"oversample": 0.5}, "oversample"),
    ],
)
def test_vectors_that_the_server_does_not_take_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        VectorLayout(**({"dimension": 384, "dense": DenseSettings()} | options))


@pytest.mark.parametrize("shards", [(0, 1), (1, -1), (2000, 0)])
def test_shards_that_cannot_be_are_refused(shards: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="allowed are whole numbers"):
        ShardSettings(*shards)
