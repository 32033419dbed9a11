"""Trained retrievers beside the untrained one: in search, in `evaluate` and on the answer pool."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dmnrag.errors import ConfigError
from dmnrag.experiments.evaluate import evaluate_retrieval
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.index.retrievers import add_retriever
from dmnrag.pipeline import Pipeline
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import PLAIN, Document, Example, Query

WORDS = ["头痛", "发烧", "咳嗽", "胃疼", "失眠", "骨折", "过敏", "贫血"]
DOCUMENTS = [
    Document(f"d{i}", f"{word}怎么办", (f"{word}的人要休息，第{i}天再看。",), ("内科",)) for i, word in enumerate(WORDS)
]
EXAMPLES = [
    Example(Query(f"q{i}", f"总是{word}", ("内科",)), (f"{word}请去医院检查第{i}项。",), cluster=str(i))
    for i, word in enumerate(WORDS)
]


class BlindEncoder(HashEncoder):
    """Sees of a question only how long it is: what an encoder trained to nothing would do."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix:
        self.asked += texts
        return super().encode_queries(["一" * len(text) for text in texts])


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    folder = tmp_path / "i"
    settings = IndexSettings(dense=DenseSettings(encoder="fake"))
    build_index(folder, DOCUMENTS, settings, examples=EXAMPLES, encoder=HashEncoder())
    trained = DenseSettings(encoder="fake", passage="answer", domain_in_passage=True)
    add_retriever(folder, "joint", trained, HashEncoder(), info={"domain_in_question": True})
    add_retriever(folder, "plain", DenseSettings(encoder="fake", passage="answer"), HashEncoder())
    with Index.open(folder) as opened:
        yield opened


def test_every_retriever_is_measured_in_the_index_and_on_the_pool(index: Index) -> None:
    blind = BlindEncoder()
    pipeline = Pipeline(index, encoders={"base": HashEncoder(), "joint": blind, "plain": HashEncoder()})
    found = evaluate_retrieval(pipeline)
    figures = {(row.name, row.metric): row.mean for row in found.rows}
    for name in ("DPR-joint", "cascade joint, DPR-joint", "hybrid joint, DPR-joint", "DPR-plain", "dense"):
        assert (name, "best-of-3 ROUGE-1 (word)") in figures
        assert (name, "pool recall@3") in figures
    # The same encoder on the same pool gives the same figures, a worse one worse figures.
    assert figures["DPR-plain", "pool MRR@10"] == figures["dense", "pool MRR@10"] > 0.5
    assert figures["DPR-joint", "pool MRR@10"] < figures["dense", "pool MRR@10"]
    pairs = {(c.a, c.b) for c in found.comparisons}
    assert {
        ("DPR-joint", "dense"),
        ("DPR-joint", "BM25 joint"),
        ("DPR-joint", "DPR-plain"),
        ("cascade plain, DPR-plain", "cascade plain"),
        ("hybrid joint, DPR-joint", "hybrid joint"),
    } <= pairs


def test_a_retriever_is_asked_as_it_was_trained(index: Index) -> None:
    blind = BlindEncoder()
    pipeline = Pipeline(index, encoders={"base": HashEncoder(), "joint": blind, "plain": HashEncoder()})
    pipeline.search([EXAMPLES[0].query], RetrievalSettings(layer="dense"))
    assert blind.asked == ["内科总是头痛"]


def test_a_retriever_can_be_named(index: Index) -> None:
    blind = BlindEncoder()
    pipeline = Pipeline(index, encoders={"base": HashEncoder(), "joint": HashEncoder(), "plain": blind})
    pipeline.search([EXAMPLES[0].query], RetrievalSettings(layer="dense", retriever="base"))
    assert blind.asked == []
    pipeline.search([EXAMPLES[0].query], RetrievalSettings(layer="dense", use=PLAIN))
    assert blind.asked == ["总是头痛"]
    with pytest.raises(ConfigError, match="no retriever 'mine'"):
        pipeline.search([EXAMPLES[0].query], RetrievalSettings(layer="dense", retriever="mine"))
