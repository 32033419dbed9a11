"""An engine that yields what a test wrote down, and a server with it."""

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from dmnrag.service.events import (
    Asked,
    Delta,
    Event,
    Evidence,
    Finished,
    Inferred,
    Source,
    Sources,
    Started,
    Unsupported,
)
from dmnrag.service.store import Store, StoredAnswer
from dmnrag.types import Domain, Layer, Usage

Open = Callable[..., TestClient]
"""Of the fixture `connect`."""

TEXT = "先复查血压[1]。多喝水。"
SOURCE = Source(
    number=1,
    doc_id="med-7",
    domain=("内科", "心血管内科"),
    score=7.25,
    question="高血压患者早上头晕",
    answers=("先测血压，再调药。", "注意休息。"),
    metadata={"来源": "门诊"},
    excerpt="问：高血压患者早上头晕\n答：先测血压，再调药。",
    cut=True,
    valid_until="2020-12-31",
    outdated=True,
)


def script(answer_id: str = "a1", question: str = "q") -> list[Event]:
    """A whole answer; its second sentence is unsupported."""
    unsupported = Unsupported(9, 13)
    assert TEXT[9:13] == "多喝水。"
    return [
        Started(
            answer_id,
            question,
            ("内科",),
            Inferred(("内科",), 0.93, False, (("外科", 0.05), ("儿科", 0.01))),
            "Dmn-ques-front",
            "fake",
        ),
        Sources((SOURCE,), Evidence(0.83, 0.4, True)),
        Delta("先复查"),
        Delta("血压[1]。"),
        Delta("多喝水。"),
        unsupported,
        Finished(answer_id, TEXT, "answered", "stop", (1,), (unsupported,), Usage(120, 9), {"generation": 12.5}),
    ]


@dataclass
class FakeEngine:
    """What the routes need of an engine. `script` holds events, and errors that are raised in their place."""

    script: Sequence[Event | Exception] = field(default_factory=script)
    store: Store | None = None
    state: str = "ready"
    llm_state: str = "ready"
    hang_before: int | None = None
    """Place in the script before which the engine waits for ever."""
    asked: list[Asked] = field(default_factory=list)
    observers: list[Callable[[Started, Finished], None]] = field(default_factory=list)
    hanging: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)
    """Set when the last iterator was closed, its clean-up waited for."""
    running: bool = False

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False

    def domains(self, allowed: frozenset[str] | None = None) -> list[tuple[Domain, int]]:
        counts = [(("内科", "心血管内科"), 3), (("外科",), 2)]
        return [(domain, n) for domain, n in counts if allowed is None or not allowed.isdisjoint(domain)]

    async def stored(self, answer_id: str, owner: str) -> StoredAnswer | None:
        return None if self.store is None else self.store.answer(answer_id, owner)

    async def forget(self, owner: str, answer_id: str | None = None) -> int:
        if self.store is None:
            return 0
        return self.store.delete_owner(owner) if answer_id is None else self.store.delete_answer(answer_id, owner)

    def gauges(self) -> dict[str, float]:
        return {"queue_length": 4, "running": 2, "generation": 17}

    async def search(self, asked: Asked, layer: Layer | None = None) -> Any:
        self.asked.append(asked)
        if self.script and isinstance(self.script[0], Exception):
            raise self.script[0]
        return SimpleNamespace(
            question=asked.question,
            domain=("内科",),
            inferred=None,
            method="Dmn",
            layer=layer or "hybrid",
            sources=(replace(SOURCE, excerpt="", cut=False),),
            evidence=Evidence(0.2, 0.4, False),
            timings_ms={"retrieval": 3.5},
        )

    async def answer(self, asked: Asked) -> AsyncGenerator[Event, None]:
        self.asked.append(asked)
        try:
            started = self.script[0]
            for place, event in enumerate(self.script):
                if place == self.hang_before:
                    self.hanging.set()
                    await asyncio.sleep(3600)
                if isinstance(event, Exception):
                    raise event
                if isinstance(event, Finished) and isinstance(started, Started):
                    for observe in self.observers:
                        observe(started, event)
                yield event
        finally:
            await asyncio.sleep(0)  # clean-up may await
            self.closed.set()


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """A real server of the app; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()


def keep(path: Path, owner: str = "") -> Store:
    """A store with one answer, `a1`."""
    store = Store.open(path)
    started, sources, *_, finished = script()
    assert isinstance(started, Started)
    assert isinstance(sources, Sources)
    assert isinstance(finished, Finished)
    store.add_question(Asked("头晕？", owner=owner), started, sources, finished)
    return store
