"""Work for a client that may leave: answers as server-sent events, and the end of what nobody waits for any more."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from dmnrag.service.events import Event
from dmnrag.service.http_errors import error_fields

T = TypeVar("T")

CLIENT_LEFT = 499
"""Status in log and metrics of a request whose client left before its answer; nginx's number for it."""


SEND_TIMEOUT_S = 30.0
"""A piece of an answer that is not taken for so long: its client is gone, though its connection is open, and must
not hold a place in the queue. Buffers take most answers whole, so that who reads slowly is hardly waited for."""


class ClientLeftError(Exception):
    """Nobody waits for the response."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client leaves; its clean-up may await.

    `receive` has nothing to say any more but that: the body is read.

    Raises:
        ClientLeftError: the client left first.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientLeftError
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait({working, leaving})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def first_of(request: Request, events: AsyncGenerator[Event, None]) -> Event:
    """The first event, waited for before the response begins: what fails before it still gets a status of its own.

    The caller closes `events` in the end; here they are closed when there is no first one.

    Raises:
        ClientLeftError: the client left first.
    """
    try:
        return await while_connected(request.receive, _next(events))
    except BaseException:
        await events.aclose()
        raise


async def _next(events: AsyncGenerator[Event, None]) -> Event:
    return await anext(events)


async def joined(first: Event, events: AsyncGenerator[Event, None]) -> AsyncIterator[Event]:
    """The first event and those behind it."""
    yield first
    async for event in events:
        yield event


def sse(document: Any, name: str | None = None) -> bytes:
    """One server-sent event; JSON has no line ends of its own."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(document, ensure_ascii=False, allow_nan=False)}\n\n".encode("utf-8", "replace")


def sse_docs(names: list[str] | None, example: str) -> dict[str, Any]:
    """How a stream is described, event by event; without names they have none."""
    data = {"type": "string", "description": "JSON."}
    event = {"event": {"type": "string", "enum": names}} if names else {}
    schema = {"type": "object", "properties": {**event, "data": data}, "required": [*event, "data"]}
    return {"text/event-stream": {"schema": schema, "example": example}}


class EventStream(Response):
    """A response that is written while the answer is. When the client leaves, the events are closed."""

    media_type = "text/event-stream"

    def __init__(
        self,
        first: Event,
        events: AsyncGenerator[Event, None],
        encode: Callable[[AsyncIterator[Event]], AsyncIterator[bytes]],
        error_name: str | None,
    ) -> None:
        """A response of events.

        Args:
            first: the first event, taken out of `events` already.
            events: the others; closed here.
            encode: from events to what is sent.
            error_name: name of the event that tells of an error and is the last one.
        """
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]  # of the empty body that it has not
        self._first, self._events, self._encode, self._error_name = first, events, encode, error_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        async with aclosing(self._events):
            await while_connected(receive, self._write(scope, send))

    async def _write(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        state = scope["state"]
        try:
            async for piece in self._encode(joined(self._first, self._events)):
                await _send_piece(send, piece)
        except ClientLeftError:
            raise
        except Exception as error:  # the top of the handler: the status is sent, so this is the only way left to say it
            state["error"] = error
            await _send_piece(send, sse(error_fields(error, state["request_id"]), self._error_name))
        await _send_piece(send, b"", more=False)


async def _send_piece(send: Send, piece: bytes, *, more: bool = True) -> None:
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await send({"type": "http.response.body", "body": piece, "more_body": more})
    except TimeoutError:
        raise ClientLeftError from None
