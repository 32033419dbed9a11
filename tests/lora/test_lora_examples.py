"""What a training question is shown: never its own post, never the dev slice; the same prompt as at inference."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lora_tiny import DOMAINS, documents

from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.llm import FakeGenerator
from dmnrag.methods import BASELINE, DEFAULT
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.prompts import Template, load_template
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.training.lora_examples import (
    LoraExample,
    LoraSet,
    SetPlan,
    build_lora_set,
    search_without,
    shuffle_rankings,
)
from dmnrag.types import Document, GenerationSettings, Hit, Query

ASK = AskSettings(RetrievalSettings(k=3, layer="sparse"), GenerationSettings(max_tokens=64))


@pytest.fixture
def opened(index: Path) -> Iterator[Index]:
    with Index.open(index) as found:
        yield found


def quiet(_stage: str, _done: int, _total: int) -> None:
    pass


def build(
    index: Index, *, generator: FakeGenerator | None = None, template: Template | None = None, **changes: Any
) -> LoraSet:
    pipeline = Pipeline(index, generator=generator or FakeGenerator(), template=template or load_template("paper"))
    return build_lora_set(pipeline, replace(SetPlan(DEFAULT, ASK, dev_questions=4), **changes), quiet)


def shown(example: LoraExample) -> set[str]:
    return {excerpt.doc_id for excerpt in example.prompt.excerpts}


def test_no_prompt_shows_its_own_document_a_repost_or_the_same_answer(opened: Index) -> None:
    made = build(opened, dev_questions=0)
    by_id = {example.doc_id: example for example in made.train}
    assert set(by_id) == {document.doc_id for document in documents()}
    for doc_id, example in by_id.items():
        assert doc_id not in shown(example)
        assert len(example.prompt.excerpts) == 3
    # d0 and d24 are posts of one case, d1 and d25 have the same answer: each would find the other first.
    assert "d24" not in shown(by_id["d0"])
    assert "d0" not in shown(by_id["d24"])
    assert "d25" not in shown(by_id["d1"])
    assert "d1" not in shown(by_id["d25"])
    assert "d26" not in shown(by_id["d27"])
    assert "d27" not in shown(by_id["d26"])
    assert made.card["own_documents"] == 0
    assert made.card["gold_among_documents"] == 0


def test_left_in_they_would_be_found_first(opened: Index) -> None:
    """The control: without the rule the questions find themselves."""
    plan = SetPlan(DEFAULT, ASK, 0)
    pipeline = Pipeline(opened, generator=FakeGenerator(), template=load_template("paper"))
    queries = [Query(d.doc_id, d.question, d.domain) for d in documents()]
    found = search_without(pipeline, queries, [set()] * len(queries), plan)
    assert all(query.query_id in {hit.doc_id for hit in hits} for query, hits in zip(queries, found, strict=True))


def test_no_prompt_shows_the_dev_slice_and_no_answer_of_it_is_trained_on(opened: Index) -> None:
    answers = {document.doc_id: document.answers for document in documents()}
    for seed in range(8):
        made = build(opened, seed=seed)
        dev = {example.doc_id for example in made.dev}
        assert len(dev) in (3, 4)  # a pair of re-posts that would exceed the 4 is passed over
        for example in (*made.train, *made.dev, *made.shuffled):
            assert shown(example).isdisjoint(dev | {example.doc_id})
        assert dev.isdisjoint(example.doc_id for example in made.train)
        assert {example.answer for example in made.dev}.isdisjoint(example.answer for example in made.train)
        assert ("d0" in dev) == ("d24" in dev)
        assert [e.doc_id for e in made.shuffled] == [e.doc_id for e in made.dev]
        assert answers[made.dev[0].doc_id][0] == made.dev[0].answer


def test_the_dev_slice_is_a_fifth_at_most_and_follows_the_seed(opened: Index) -> None:
    assert len(build(opened, dev_questions=100).dev) <= 28 // 5
    first, again, other = ([e.doc_id for e in build(opened, dev_questions=4, seed=seed).dev] for seed in (1, 1, 2))
    assert first == again != other


def test_a_limit_takes_so_many_training_questions(opened: Index) -> None:
    made = build(opened, limit=5)
    assert (len(made.train), made.card["questions"], len(made.dev)) == (5, 5, made.card["dev_questions"])


def test_the_prompt_is_the_pipelines(opened: Index) -> None:
    """The same question with the same documents through the pipeline gives the same prompt, to the letter."""
    made = build(opened)
    pipeline = Pipeline(opened, generator=FakeGenerator(), template=load_template("paper"))
    for example in (*made.train, *made.dev):
        (document,) = opened.documents([example.doc_id])
        hits = [Hit(e.doc_id, 1.0, e.number) for e in example.prompt.excerpts]
        query = Query("q", document.question, document.domain)
        assert pipeline.prompt(query, hits, DEFAULT, ASK) == example.prompt
        assert example.prompt.user.startswith(f"{','.join(document.domain)}{document.question}请回答")


def test_the_search_goes_as_deep_as_it_must(opened: Index) -> None:
    pipeline = Pipeline(opened, generator=FakeGenerator(), template=load_template("paper"))
    query = Query("q", "高血压能喝酒吗", DOMAINS[0])
    (everything,) = pipeline.search([query], RetrievalSettings(k=28, layer="sparse"))
    hidden = {hit.doc_id for hit in everything[:-2]}
    (left,) = search_without(pipeline, [query], [hidden], SetPlan(DEFAULT, ASK, 0))
    assert [(hit.doc_id, hit.rank) for hit in left] == [(hit.doc_id, n) for n, hit in enumerate(everything[-2:], 1)]


def test_an_answer_ends_where_generation_would_end_it(tmp_path: Path) -> None:
    rows = [replace(d, answers=(f"{d.answers[0]}\n\n其他{d.doc_id}",)) for d in documents()]
    build_index(tmp_path / "i", rows, IndexSettings())
    with Index.open(tmp_path / "i") as opened:
        made = build(opened, template=load_template("base"))
    assert all("\n\n" not in example.answer for example in made.train)
    assert {e.doc_id: (e.answer,) for e in made.train}.items() <= {d.doc_id: d.answers for d in documents()}.items()
    assert made.card["answers_cut_at_stop"] == len(made.train) + len(made.dev)


def test_questions_that_cannot_be_used_are_counted_by_reason(tmp_path: Path) -> None:
    rows = [*documents(), Document("x1", "？？？", ("有回答",), DOMAINS[0]), Document("x2", "没有领域", ("回答",))]
    build_index(tmp_path / "i", rows, IndexSettings())
    with Index.open(tmp_path / "i") as opened:
        left = build(opened, dev_questions=0).card["left_out"]
        assert {reason: of["doc_ids"] for reason, of in left.items()} == {
            "the question holds no word, or is too long": ["x1"],
            "method Dmn-ques-front needs a domain and the document has none": ["x2"],
        }
        assert list(build(opened, method=BASELINE, dev_questions=0).card["left_out"]) == [
            "the question holds no word, or is too long"
        ]


def test_too_long_a_question_is_left_out(opened: Index) -> None:
    paper = load_template("paper").front.replace("{documents}", "")
    texts = [paper.format(domain=",".join(d.domain), question=d.question) for d in documents()]
    lengths = sorted(FakeGenerator().counter.count(text) for text in texts)
    fitting = sum(length <= lengths[14] for length in lengths)
    made = build(opened, generator=FakeGenerator(context_tokens=64 + lengths[14]), dev_questions=0)
    ((reason, left),) = made.card["left_out"].items()
    assert reason == "the question alone is longer than max_length allows"
    assert 0 < left["n"] == 28 - fitting
    assert len(made.train) == fitting


def test_shuffling_leaves_nobody_its_own() -> None:
    rankings = [[Hit(f"d{n}", 1.0, 1)] for n in range(9)]
    for seed in range(5):
        swapped = shuffle_rankings(rankings, seed)
        assert all(mine != other for mine, other in zip(rankings, swapped, strict=True))
        assert sorted(hits[0].doc_id for hits in swapped) == sorted(hits[0].doc_id for hits in rankings)


def test_examples_survive_json(opened: Index) -> None:
    for example in build(opened).train:
        assert LoraExample.from_dict(example.to_dict()) == example
