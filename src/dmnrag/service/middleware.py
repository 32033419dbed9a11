"""What happens to every request before and after its route: id, log, metrics, headers; key and rate; size of the body.

Plain ASGI, so that streams stay streams and a client that leaves is noticed. Outermost first: `RequestContext`,
`PageSession` where there is a page, CORS (Starlette's, only where origins are set), `Access`, `BodyLimit`.
"""

import re
import time
from functools import partial
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dmnrag.service.http_errors import ServiceError, error_response, is_fault
from dmnrag.service.keys import Key, KeyRing, bearer
from dmnrag.service.limits import RateLimiter
from dmnrag.service.logs import log_request
from dmnrag.service.metrics import Metrics
from dmnrag.service.page_session import SIGN_IN, is_page_event
from dmnrag.service.streaming import CLIENT_LEFT, ClientLeftError

API = "/v1/"
HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
"""Without a key or limit: what watches the service has none."""
PAGE_CSP = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'"
)
"""Nothing from another host and no script in a page; a page that needs more sends its own."""
API_CSP = "default-src 'none'; frame-ancestors 'none'"

_LENGTH_DIGITS = 15
"""More are no length of anything; Python refuses to read thousands of digits."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}


class RequestContext:
    """Request id, security headers, log line and metrics of each request; what is unforeseen becomes a 500."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "websocket":  # nothing here speaks it, and keys are checked for HTTP alone
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            await _Exchange(scope, send).run(self._app, receive, self._metrics)
        else:
            await self._app(scope, receive, send)


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._state = scope.setdefault("state", {})
        self._status = 0
        """0 until the response begins."""
        given = Headers(scope=scope).get("x-request-id", "")
        self._id = given if _REQUEST_ID.fullmatch(given) else uuid4().hex
        self._state["request_id"] = self._id

    async def run(self, app: ASGIApp, receive: Receive, metrics: Metrics) -> None:
        started = time.perf_counter()
        try:
            await app(self._scope, receive, self.send)
        except ClientLeftError:
            self._status = self._status or CLIENT_LEFT
        except Exception as error:  # the top of the HTTP handler
            self._state["error"] = error
            if self._status:
                raise  # too late for another status: the server cuts the connection, so that nobody takes it for whole
            await error_response(error, self._id)(self._scope, receive, self.send)
        finally:
            self._finish(metrics, time.perf_counter() - started)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self._id
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            path = self._scope["path"]
            headers.setdefault("content-security-policy", API_CSP if path.startswith(API) else PAGE_CSP)
        await self._send(message)

    def _finish(self, metrics: Metrics, seconds: float) -> None:
        method, path, error = self._scope["method"], self._scope["path"], self._state.get("error")
        fault = error if error is not None and is_fault(error) else None
        if fault is not None:
            metrics.count_fault()
        metrics.count_request(method, getattr(self._scope.get("route"), "path", "") or "other", self._status, seconds)
        if path in HEALTH_PATHS and fault is None:
            return  # asked every few seconds, by machines: in the metrics, and the log says what is not ready
        log_request(
            request_id=self._id,
            method=method,
            path=path,
            status=self._status,
            ms=seconds * 1000,
            owner=self._state.get("owner", ""),
            question=self._state.get("question"),
            error=fault,
        )


class Access:
    """Whose key it is, and whether it may ask again already."""

    def __init__(self, app: ASGIApp, *, keys: KeyRing, rate_per_minute: int | None) -> None:
        self._app = app
        self._keys = keys
        self._limiter = RateLimiter(rate_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or refuse it."""
        if scope["type"] != "http" or scope["path"] in HEALTH_PATHS:
            await self._app(scope, receive, send)
            return
        state = scope["state"]
        try:
            key = self._key(scope)
            state["key"], state["owner"] = key, key.name if key else ""
            state["charge"] = partial(self._charge, scope, key)
            if _is_charged(scope):
                self._charge(scope, key)
        except ServiceError as error:
            await error_response(error, state["request_id"])(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _key(self, scope: Scope) -> Key | None:
        if self._keys.open or scope["path"] == SIGN_IN:  # where a person gives his key; limited by his address
            return None
        presented = bearer(Headers(scope=scope).get("authorization"))
        key = self._keys.find(presented)
        if key is None:
            wrong = "is missing" if presented is None else "is unknown"
            raise ServiceError(401, "invalid_api_key", f"the API key {wrong}: send Authorization: Bearer KEY")
        return key

    def _charge(self, scope: Scope, key: Key | None) -> None:
        client = scope.get("client")
        who = f"key {key.name}" if key else f"address {client[0] if client else ''}"
        wait_s = self._limiter.wait_s(who, key.rate_per_minute if key else None)
        if wait_s > 0:
            message = f"too many requests: the next one is allowed in {wait_s:.0f} s"
            raise ServiceError(429, "rate_limited", message, retry_s=wait_s)


def _is_charged(scope: Scope) -> bool:
    """Not the many files of one page, nor its events: of these the page charges the questions."""
    path = scope["path"]
    return path.startswith(API) or (scope["method"] not in {"GET", "HEAD"} and not is_page_event(path))


class BodyLimit:
    """Reads the body before the route does, up to the limit; also one that does not say its length."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on a request whose body is here, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await self._read(scope, receive)
        if body is None:
            message = f"the request has more than {self._max_bytes:,} bytes: make it shorter"
            response = error_response(ServiceError(413, "too_large", message), scope["state"]["request_id"])
            response.headers["connection"] = "close"  # the rest of the body is not read
            await response(scope, receive, send)
            return
        replayed = False

        async def receive_again() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, receive_again, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """None: too long."""
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdecimal() and (len(length) > _LENGTH_DIGITS or int(length) > self._max_bytes):
            return None
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeftError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_bytes:
                return None
            more = message.get("more_body", False)
        return b"".join(parts)
