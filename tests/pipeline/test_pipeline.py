from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dmnrag.errors import ConfigError, DomainUnknownError, PromptTooLongError, QueryError
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.llm.fake import FakeGenerator
from dmnrag.methods import METHODS, find_method
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.prompts import load_template
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import JOINT, PLAIN, Answer, Document, GenerationSettings, Query

HEART, CHILD = ("内科", "心血管内科"), ("儿科",)
DOCUMENTS = [
    Document("d1", "能喝酒吗", ("高血压的人最好不喝酒。",), HEART),
    Document("d2", "能喝酒吗", ("孩子不可以喝酒。",), CHILD),
    Document("d3", "发烧怎么办", ("多喝水，测体温。",), CHILD),
    Document("d4", "胸口疼怎么办", ("马上就医。",), HEART),
]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    build_index(tmp_path / "i", DOCUMENTS, IndexSettings(dense=DenseSettings(encoder="fake")), encoder=HashEncoder())
    with Index.open(tmp_path / "i") as opened:
        yield opened


def pipeline(index: Index, generator: FakeGenerator | None = None, template: str = "paper") -> Pipeline:
    return Pipeline(index, generator=generator or FakeGenerator(), template=load_template(template))


def test_the_six_methods_are_the_papers_table() -> None:
    table = {(m.name, m.joint, m.position) for m in METHODS}
    assert table == {
        ("no-Dmn", False, "none"),
        ("Dmn", True, "none"),
        ("ques-front", False, "front"),
        ("ques-rear", False, "rear"),
        ("Dmn-ques-front", True, "front"),
        ("Dmn-ques-rear", True, "rear"),
    }


def test_method_names_ignore_case_and_offer_the_nearest() -> None:
    assert find_method("dmn-QUES-front").name == "Dmn-ques-front"
    with pytest.raises(ConfigError, match="Did you mean Dmn-ques-rear"):
        find_method("Dmn-ques-rare")


def test_the_prompt_of_dmn_ques_front_is_the_papers(index: Index) -> None:
    settings = AskSettings(retrieval=RetrievalSettings(k=1, layer="sparse"))
    answer = pipeline(index).ask("能喝酒吗", "心血管内科", settings=settings)
    assert answer.method == "Dmn-ques-front"
    assert answer.prompt.user == (
        "内科,心血管内科能喝酒吗请回答该问题,下面给出该问题的检索内容：\n高血压的人最好不喝酒。"
    )


def test_the_domain_decides_between_equal_questions(index: Index) -> None:
    for domain, expected in ((HEART, "d1"), (CHILD, "d2")):
        settings = AskSettings(retrieval=RetrievalSettings(k=1, layer="sparse"))
        assert pipeline(index).ask("能喝酒吗", domain, settings=settings).hits[0].doc_id == expected


def test_without_a_domain_the_baseline_answers_and_says_so(index: Index) -> None:
    assert pipeline(index).ask("能喝酒吗").method == "no-Dmn"


def test_a_method_with_domain_refuses_a_question_without_one(index: Index) -> None:
    with pytest.raises(ConfigError, match="--method no-Dmn"):
        pipeline(index).ask("能喝酒吗", method="Dmn")


def test_an_unknown_domain_offers_near_ones_and_can_be_forced(index: Index) -> None:
    with pytest.raises(DomainUnknownError, match="near to it: 心血管内科"):
        pipeline(index).ask("能喝酒吗", "心血管科")
    answer = pipeline(index).ask("能喝酒吗", "心血管科", allow_unknown_domain=True)
    assert answer.domain == ("心血管科",)


@pytest.mark.parametrize("question", ["", "   ", "？！。", "😀😀", "\n"])
def test_a_question_without_a_word_is_refused(index: Index, question: str) -> None:
    with pytest.raises(QueryError, match="no word"):
        pipeline(index).ask(question)


def test_a_hundred_thousand_characters_are_refused_not_cut(index: Index) -> None:
    with pytest.raises(QueryError, match="100,000"):
        pipeline(index).ask("长" * 100_000)


def test_a_question_beyond_the_context_is_an_error(index: Index) -> None:
    with pytest.raises(PromptTooLongError):
        pipeline(index, FakeGenerator(context_tokens=300)).ask("长" * 100)


def test_the_budget_leaves_room_for_the_answer(index: Index) -> None:
    generator = FakeGenerator(context_tokens=120)
    settings = AskSettings(generation=GenerationSettings(max_tokens=50))
    answer = pipeline(index, generator).ask("能喝酒吗", settings=settings)
    assert generator.prompt_tokens(answer.prompt) <= 70


def test_citations_name_sources_that_the_prompt_shows(index: Index) -> None:
    generator = FakeGenerator(["不喝为好[1]，也见[2][2]和[9]。"])
    assert pipeline(index, generator, "cited").ask("能喝酒吗").citations == (1, 2)


def test_many_questions_equal_one_by_one(index: Index) -> None:
    queries = [Query("a", "能喝酒吗", HEART), Query("b", "发烧怎么办", CHILD), Query("c", "胸口疼", HEART)]
    method, settings = find_method("Dmn-ques-rear"), AskSettings(batch_size=2)
    together = pipeline(index).ask_all(queries, method, settings)
    apart = [pipeline(index).ask_all([q], method, settings)[0] for q in queries]
    strip = [replace(a, timings_ms={}) for a in together]
    assert strip == [replace(a, timings_ms={}) for a in apart]


def test_a_stream_ends_with_the_same_answer(index: Index) -> None:
    query, method = Query("1", "能喝酒吗", HEART), find_method("Dmn-ques-front")
    *pieces, last = pipeline(index).stream(query, method)
    assert isinstance(last, Answer)
    assert "".join(str(p) for p in pieces) == last.text
    whole = pipeline(index).ask_all([query], method)[0]
    assert replace(last, timings_ms={}) == replace(whole, timings_ms={})


def test_joint_methods_search_jointly_and_the_weight_reaches_them(index: Index) -> None:
    settings = AskSettings(domain_weight=3.0)
    asked = pipeline(index)
    assert asked.retrieval_settings(find_method("Dmn"), settings).use == replace(JOINT, weight=3.0)
    assert asked.retrieval_settings(find_method("ques-front"), settings).use == PLAIN


def test_an_index_without_domains_answers_with_the_baseline_only(tmp_path: Path) -> None:
    build_index(tmp_path / "i", [Document("a", "退票", ("可以退。",))], IndexSettings())
    with Index.open(tmp_path / "i") as opened:
        asked = pipeline(opened)
        assert asked.default_layer == "sparse"
        settings = AskSettings(retrieval=RetrievalSettings(layer="sparse"))
        assert asked.ask("怎么退票", settings=settings).hits[0].doc_id == "a"
        with pytest.raises(ConfigError, match="the index has none"):
            asked.ask("怎么退票", method="Dmn")


def test_answering_without_an_llm_says_how_to_name_one(index: Index) -> None:
    with pytest.raises(ConfigError, match="--llm"):
        Pipeline(index).ask("能喝酒吗")


def test_each_kind_of_method_uses_its_own_trained_retriever(index: Index) -> None:
    asked = pipeline(index)
    assert (asked.retriever_name(JOINT), asked.retriever_name(PLAIN)) == ("base", "base")
    index.manifest.retrievers["joint"] = index.manifest.retrievers["base"]
    assert (asked.retriever_name(JOINT), asked.retriever_name(PLAIN)) == ("joint", "base")
    index.manifest.retrievers.clear()
    assert asked.retriever_name(JOINT) is None
