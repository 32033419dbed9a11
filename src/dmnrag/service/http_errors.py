"""The one place that says what an error is to a client: its status, its code and its words.

What is not listed here is a fault of the service: a 500 with the request's id, whose traceback is in the log alone.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from dmnrag.errors import (
    ClusterError,
    DmnragError,
    DomainUnknownError,
    GenerationError,
    IndexFolderError,
    PromptTooLongError,
    QueryError,
)
from dmnrag.service.faults import AnswerTimeout, NotReady, QuestionTooLong, QueueFull
from dmnrag.service.schemas import ErrorBody, ErrorDetail
from dmnrag.service.store import AnswerUnknownError


@dataclass(frozen=True, slots=True)
class Kind:
    """What one sort of error is to a client."""

    status: int
    code: str
    words: str = ""
    """Said in place of the error's own message, which names files and servers. Empty: the message can be shown."""
    param: str | None = None
    """The part of the request that is wrong."""


class ServiceError(DmnragError):
    """A request that the HTTP layer itself refuses."""

    def __init__(self, status: int, code: str, message: str, *, param: str | None = None, retry_s: float = 0) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.retry_after_s = status, code, param, retry_s


KINDS: tuple[tuple[type[DmnragError], Kind], ...] = (
    (QueueFull, Kind(429, "queue_full")),
    (NotReady, Kind(503, "not_ready")),
    (AnswerTimeout, Kind(504, "timeout")),
    (AnswerUnknownError, Kind(404, "answer_unknown")),
    (DomainUnknownError, Kind(400, "domain_unknown", param="domain")),
    (QuestionTooLong, Kind(400, "question_too_long", param="question")),
    (QueryError, Kind(400, "invalid_question")),
    (PromptTooLongError, Kind(400, "question_too_long", param="question")),
    (GenerationError, Kind(502, "llm_failed", "the LLM gave no usable answer; try again later")),
    (IndexFolderError, Kind(503, "index_unusable", "the index cannot be read; the operator's log says why")),
    (ClusterError, Kind(503, "index_unusable", "the index's servers do not answer; the operator's log says why")),
)
"""First match counts."""

_INTERNAL = Kind(
    500, "internal_error", "the service failed; the operator finds the reason in the log by the request id"
)
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
_STATUS_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


_NO_DOCUMENT = {
    "json_invalid": "check its brackets and quotes",
    "model_attributes_type": "send one object, with the header Content-Type: application/json",
    "missing_body": "send one object, with the header Content-Type: application/json",
}
_FORMS = frozenset({"str", "int", "float", "bool", "list", "dict"})


class JsonError(Response):
    """An error as JSON. Lone surrogates of a request become question marks: no JSON document may hold them."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """JSON in UTF-8."""
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def kind_of(error: Exception) -> Kind:
    """What an error is; any that is not listed is the service's own fault."""
    return next((kind for error_type, kind in KINDS if isinstance(error, error_type)), _INTERNAL)


def is_fault(error: Exception) -> bool:
    """Whether the operator has to look: the log gets the traceback."""
    return not isinstance(error, ServiceError | HTTPException | RequestValidationError) and (
        kind_of(error).status == _INTERNAL.status or bool(kind_of(error).words)
    )


def error_fields(error: Exception, request_id: str) -> dict[str, Any]:
    """The document of an error, as a response or as the last event of a stream."""
    if isinstance(error, ServiceError):
        status, code, message, param = error.status, error.code, str(error), error.param
    else:
        kind = kind_of(error)
        status, code, message, param = kind.status, kind.code, kind.words or str(error), kind.param
    return _document(status, code, message, param, request_id)


def error_response(error: Exception, request_id: str) -> Response:
    """The response to an error."""
    status = error.status if isinstance(error, ServiceError) else kind_of(error).status
    headers = {}
    wait_s = getattr(error, "retry_after_s", 0)
    if wait_s > 0:
        headers["retry-after"] = str(ceil(wait_s))
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="dmnrag"'
    return JsonError(error_fields(error, request_id), status, headers)


def error_docs(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Documentation of these statuses, for a route."""
    words = {
        400: "The request cannot be used as it is.",
        401: "The API key is missing or unknown.",
        403: "This key, or a service without keys, may not do that.",
        404: "There is no such thing, or it belongs to another key.",
        409: "The service was started without `--store`: it keeps nothing.",
        413: "The request is too long.",
        429: "Too many requests, or too many answers are waiting; `Retry-After` says how many seconds to wait.",
        500: "A fault of the service.",
        502: "The LLM gave no usable answer.",
        503: "The index or the LLM is not ready.",
        504: "It took too long.",
    }
    return {status: {"model": ErrorBody, "description": words[status]} for status in statuses}


def handle_errors(app: FastAPI) -> None:
    """Let the errors of routes become responses; what is no listed error goes up to `RequestContext`."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    known: list[type[Exception]] = [ServiceError, *(error_type for error_type, _ in KINDS)]
    for error_type in known:
        app.add_exception_handler(error_type, _known)


def _known(request: Request, error: Exception) -> Response:
    request.state.error = error
    return error_response(error, request.state.request_id)


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] in _NO_DOCUMENT:
        message = f"the body is no JSON document: {_NO_DOCUMENT[first['type']]}"
        return JsonError(_document(400, "invalid_request", message, None, request.state.request_id), 400)
    # Which of several forms was tried stands in brackets or is the name of a type: no part of the request.
    parts = [str(part) for part in first["loc"][1:] if str(part).isidentifier() or str(part).isdecimal()]
    where = ".".join(part for part in parts if part not in _FORMS) or None
    message = f"{where or 'the request'}: {first['msg'].removeprefix('Value error, ')}"
    return JsonError(_document(400, "invalid_request", message, where, request.state.request_id), 400)


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _STATUS_CODES.get(error.status_code, "invalid_request")
    words = str(error.detail)
    if error.status_code == 400:  # the framework's own, where it cannot read the body
        words = "the body cannot be read: send JSON in UTF-8, not nested deeply"
    document = _document(error.status_code, code, words, None, request.state.request_id)
    headers: Mapping[str, str] | None = error.headers
    return JsonError(document, error.status_code, dict(headers or {}))


def _document(status: int, code: str, message: str, param: str | None, request_id: str) -> dict[str, Any]:
    kind = "rate_limit_error" if status == 429 else "server_error" if status >= 500 else None
    detail = ErrorDetail(
        message=message,
        type=kind or _TYPES.get(status, "invalid_request_error"),
        code=code,
        param=param,
        request_id=request_id,
    )
    return ErrorBody(error=detail).model_dump()
