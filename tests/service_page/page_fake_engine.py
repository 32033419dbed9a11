"""An engine whose questions say what it does, and a server of the page around it."""

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import uvicorn
from fastapi import FastAPI

from dmnrag.errors import DomainUnknownError, EndpointError
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
from dmnrag.service.faults import AnswerTimeout, NotReady, QueueFull
from dmnrag.service.store import Store, StoredAnswer
from dmnrag.types import Domain, Layer, Usage

HEART = ("内科", "心血管内科")
SURGERY = ("外科",)
ATTACK = (
    "<script>window.attacked=1</script><img src=x onerror='window.attacked=1'>"
    "${window.attacked=1}{{attacked}}</template>"
)

SOURCES = (
    Source(
        number=1,
        doc_id="med-7",
        domain=HEART,
        score=7.25,
        question="高血压患者早上头晕是怎么回事？",
        answers=("先测血压，再由医生调整用药。清晨血压高峰时容易头晕，起床要慢。", "注意休息，少吃盐。"),
        metadata={"来源": "门诊问答", "医院等级": "三级甲等"},
        excerpt="问：高血压患者早上头晕是怎么回事？\n答：先测血压，再由医生调整用药。清晨血压高峰时容易头晕……",
        cut=True,
        valid_until="2020-12-31",
        outdated=True,
    ),
    Source(
        number=2,
        doc_id="med-12",
        domain=HEART,
        score=5.5,
        question="血压高可以喝酒吗？",
        answers=("不建议喝酒。",),
        metadata={},
        excerpt="问：血压高可以喝酒吗？\n答：不建议喝酒。",
    ),
    Source(
        number=3,
        doc_id=ATTACK,
        domain=(ATTACK,),
        score=0.5,
        question=ATTACK,
        answers=(ATTACK,),
        metadata={ATTACK: ATTACK},
        excerpt=ATTACK,
    ),
)
PIECES = ("先测血压[1]，", "起床要慢[1]。", "不要喝酒[2]。", "每天跑十公里。")
TEXT = "".join(PIECES)
LAST = Unsupported(TEXT.index("每天"), len(TEXT))
INFERRED = Inferred(HEART, 0.934, False, ((SURGERY[0], 0.04),))

FAULTS: Mapping[str, Callable[[], Exception]] = {
    "full": lambda: QueueFull("10.0.0.7: 64 wait", 7.2),
    "busy": lambda: NotReady("10.0.0.7 stops", 3),
    "timeout": lambda: AnswerTimeout("10.0.0.7 was too slow"),
    "down": lambda: EndpointError("http://10.0.0.7:8000 refuses the connection"),
    "unknown domain": lambda: DomainUnknownError("10.0.0.7 has none"),
    "fault": lambda: ZeroDivisionError("10.0.0.7 planted"),
}
"""By question."""


@dataclass
class FakeEngine:
    """What the page needs of an engine."""

    store: Store | None = None
    state: str = "ready"
    llm_state: str = "ready"
    documents: int = 5
    asked: list[Asked] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    """"wait" answers go on after their first piece when it is set."""
    closed: threading.Event = field(default_factory=threading.Event)
    """Set when an answer's iterator was closed before its end."""
    kept: dict[str, StoredAnswer] = field(default_factory=dict)
    observers: list[Any] = field(default_factory=list)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    @property
    def problem(self) -> str:
        return ""

    def domains(self, allowed: frozenset[str] | None = None) -> list[tuple[Domain, int]]:
        listed: list[tuple[Domain, int]] = [(HEART, 3), (SURGERY, 2)] if self.documents else []
        return [(domain, n) for domain, n in listed if allowed is None or not allowed.isdisjoint(domain)]

    def gauges(self) -> dict[str, float]:
        return {"documents": self.documents}

    async def search(self, asked: Asked, layer: Layer | None = None) -> Any:
        self.asked.append(asked)
        if asked.question in FAULTS:
            raise FAULTS[asked.question]()
        sources = () if asked.question == "nothing" else SOURCES[:2]
        return SimpleNamespace(
            question=asked.question,
            domain=HEART,
            inferred=INFERRED,
            method=asked.method or "Dmn",
            layer=layer or "hybrid",
            sources=tuple(replace(source, excerpt="", cut=False) for source in sources),
            evidence=Evidence(0.83, 0.4, True),
            timings_ms={},
        )

    async def stored(self, answer_id: str, owner: str) -> StoredAnswer | None:
        found = self.kept.get(answer_id)
        return found if found is not None and found.owner == owner else None

    async def answer(self, asked: Asked) -> AsyncGenerator[Event, None]:
        self.asked.append(asked)
        if asked.question in FAULTS:
            raise FAULTS[asked.question]()
        events = list(self._events(asked, f"a{len(self.asked)}"))
        try:
            for event in events:
                await asyncio.sleep(0)
                yield event
                if asked.question == "wait" and event == Delta(PIECES[0]):
                    while not self.gate.is_set():
                        await asyncio.sleep(0.01)
                if asked.question == "break" and isinstance(event, Delta):
                    raise EndpointError("the server left")
        except (GeneratorExit, asyncio.CancelledError):
            self.closed.set()
            raise

    def _events(self, asked: Asked, answer_id: str) -> Iterator[Event]:
        inferred = INFERRED if asked.domain == "auto" else None
        domain = HEART if inferred else asked.domain or ()
        assert isinstance(domain, tuple)
        if asked.question == "unclear":
            inferred, domain = Inferred((), 0.41, True, ((HEART[0], 0.41),)), ()
        started = Started(answer_id, asked.question, domain, inferred, asked.method or "Dmn-ques-front", "fake")
        sources, pieces, outcome, citations, unsupported = (
            Sources(SOURCES[:2], Evidence(0.83, 0.4, True)),
            PIECES,
            "answered",
            (1, 2),
            (LAST,),
        )
        match asked.question:
            case "refuse":
                weak = tuple(replace(source, excerpt="", cut=False) for source in SOURCES[:2])
                sources = Sources(weak, Evidence(0.123, 0.4, False))
                pieces, outcome, citations, unsupported = ("找到的资料不足以回答这个问题。",), "refused", (), ()
            case "notice":
                started = Started(answer_id, asked.question, (), None, "", "")
                sources, pieces, outcome, citations, unsupported = Sources(()), ("请立即拨打120。",), "notice", (), ()
            case "attack":
                sources = Sources(SOURCES)
                pieces, citations, unsupported = (f"{ATTACK} [3]", ATTACK), (3,), ()
            case "withheld":
                pieces, outcome, citations, unsupported = ("我的指令",), "withheld", (), ()
        yield started
        yield sources
        yield from map(Delta, pieces)
        yield from unsupported
        finished = Finished(answer_id, "".join(pieces), outcome, "stop", citations, unsupported, Usage(120, 9))  # type: ignore[arg-type]
        self.kept[answer_id] = StoredAnswer(
            "2026-01-01T00:00:00+00:00", asked.owner, asked.question, 1, started, sources, finished
        )
        if self.store is not None:
            self.store.add_question(asked, started, sources, finished)
        yield finished


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """A real server of the app; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()
