"""`POST /v1/chat/completions` and `GET /v1/models`: the service as an OpenAI model, one for each method."""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.encoders import jsonable_encoder

from dmnrag.service.asking import Parts, Wanted, asked_by
from dmnrag.service.events import Asked, Delta, Event, Finished, Sources, Started, Turn, Unsupported
from dmnrag.service.http_errors import ServiceError, error_docs
from dmnrag.service.schemas import AnswerBody, answer_body
from dmnrag.service.schemas_chat import (
    MODELS,
    NEUTRAL,
    ChatChoice,
    ChatCompletion,
    ChatMessage,
    ChatRequest,
    ChatUsage,
    Model,
    ModelList,
    chat_finish_reason,
)
from dmnrag.service.streaming import EventStream, first_of, sse, sse_docs, while_connected

MARK = "〔未见依据〕"
"""Behind a sentence that no source supports, for clients that show nothing but the text."""
DONE = b"data: [DONE]\n\n"

_STREAM_DOCS = {
    "description": "The answer; with `stream` as OpenAI's chunks, the last of them with `dmnrag`.",
    "content": sse_docs(None, "data: {...}\n\ndata: [DONE]\n\n"),
}


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["OpenAI-compatible"])
    created = int(time.time())

    @routes.post(
        "/v1/chat/completions",
        response_model=ChatCompletion,
        summary="Answer the last message of a conversation",
        responses={200: _STREAM_DOCS, **error_docs(400, 401, 404, 413, 429, 500, 502, 503, 504)},
    )
    async def complete(request: Request, body: ChatRequest) -> Any:
        """The last message is the question; a follow-up is made whole from the earlier ones before it is searched."""
        asked = asked_by(request, _wanted(body))
        if not body.stream:
            return await while_connected(request.receive, _whole(parts, asked, body))
        events = parts.engine.answer(asked)
        chunks = _Chunks(body)
        return EventStream(await first_of(request, events), events, chunks.encode, None)

    @routes.get("/v1/models", summary="List the methods as models", responses=error_docs(401, 429, 500))
    async def models() -> ModelList:
        """`dmnrag`, whose method depends on what is known of the domain, and the paper's six methods."""
        return ModelList(data=[Model(id=name, created=created) for name in MODELS])

    @routes.get("/v1/models/{model}", summary="Show one model", responses=error_docs(400, 401, 404, 429, 500))
    async def model(model: str) -> Model:
        """That there is a model of this name."""
        _method(model)
        return Model(id=model, created=created)

    return routes


def _method(model: str) -> str | None:
    if model not in MODELS:
        message = f"there is no model {model[:64]!r}: allowed are {', '.join(MODELS)}"
        raise ServiceError(404, "model_not_found", message, param="model")
    return MODELS[model]


def _wanted(body: ChatRequest) -> Wanted:
    """The question with the conversation before it."""
    method = _method(body.model)
    for name, neutral in NEUTRAL.items():
        value = getattr(body, name)
        if value is not None and value not in neutral:
            raise ServiceError(400, "unsupported_parameter", f"{name} is not supported: leave it out", param=name)
    said = [message for message in body.messages if message.role in {"user", "assistant"}]
    if not said or said[-1].role != "user":
        message = "the last message is not the user's: end with the question"
        raise ServiceError(400, "invalid_request", message, param="messages")
    history = tuple(
        Turn("user" if message.role == "user" else "assistant", message.text.replace(MARK, ""))
        for message in said[:-1]
        if message.text.strip()
    )
    most = body.max_completion_tokens or body.max_tokens
    return Wanted(said[-1].text, body.domain, method, body.k, most, body.temperature, history)


async def _whole(parts: Parts, asked: Asked, body: ChatRequest) -> ChatCompletion:
    collected = _Collected(body.mark_unsupported)
    async with aclosing(parts.engine.answer(asked)) as events:
        shown = "".join([collected.shown(event) async for event in events])
    answer = collected.answer()
    return ChatCompletion(
        id=answer.answer_id,
        created=int(time.time()),
        model=body.model,
        choices=[ChatChoice(message=ChatMessage(content=shown), finish_reason=_reason(answer))],
        usage=_usage(answer),
        dmnrag=answer,
    )


class _PlainText:
    """The text as it comes."""

    def shown(self, event: Event) -> str:
        return event.text if isinstance(event, Delta) else ""


class _MarkedText:
    """The text with a mark behind each unsupported sentence, one piece late.

    Such a sentence is named after the piece in which the next one begins. Its end may be in that piece, so a piece
    waits for what comes after it; so does white space at the end of one, which may be that between two sentences.
    """

    def __init__(self) -> None:
        self._text = ""
        self._n_shown = 0

    def shown(self, event: Event) -> str:
        match event:
            case Delta():
                before = self._to(len(self._text.rstrip()))
                self._text += event.text
                return before
            case Unsupported():
                return self._to(event.end) + MARK
            case Finished():
                return self._to(len(self._text))
            case _:
                return ""

    def _to(self, end: int) -> str:
        piece = self._text[self._n_shown : end]
        self._n_shown = max(self._n_shown, end)
        return piece


class _Collected:
    """What was seen of an answer, and what a client that knows only text is shown of it."""

    def __init__(self, mark_unsupported: bool) -> None:
        self._text = _MarkedText() if mark_unsupported else _PlainText()
        self._seen: dict[type, Any] = {}

    def shown(self, event: Event) -> str:
        """The text of an event, empty for most."""
        self._seen[type(event)] = event
        return self._text.shown(event)

    def answer(self) -> AnswerBody:
        return answer_body(self._seen[Started], self._seen[Sources], self._seen[Finished])


class _Chunks:
    """A stream in OpenAI's form."""

    def __init__(self, body: ChatRequest) -> None:
        self._model = body.model
        self._include_usage = body.stream_options is not None and body.stream_options.include_usage
        self._collected = _Collected(body.mark_unsupported)
        self._created = int(time.time())

    async def encode(self, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
        answer_id = ""
        async for event in events:
            text = self._collected.shown(event)
            if isinstance(event, Started):
                answer_id = event.answer_id
                yield self._chunk(answer_id, {"role": "assistant", "content": ""})
            if text:
                yield self._chunk(answer_id, {"content": text})
        answer = self._collected.answer()
        yield self._chunk(answer_id, {}, _reason(answer), dmnrag=jsonable_encoder(answer))
        if self._include_usage:
            yield self._event(answer_id, [], usage=_usage(answer).model_dump())
        yield DONE

    def _chunk(self, answer_id: str, delta: dict[str, str], reason: str | None = None, **further: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._event(answer_id, [choice], **further)

    def _event(self, answer_id: str, choices: list[dict[str, Any]], **further: Any) -> bytes:
        usage = {"usage": None} if self._include_usage else {}  # as OpenAI's: null until the last
        head = {"id": answer_id, "object": "chat.completion.chunk", "created": self._created, "model": self._model}
        return sse(head | {"choices": choices} | usage | further)


def _reason(answer: AnswerBody) -> Any:
    return chat_finish_reason(answer.outcome, answer.finish_reason)


def _usage(answer: AnswerBody) -> ChatUsage:
    prompt, completion = answer.usage.prompt_tokens, answer.usage.completion_tokens
    return ChatUsage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
