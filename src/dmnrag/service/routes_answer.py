"""`POST /v1/answer`: a question, its answer and what it rests on, whole or as it is written."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import Response

from dmnrag.service.asking import Parts, Wanted, asked_by
from dmnrag.service.events import Asked, Delta, Event, Finished, Sources, Started, Unsupported
from dmnrag.service.http_errors import error_docs
from dmnrag.service.schemas import (
    AnswerBody,
    AnswerRequest,
    answer_body,
    finished_fields,
    sources_fields,
    started_fields,
)
from dmnrag.service.streaming import EventStream, first_of, sse, sse_docs, while_connected

ERROR_NAME = "error"
_STREAM_DOCS = {
    "description": "The answer. With `stream`: server-sent events `started`, `sources`, `delta` {text}, `unsupported` "
    "{start, end}, `finished`; an `error` ends the stream. Their fields are those of the answer; joined deltas are "
    "exactly `answer`.",
    "content": sse_docs(
        ["started", "sources", "delta", "unsupported", "finished", ERROR_NAME],
        'event: delta\ndata: {"text": "先复查血压"}\n\n',
    ),
}


def router(parts: Parts) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["answers"])

    @routes.post(
        "/v1/answer",
        response_model=AnswerBody,
        summary="Answer a question",
        responses={200: _STREAM_DOCS, **error_docs(400, 401, 413, 429, 500, 502, 503, 504)},
    )
    async def answer(request: Request, body: AnswerRequest) -> Any:
        """Finds documents, gives them to the LLM, and returns its answer with numbered citations of them."""
        wanted = Wanted(body.question, body.domain, body.method, body.k, body.max_tokens, body.temperature)
        asked = asked_by(request, wanted)
        if body.stream:
            return await stream_of(parts, request, asked)
        return await while_connected(request.receive, whole(parts, asked))

    return routes


async def whole(parts: Parts, asked: Asked) -> AnswerBody:
    """The whole answer; cancelling it ends the generation."""
    seen: dict[type, Any] = {}
    async with aclosing(parts.engine.answer(asked)) as events:
        async for event in events:
            seen[type(event)] = event
    return answer_body(seen[Started], seen[Sources], seen[Finished])


async def stream_of(parts: Parts, request: Request, asked: Asked) -> Response:
    """The answer as events."""
    events = parts.engine.answer(asked)
    return EventStream(await first_of(request, events), events, _encode, ERROR_NAME)


async def _encode(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    async for event in events:
        name, fields = _named(event)
        yield sse(jsonable_encoder(fields), name)


def _named(event: Event) -> tuple[str, dict[str, Any]]:
    match event:
        case Started():
            return "started", started_fields(event)
        case Sources():
            return "sources", sources_fields(event)
        case Delta():
            return "delta", asdict(event)
        case Unsupported():
            return "unsupported", asdict(event)
        case Finished():
            return "finished", finished_fields(event)
