"""A question whose domain nobody names, in Python."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dmnrag.errors import ConfigError
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.llm.fake import FakeGenerator
from dmnrag.pipeline import NOT_INFERRED, Pipeline
from dmnrag.types import Document

WORDS = {("内科",): "血压心跳胸闷", ("骨科",): "骨折扭伤关节"}


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    rows = [
        Document(f"{domain[-1]}{n}", f"{words[n % 6]}{words}怎么办", (f"{words}{n}",), domain)
        for domain, words in WORDS.items()
        for n in range(10)
    ]
    build_index(tmp_path / "i", rows, IndexSettings())
    with Index.open(tmp_path / "i") as index:
        yield Pipeline(index, generator=FakeGenerator())


def test_a_domain_is_inferred_unless_one_is_given(pipeline: Pipeline) -> None:
    answer = pipeline.ask("骨折了怎么办")
    assert (answer.domain, answer.method) == (("骨科",), "Dmn-ques-front")
    assert pipeline.ask("骨折了怎么办", "内科").domain == ("内科",)
    none = pipeline.ask("骨折了怎么办", None)
    assert (none.domain, none.method) == ((), "no-Dmn")


def test_a_question_of_no_domain_is_answered_plainly_or_refused(pipeline: Pipeline) -> None:
    answer = pipeline.ask("wxyz")
    assert (answer.domain, answer.method) == ((), "no-Dmn")
    with pytest.raises(ConfigError, match=r"none is known \(no domain is probable enough \(likeliest: .*骨科 \d+ %"):
        pipeline.ask("wxyz", method="Dmn")


def test_inferences_are_the_models(pipeline: Pipeline) -> None:
    assert pipeline.index.domain_model is not None
    asked = ["骨折了怎么办", "wxyz"]
    assert pipeline.infer(asked) == pipeline.index.domain_model.infer(asked)
    assert pipeline.infer([]) == []


def test_many_threads_infer_the_same(pipeline: Pipeline) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(pipeline.infer, [["骨折了怎么办", "血压高"]] * 64))
    assert [row == found[0] for row in found] == [True] * 64
    assert [one.domain for one in found[0]] == [("骨科",), ("内科",)]


def test_without_a_model_every_question_is_abstained_from(tmp_path: Path) -> None:
    build_index(tmp_path / "none", [Document("a", "退票", ("可以退。",))], IndexSettings())
    with Index.open(tmp_path / "none") as index:
        asked = Pipeline(index, generator=FakeGenerator())
        assert asked.infer(["怎么退票", "改签"]) == [NOT_INFERRED] * 2
        assert asked.ask("怎么退票").method == "no-Dmn"
