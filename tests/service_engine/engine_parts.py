"""What the tests of the engine share: a small index, an engine that runs, LLMs that wait to be told."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from dmnrag.llm.fake import FakeGenerator
from dmnrag.protocols import Generator
from dmnrag.service.engine import Engine
from dmnrag.service.events import Asked, Delta, Event, Finished, Sources, Started
from dmnrag.service.settings import LoadSettings, ServeSettings
from dmnrag.types import Document, Generation, GenerationSettings, Prompt, Usage

HEART, CHILD = ("内科", "心血管内科"), ("儿科",)
DOCUMENTS = [
    Document("d1", "能喝酒吗", ("高血压的人最好不喝酒。",), HEART),
    Document("d2", "能喝酒吗", ("孩子不可以喝酒。",), CHILD),
    Document("d3", "发烧怎么办", ("多喝水，测体温。",), CHILD),
    Document("d4", "胸口疼怎么办", ("马上就医。",), HEART),
]
PATIENCE_S = 60.0
"""A test that hangs fails after this; nothing else depends on it."""

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """In an event loop of its own."""

    async def within_patience() -> T:
        async with asyncio.timeout(PATIENCE_S):
            return await work

    return asyncio.run(within_patience())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


@asynccontextmanager
async def running(
    folder: Path, llm: str | Generator | None = None, settings: ServeSettings | None = None
) -> AsyncIterator[Engine]:
    """An engine whose index and LLM are loaded."""
    engine = Engine(folder, llm, settings or ServeSettings())
    await engine.start()
    try:
        await until(lambda: engine.state != "loading" and engine.llm_state != "loading")
        yield engine
    finally:
        await engine.stop()


async def events_of(engine: Engine, asked: Asked | str) -> list[Event]:
    async with aclosing(engine.answer(Asked(asked) if isinstance(asked, str) else asked)) as events:
        return [event async for event in events]


def parts_of(events: Sequence[Event]) -> tuple[Started, Sources, Finished]:
    """Checks the order that `events` promises."""
    started, sources, *middle, finished = events
    assert isinstance(started, Started)
    assert isinstance(sources, Sources)
    assert isinstance(finished, Finished)
    assert "".join(event.text for event in middle if isinstance(event, Delta)) == finished.text
    assert all(not isinstance(event, Started | Sources | Finished) for event in middle)
    assert started.answer_id == finished.answer_id
    return started, sources, finished


def with_load(**changes: Any) -> ServeSettings:
    return ServeSettings(load=replace(LoadSettings(), **changes))


class HeldGenerator(FakeGenerator):
    """Writes `said`, then nothing more until it is released or told to end."""

    def __init__(self, said: str = "好。", *, obeys: bool = True) -> None:
        """`obeys`: ends when it is told to."""
        super().__init__([said or "无"])
        self._said = said
        self._obeys = obeys
        self.begun = threading.Semaphore(0)
        self.released = threading.Event()
        self.n_running = self.most_running = self.n_cancelled = 0
        self._counting = threading.Lock()

    def stream(
        self, prompt: Prompt, settings: GenerationSettings, cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[str | Generation]:
        with self._counting:
            self.prompts.append(prompt)
            self.n_running += 1
            self.most_running = max(self.most_running, self.n_running)
        self.begun.release()
        try:
            if self._said:
                yield self._said
            while not self.released.wait(0.002) and not (self._obeys and cancelled()):
                pass
            told = cancelled() and not self.released.is_set()
        finally:
            with self._counting:
                self.n_running -= 1
        self.n_cancelled += told
        yield Generation(self._said, "cancelled" if told else "stop", Usage(1, 1))
