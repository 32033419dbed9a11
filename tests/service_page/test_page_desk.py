"""What the page does with the engine, without the page's library."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_fake_engine import FAULTS, PIECES, TEXT, FakeEngine

from dmnrag.service.events import AUTO
from dmnrag.service.faults import NotReady
from dmnrag.service.http_errors import ServiceError
from dmnrag.service.page_desk import Desk, Visitor, choice_of, domain_of
from dmnrag.service.page_panel import Panel
from dmnrag.service.page_texts import EN, ZH
from dmnrag.service.settings import ServeSettings
from dmnrag.service.store import Store, StoreError

ANYONE = Visitor("desk", None, lambda: None, "r1")


def desk(engine: FakeEngine | None = None) -> Desk:
    return Desk(engine or FakeEngine(), ServeSettings(), EN)  # type: ignore[arg-type]


async def asked(of: Desk, question: str, methods: Sequence[str | None] = (None,), who: Visitor = ANYONE) -> list[Panel]:
    return list([panels async for panels in of.ask(question, AUTO, methods, who)][-1])


def test_two_methods_are_asked_at_once_and_told_apart() -> None:
    engine = FakeEngine()
    panels = asyncio.run(asked(desk(engine), "q", [None, "ques-rear"]))
    assert [panel.text for panel in panels] == [TEXT, TEXT]
    assert [panel.started.method for panel in panels if panel.started] == ["Dmn-ques-front", "ques-rear"]
    assert {question.owner for question in engine.asked} == {"desk"}


def test_one_failure_leaves_the_other_answer() -> None:
    left = 1

    def charge() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise ServiceError(429, "rate_limited", "", retry_s=11.2)

    first, second = asyncio.run(asked(desk(), "q", [None, "Dmn"], replace(ANYONE, charge=charge)))
    assert first.text == TEXT
    assert second.problem == EN.rate_limited.format(seconds=12)


@pytest.mark.parametrize("question", FAULTS)
def test_no_error_shows_its_own_words(question: str) -> None:
    (panel,) = asyncio.run(asked(desk(), question))
    assert panel.problem
    assert "10.0.0.7" in str(FAULTS[question]())
    assert "10.0.0.7" not in panel.problem
    found = asyncio.run(desk().search(question, AUTO, None, ANYONE))
    assert found.problem == panel.problem


def test_closing_ends_all_answers() -> None:
    async def leave() -> FakeEngine:
        engine = FakeEngine()
        panels = desk(engine).ask("wait", AUTO, [None, "Dmn"], ANYONE)
        async for shown in panels:
            if all(panel.text == PIECES[0] for panel in shown):
                break
        await panels.aclose()
        return engine

    assert asyncio.run(leave()).closed.is_set()


def test_an_empty_question_costs_nothing() -> None:
    def charge() -> None:
        raise AssertionError

    (panel,) = asyncio.run(asked(desk(), " \n", who=replace(ANYONE, charge=charge)))
    assert panel.problem == EN.question_empty


def test_what_is_not_ready_is_named() -> None:
    async def none(*_: object) -> None:
        raise NotReady("", 5)

    for state, llm_state, words in (
        ("loading", "loading", EN.index_loading),
        ("failed", "ready", EN.index_failed),
        ("ready", "loading", EN.llm_loading),
        ("ready", "down", EN.llm_down),
        ("ready", "none", EN.llm_none),
        ("ready", "ready", EN.busy.format(seconds=3)),
    ):
        engine = FakeEngine(state=state, llm_state=llm_state)
        (panel,) = asyncio.run(asked(desk(engine), "busy"))
        assert panel.problem == words
        condition = desk(engine).condition(ANYONE)
        assert condition.settled == (state == "ready" and llm_state in {"none", "ready"})


def test_an_empty_index_is_said_also_to_a_key_that_sees_nothing() -> None:
    assert desk(FakeEngine(documents=0)).condition(ANYONE).words == EN.index_empty
    assert desk().condition(replace(ANYONE, allowed=frozenset({"儿科"}))).words == EN.index_empty_for_key
    assert desk().condition(replace(ANYONE, allowed=frozenset({"外科"}))).words == ""


def test_a_key_lists_its_domains_alone() -> None:
    assert desk().domains(replace(ANYONE, allowed=frozenset({"外科"}))) == [("外科",)]


@pytest.mark.parametrize("wrong", [5, ["x"], {"a": 1}, True])
def test_what_is_no_text_is_unusable_and_no_fault(wrong: Any, tmp_path: Path) -> None:
    faults: list[str] = []
    engine = FakeEngine()
    page = Desk(engine, ServeSettings(), EN, lambda: faults.append(""))  # type: ignore[arg-type]
    for question, choice, method in ((wrong, AUTO, None), ("q", wrong, None), ("q", AUTO, wrong)):

        async def ask(question: Any = question, choice: Any = choice, method: Any = method) -> Panel:
            async for panels in page.ask(question, choice, [method], ANYONE):
                panel = panels[0]
            return panel

        assert asyncio.run(ask()).problem == EN.invalid_question
        found = asyncio.run(page.search(question, choice, method, ANYONE))
        assert found.problem == EN.invalid_question
        assert found.html()
    assert engine.asked == []
    with Store.open(tmp_path / "store") as engine.store:
        assert asyncio.run(page.vote(wrong, True, "", ANYONE)) in {EN.vote_unknown, EN.vote_too_long}
        assert asyncio.run(page.vote("a1", True, wrong, ANYONE)) in {EN.vote_unknown, EN.vote_too_long}
    assert faults == []


def test_questions_bring_the_id_of_their_request() -> None:
    engine = FakeEngine()
    asyncio.run(asked(desk(engine), "q"))
    asyncio.run(desk(engine).search("q", AUTO, None, ANYONE))
    assert [question.request_id for question in engine.asked] == ["r1", "r1"]


@pytest.mark.parametrize(("question", "n"), [("q", 0), ("full", 0), ("unknown domain", 0), ("down", 1), ("fault", 1)])
def test_faults_of_the_service_are_counted(question: str, n: int) -> None:
    faults: list[str] = []
    page = Desk(FakeEngine(), ServeSettings(), EN, lambda: faults.append(""))  # type: ignore[arg-type]
    asyncio.run(asked(page, question))
    assert len(faults) == n


def test_a_vote_that_the_store_cannot_take_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreError("/srv")

    faults: list[str] = []
    with Store.open(tmp_path / "store") as store:
        monkeypatch.setattr(Store, "add_feedback", fail)
        page = Desk(FakeEngine(store), ServeSettings(), EN, lambda: faults.append(""))  # type: ignore[arg-type]
        assert asyncio.run(page.vote("a1", True, "", ANYONE)) == EN.vote_failed
    assert len(faults) == 1


def test_an_answer_with_sources_that_the_key_may_not_see_is_as_if_gone() -> None:
    async def look() -> list[Panel]:
        page = desk(FakeEngine())
        (panel,) = await asked(page, "q")
        keys = [replace(ANYONE, allowed=frozenset(labels)) for labels in (("内科",), ("外科",))]
        return [shown for key in keys for shown in await page.stored([panel.answer_id], key)]

    heart, surgery = asyncio.run(look())
    assert heart.text == TEXT
    assert (surgery.text, surgery.sources, surgery.problem) == ("", None, EN.answer_gone)


def test_without_a_store_no_vote_is_taken() -> None:
    assert asyncio.run(desk().vote("a1", True, "", ANYONE)) == EN.vote_impossible


def test_answers_of_others_are_not_shown_again() -> None:
    async def look() -> tuple[Panel, Panel]:
        engine = FakeEngine()
        page = Desk(engine, ServeSettings(), ZH)  # type: ignore[arg-type]
        (panel,) = await asked(page, "q")
        (own,) = await page.stored([panel.answer_id], ANYONE)
        (others,) = await page.stored([panel.answer_id], replace(ANYONE, owner="law"))
        return own, others

    own, others = asyncio.run(look())
    assert own.text == TEXT
    assert (others.text, others.problem) == ("", ZH.answer_gone)


@pytest.mark.parametrize("domain", [None, ("内科",), ("内科", "心血管 内科"), ("domain",)])
def test_domains_survive_the_list(domain: tuple[str, ...] | None) -> None:
    assert domain_of(choice_of(domain)) == domain
    assert domain_of(AUTO) == domain_of("") == domain_of(None) == AUTO
