"""A client that leaves ends what was being done for it: a real server, a closed socket."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from http_fake_engine import FakeEngine, script, serving

from dmnrag.service import streaming
from dmnrag.service.app import create_app
from dmnrag.service.events import Asked, Event
from dmnrag.service.keys import KeyRing
from dmnrag.service.settings import ServeSettings
from dmnrag.service.streaming import ClientLeftError, EventStream

QUESTION = {"question": "头晕？"}
CHAT = {"model": "dmnrag", "messages": [{"role": "user", "content": "头晕？"}]}
GENEROUS_S = 60
"""Nothing is timed: only a failure waits that long."""


def request(path: str, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "host: x", "content-type: application/json", f"content-length: {len(content)}"]
    return "\r\n".join([*lines, "", ""]).encode() + content


@pytest.mark.parametrize("hang_before", [0, 3])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), [("/v1/answer", QUESTION), ("/v1/chat/completions", CHAT)])
def test_the_engines_iterator_ends(path: str, body: dict[str, Any], stream: bool, hang_before: int) -> None:
    engine = FakeEngine(hang_before=hang_before)
    with serving(create_app(engine, ServeSettings(), KeyRing())) as url:  # type: ignore[arg-type]
        address = httpx.URL(url)
        with socket.create_connection((address.host, address.port or 80)) as connection:
            connection.sendall(request(path, body | {"stream": stream}))
            assert engine.hanging.wait(GENEROUS_S)
            assert not engine.closed.is_set()
        assert engine.closed.wait(GENEROUS_S)
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_the_engines_iterator_ends_with_the_response_where_the_client_does_not_read() -> None:
    engine = FakeEngine()

    async def answer() -> None:
        events = engine.answer(Asked("头晕？"))
        full = asyncio.Event()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                full.set()
                await asyncio.sleep(3600)

        async def receive() -> Any:
            await full.wait()
            return {"type": "http.disconnect"}

        async def encode(given: AsyncIterator[Event]) -> AsyncIterator[bytes]:
            async for _ in given:
                yield b"piece"

        stream = EventStream(await anext(events), events, encode, None)
        with pytest.raises(ClientLeftError):
            await stream({"type": "http", "state": {"request_id": "r"}}, receive, send)
        assert engine.closed.is_set()

    asyncio.run(answer())


@pytest.mark.parametrize("script", [script(), [script()[0], ValueError("planted")]], ids=["answer", "error"])
def test_a_client_that_does_not_read_is_gone_after_a_while(
    script: list[Event | Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "SEND_TIMEOUT_S", 0.01)
    engine = FakeEngine(script)
    sent = []

    async def answer() -> None:
        events = engine.answer(Asked("头晕？"))

        async def send(message: Any) -> None:
            sent.append(message["type"])
            if message["type"] == "http.response.body":
                await asyncio.sleep(3600)

        async def receive() -> Any:
            await asyncio.sleep(3600)  # the connection stays open

        async def encode(given: AsyncIterator[Event]) -> AsyncIterator[bytes]:
            await anext(given)
            async for _ in given:
                yield b"piece"

        stream = EventStream(await anext(events), events, encode, None)
        with pytest.raises(ClientLeftError):
            await stream({"type": "http", "state": {"request_id": "r"}}, receive, send)
        assert engine.closed.is_set()

    asyncio.run(answer())
    assert sent == ["http.response.start", "http.response.body"]


def test_a_client_that_leaves_in_the_middle_of_its_body_asks_nothing() -> None:
    engine = FakeEngine()
    with serving(create_app(engine, ServeSettings(), KeyRing())) as url:  # type: ignore[arg-type]
        address = httpx.URL(url)
        with socket.create_connection((address.host, address.port or 80)) as connection:
            connection.sendall(request("/v1/answer", QUESTION)[:-3])
        deadline = time.monotonic() + GENEROUS_S
        while '499"} 1.0' not in httpx.get(f"{url}/metrics").text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert engine.asked == []


def test_pieces_arrive_while_the_answer_is_written() -> None:
    engine = FakeEngine(hang_before=4)
    with (
        serving(create_app(engine, ServeSettings(), KeyRing())) as url,  # type: ignore[arg-type]
        httpx.stream("POST", f"{url}/v1/answer", json=QUESTION | {"stream": True}, timeout=GENEROUS_S) as response,
    ):
        seen = ""
        for piece in response.iter_text():
            seen += piece
            if '{"text": "先复查"}' in seen:
                break
        assert not engine.closed.is_set()


def test_a_running_answer_is_finished_when_the_server_stops() -> None:
    class Slow(FakeEngine):
        async def answer(self, asked: Any) -> Any:
            self.hanging.set()
            while not stopping.is_set():
                await asyncio.sleep(0.01)
            for event in script():
                yield event

    stopping = threading.Event()
    engine = Slow()
    found: list[httpx.Response] = []
    with serving(create_app(engine, ServeSettings(), KeyRing())) as url:  # type: ignore[arg-type]
        asker = threading.Thread(
            target=lambda: found.append(httpx.post(f"{url}/v1/answer", json=QUESTION, timeout=GENEROUS_S))
        )
        asker.start()
        assert engine.hanging.wait(GENEROUS_S)
        threading.Timer(0.5, stopping.set).start()
    asker.join(GENEROUS_S)
    assert found[0].json()["answer_id"] == "a1"
    assert not engine.running
