"""The engine as a whole: states, reloads under load, stopping, what is kept."""

import asyncio
import json
import threading
from contextlib import aclosing
from pathlib import Path

import pytest
from engine_parts import CHILD, DOCUMENTS, HeldGenerator, events_of, parts_of, run, running, until, with_load

from dmnrag.errors import ConfigError, EndpointError, GenerationError
from dmnrag.index import IndexSettings, build_index, update_index
from dmnrag.llm.fake import FakeGenerator
from dmnrag.service import engine as engine_module
from dmnrag.service import records
from dmnrag.service.engine import Engine, NotReady
from dmnrag.service.events import Asked, Delta, Finished, Started
from dmnrag.service.settings import AnswerSettings, ServeSettings, TrustSettings
from dmnrag.service.store import Store, StoreError
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document, GenerationSettings

QUESTION = "孩子能喝酒吗"


def add_document(folder: Path, number: int) -> None:
    document = Document(f"new{number}", f"第{number}个新问题", ("新回答。",), CHILD)
    update_index(folder, add=[document], encoder_for=lambda _: HashEncoder())


def test_start_returns_before_anything_is_loaded(folder: Path) -> None:
    async def work() -> None:
        engine = Engine(folder, "fake", ServeSettings())
        await engine.start()
        assert (engine.state, engine.llm_state, engine.domains()) == ("loading", "loading", [])
        with pytest.raises(NotReady, match="being loaded"):
            await engine.search(Asked(QUESTION))
        with pytest.raises(NotReady, match="being loaded"):
            await events_of(engine, QUESTION)
        await until(lambda: (engine.state, engine.llm_state) == ("ready", "ready"))
        parts_of(await events_of(engine, QUESTION))
        await engine.stop()

    run(work())


def test_without_an_llm_it_searches_and_says_why_it_does_not_answer(folder: Path) -> None:
    async def work() -> None:
        async with running(folder) as engine:
            assert engine.llm_state == "none"
            assert len((await engine.search(Asked(QUESTION))).sources) == 3
            with pytest.raises(NotReady, match="has no LLM"):
                await events_of(engine, QUESTION)

    run(work())


def test_an_index_that_is_built_after_the_start_is_used(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path / "i", "fake", with_load(reload_every_s=0.01)) as engine:
            assert engine.state == "failed"
            assert "there is no folder" in engine.problem
            build_index(tmp_path / "i", DOCUMENTS, IndexSettings())
            await until(lambda: engine.state == "ready")
            assert engine.problem == ""
            parts_of(await events_of(engine, QUESTION))

    run(work())


def test_a_fault_in_loading_is_shown_and_not_taken_for_loading(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fault(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(engine_module, "warm", fault)

    async def work() -> None:
        engine = Engine(folder, None, ServeSettings())
        await engine.start()
        await until(lambda: engine.state == "failed")
        assert "planted" in engine.problem
        await engine.stop()

    run(work())
    assert "planted" in caplog.text


def test_a_fault_in_a_reload_is_not_the_end_of_reloads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "RETRY_S", 0.01)
    warm, faults = engine_module.warm, iter([None, ValueError("planted"), None])

    def sometimes(*arguments: object) -> None:
        if (fault := next(faults)) is not None:
            raise fault
        warm(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(engine_module, "warm", sometimes)

    async def work() -> None:
        async with running(folder, None, with_load(reload_every_s=0.01)) as engine:
            add_document(folder, 1)
            await until(lambda: "planted" in engine.problem)
            assert (engine.state, engine.gauges()["index_problem"]) == ("ready", 1)
            await until(lambda: engine.gauges()["generation"] == 2)
            await until(lambda: engine.problem == "")

    run(work())


def test_a_fault_in_loading_the_llm_is_not_taken_for_loading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine_module, "make_generator", fault)

    async def work() -> None:
        async with running(folder, "some/model") as engine:
            assert (engine.state, engine.llm_state) == ("ready", "down")
            assert "out of memory" in engine.problem

    run(work())


def test_a_server_that_is_not_there_yet_is_not_called_ready(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "PROBE_EVERY_S", 0.01)
    llm = FakeGenerator(["好。"], failures={n: EndpointError("refused") for n in range(3)})
    monkeypatch.setattr(engine_module, "make_generator", lambda *_, **__: llm)

    async def work() -> None:
        engine = Engine(folder, "openai:m@http://localhost:9/v1", ServeSettings())
        await engine.start()
        await until(lambda: engine.llm_state != "loading")
        assert (engine.llm_state, engine.problem) == ("down", "refused")
        await until(lambda: engine.llm_state == "ready")
        await engine.stop()

    run(work())


def test_stopping_does_not_wait_for_a_probe_of_a_silent_llm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = HeldGenerator()
    monkeypatch.setattr(engine_module, "make_generator", lambda *_, **__: llm)

    async def work() -> None:
        engine = Engine(folder, "openai:m@http://localhost:9/v1", ServeSettings())
        await engine.start()
        await until(lambda: llm.n_running == 1)
        await engine.stop()
        await until(lambda: not any(t.name.startswith("dmnrag-load") for t in threading.enumerate()))

    run(work())


def test_an_llm_that_cannot_be_loaded_is_down_and_searching_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConfigError("no such model")

    monkeypatch.setattr(engine_module, "make_generator", refuse)

    async def work() -> None:
        async with running(folder, "some/model") as engine:
            assert engine.llm_state == "down"
            assert engine.problem == "the LLM cannot be used: no such model"
            with pytest.raises(NotReady, match="could not be loaded"):
                await events_of(engine, QUESTION)
            await engine.search(Asked(QUESTION))

    run(work())


@pytest.mark.parametrize("given", [{"llm": "buildin"}, {"llm": "fake", "template": "citet"}, {"adapter": Path("x")}])
def test_what_cannot_be_is_refused_before_the_start(folder: Path, given: dict[str, object]) -> None:
    with pytest.raises((ConfigError, ValueError)):
        Engine(folder, settings=ServeSettings(), **{"llm": None, **given})  # type: ignore[arg-type]


def test_a_probe_finds_out_that_a_dead_llm_is_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "PROBE_EVERY_S", 0.01)
    llm = FakeGenerator(["好。"], failures={n: EndpointError("refused") for n in range(3)})

    async def work() -> None:
        async with running(folder, llm) as engine:
            with pytest.raises(EndpointError):
                await events_of(engine, QUESTION)
            await until(lambda: engine.llm_state == "ready")
            assert len(llm.prompts) == 4
            await asyncio.sleep(0.05)
            assert len(llm.prompts) == 4  # one that answers is left alone

    run(work())


def test_answers_go_on_while_generations_come_and_old_ones_are_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, closed = [], []
    real_open, real_close = Engine._open_index, engine_module.OpenGeneration.close

    def open_counted(self: Engine, former: engine_module.OpenIndex | None) -> engine_module.OpenIndex:
        opened.append(real_open(self, former))
        return opened[-1]

    def close_counted(self: engine_module.OpenGeneration) -> None:
        closed.append(self.pipeline.index.manifest.generation)
        real_close(self)

    monkeypatch.setattr(Engine, "_open_index", open_counted)
    monkeypatch.setattr(engine_module.OpenGeneration, "close", close_counted)

    async def work() -> None:
        async with running(folder, FakeGenerator(["好[1]。"]), with_load(reload_every_s=0.01)) as engine:
            stopped = False

            async def keep_asking() -> int:
                n = 0
                while not stopped:
                    parts_of(await events_of(engine, QUESTION))
                    n += 1
                return n

            asking = [asyncio.create_task(keep_asking()) for _ in range(4)]
            for number in range(1, 3):
                await asyncio.to_thread(add_document, folder, number)
                await until(lambda wanted=number + 1: engine.gauges()["generation"] == wanted)  # type: ignore[misc]
                found = await engine.search(Asked(f"第{number}个新问题", k=1))
                assert found.sources[0].doc_id == f"new{number}"
            stopped = True
            assert all(n > 0 for n in await asyncio.gather(*asking))
            assert engine.gauges()["reloads"] == 2
            assert closed == [1, 2]
            encoders = {id(generation.pipeline.encoders["base"]) for generation in opened}
            assert len(encoders) == 1  # loaded once

    run(work())
    assert closed == [1, 2, 3]


def test_a_damaged_generation_keeps_the_former_one_and_says_so(folder: Path) -> None:
    async def work() -> None:
        async with running(folder, FakeGenerator(["好[1]。"]), with_load(reload_every_s=0.01)) as engine:
            (folder / "CURRENT").write_text("000007\n")
            await until(lambda: engine.problem != "")
            assert "the former state still answers" in engine.problem
            assert engine.state == "ready"
            parts_of(await events_of(engine, QUESTION))

    run(work())


def test_calibrating_is_noticed_without_a_new_generation(folder: Path) -> None:
    async def work() -> None:
        async with running(folder, None, with_load(reload_every_s=0.01)) as engine:
            (folder / "refusal.json").write_text("{}")
            await until(lambda: "refusal.json" in engine.problem)
            (folder / "refusal.json").unlink()
            await until(lambda: engine.problem == "")

    run(work())


def test_stopping_finishes_the_answers_that_run(folder: Path) -> None:
    llm = HeldGenerator("孩子不可以喝酒。")

    async def work() -> None:
        async with running(folder, llm) as engine:
            answer = asyncio.create_task(events_of(engine, QUESTION))
            await until(lambda: llm.n_running == 1)
            stopping = asyncio.create_task(engine.stop())
            await asyncio.sleep(0)
            with pytest.raises(NotReady, match="stopping"):
                await events_of(engine, QUESTION)
            llm.released.set()
            await stopping
            _, _, finished = parts_of(await answer)
            assert finished.finish_reason == "stop"

    run(work())


def test_after_the_grace_an_answer_is_what_is_there(folder: Path) -> None:
    llm = HeldGenerator("孩子不可以喝酒。")

    async def work() -> None:
        async with running(folder, llm, with_load(shutdown_grace_s=0)) as engine:
            answer = asyncio.create_task(events_of(engine, QUESTION))
            await until(lambda: llm.n_running == 1)
            await engine.stop()
            _, _, finished = parts_of(await answer)
            assert (finished.text, finished.finish_reason) == ("孩子不可以喝酒。", "cancelled")

    run(work())


def test_stopping_twice_or_before_the_start_does_no_harm(folder: Path) -> None:
    async def work() -> None:
        engine = Engine(folder, None, ServeSettings())
        await engine.stop()
        await engine.stop()

    run(work())


def test_what_is_remembered_is_bounded_by_its_size_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with running(folder, FakeGenerator(["好[1]。"])) as engine:
            *_, first = await events_of(engine, QUESTION)
            size = engine._records._n_characters
            monkeypatch.setattr(records, "REMEMBERED_CHARACTERS", size)
            *_, second = await events_of(engine, QUESTION)
            assert isinstance(first, Finished)
            assert isinstance(second, Finished)
            assert await engine.stored(first.answer_id, "") is None
            assert await engine.stored(second.answer_id, "") is not None
            assert engine._records._n_characters == size

    run(work())


def test_an_answer_without_a_word_is_a_failure(folder: Path) -> None:
    async def work() -> None:
        async with running(folder, FakeGenerator(["<think>想</think>"])) as engine:
            with pytest.raises(GenerationError, match="wrote nothing"):
                await events_of(engine, QUESTION)

    run(work())


def test_a_server_that_does_not_keep_to_max_tokens_is_stopped(folder: Path) -> None:
    class Endless(FakeGenerator):
        def stream(self, prompt, settings, cancelled=lambda: False):  # type: ignore[no-untyped-def]
            return super().stream(prompt, GenerationSettings(max_tokens=100_000), cancelled)

    async def work() -> None:
        async with running(folder, Endless(["好" * 50_000], context_tokens=None)) as engine:
            _, _, finished = parts_of(await events_of(engine, Asked(QUESTION, max_tokens=10)))
            assert finished.finish_reason == "length"
            assert len(finished.text) < 50

    run(work())


def test_answers_are_shown_again_to_their_owner_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "REMEMBERED", 2)

    async def work() -> None:
        async with running(folder, FakeGenerator(["好[1]。"])) as engine:
            asked = Asked(QUESTION, owner="desk")
            started, sources, finished = parts_of(await events_of(engine, asked))
            again = await engine.stored(finished.answer_id, "desk")
            assert again is not None
            assert (again.started, again.sources, again.finished) == (started, sources, finished)
            assert (again.question, again.generation) == (QUESTION, 1)
            assert await engine.stored(finished.answer_id, "other") is None
            assert await engine.forget("other", finished.answer_id) == 0
            assert await engine.forget("desk", finished.answer_id) == 1
            assert await engine.stored(finished.answer_id, "desk") is None
            *_, finished = await events_of(engine, asked)
            assert isinstance(finished, Finished)
            for _ in range(2):
                await events_of(engine, asked)
            assert await engine.stored(finished.answer_id, "desk") is None  # two are remembered

    run(work())


def kept_in(tmp_path: Path) -> ServeSettings:
    return ServeSettings(trust=TrustSettings(store_file=tmp_path / "store.db", audit_file=tmp_path / "audit.jsonl"))


def test_with_a_store_answers_survive_the_process_and_the_audit_names_their_sources(
    folder: Path, tmp_path: Path
) -> None:
    seen: list[tuple[Started, Finished]] = []

    async def work() -> Finished:
        async with running(folder, FakeGenerator(["好[1]。"]), kept_in(tmp_path)) as engine:
            engine.observers.append(lambda started, finished: seen.append((started, finished)))
            started, _, finished = parts_of(
                await events_of(engine, Asked(QUESTION, owner="desk", domain=CHILD, request_id="r1"))
            )
            assert engine.store is not None
            engine.store.add_feedback(finished.answer_id, "desk", good=True)
            assert seen == [(started, finished)]
            return finished

    finished = run(work())
    with Store.open(tmp_path / "store.db") as store:
        kept = store.answer(finished.answer_id, "desk")
        assert kept is not None
        assert kept.finished == finished
        assert kept.feedback is not None
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["event"], line["outcome"]) for line in lines] == [("sources", ""), ("finished", "answered")]
    assert lines[0]["doc_ids"][0] == "d2"
    assert {line["request_id"] for line in lines} == {"r1"}
    assert QUESTION not in (tmp_path / "audit.jsonl").read_text(encoding="utf-8")


def test_a_store_that_fails_costs_no_answer_and_an_audit_log_that_fails_does(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreError("no space left")

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no space left")

    async def work() -> None:
        async with running(folder, FakeGenerator(["好[1]。"]), kept_in(tmp_path)) as engine:
            monkeypatch.setattr(Store, "add_question", full)
            parts_of(await events_of(engine, QUESTION))
            assert engine.gauges()["store_failures"] == 1
            monkeypatch.setattr("dmnrag.service.audit.AuditLog.write", refuse)
            with pytest.raises(OSError, match="no space"):
                await anext(engine.answer(Asked(QUESTION)))

    run(work())


def test_a_fast_llm_costs_few_changes_between_threads(folder: Path) -> None:
    """Pieces that gathered while nobody looked come as one."""
    n_pieces = 200
    gate = threading.Event()

    class Fast(FakeGenerator):
        def stream(self, prompt, settings, cancelled=lambda: False):  # type: ignore[no-untyped-def]
            pieces = super().stream(prompt, settings, cancelled)
            yield next(pieces)
            yield from list(pieces)  # computed before the reader is let on
            gate.set()

    llm = Fast(["好，" * (n_pieces // 2)])

    async def work() -> None:
        async with running(folder, llm, ServeSettings(answer=AnswerSettings(layer="sparse"))) as engine:
            n_deltas = 0
            async with aclosing(engine.answer(Asked(QUESTION))) as events:
                async for event in events:
                    n_deltas += isinstance(event, Delta)
                    if n_deltas == 1:
                        assert gate.wait(30)  # blocks this loop: the job may go on without its reader
            assert n_deltas <= 4

    run(work())
