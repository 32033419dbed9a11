"""Signing in to the page: the API key in a cookie that scripts cannot read and other sites cannot send.

Browsers send no `Authorization` header by themselves. `PageSession` makes the cookie one, so that keys are checked and
limited in one place for page and API; the API itself takes no cookie. The key is its own session: it survives a
restart, and taking the key away ends it.
"""

import re
from importlib.resources import files
from urllib.parse import quote, unquote, urlencode

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from dmnrag.service.keys import KeyRing
from dmnrag.service.page_texts import TEXTS, Language, preferred

COOKIE = "dmnrag_key"
LANGUAGE_COOKIE = "dmnrag_language"
SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
_API = "/v1/"
_EVENT = re.compile(rf"/(?:{'|'.join(TEXTS)})/gradio_api/")
_KEPT_S = 30 * 24 * 3600


class PageSession:
    """Outside of the check of keys: the cookie becomes the header, and who has none is sent to the form."""

    def __init__(self, app: ASGIApp, *, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        path = scope.get("path", "")
        if scope["type"] != "http" or self._keys.open or path.startswith(_API) or path == SIGN_IN:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if "authorization" not in headers:
            key = unquote(cookie_parser(headers.get("cookie", "")).get(COOKIE, ""))
            if self._keys.find(key) is not None:
                MutableHeaders(scope=scope)["authorization"] = f"Bearer {key}"
            elif scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
                query = scope["query_string"].decode("latin-1")
                back = urlencode({"next": path + (f"?{query}" if query else "")})
                await RedirectResponse(f"{scope.get('root_path', '')}{SIGN_IN}?{back}", 303)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def is_page_event(path: str) -> bool:
    """Whether a request is something that happened on the page, such as a click."""
    return _EVENT.match(path) is not None


def add_session(app: FastAPI, keys: KeyRing) -> None:
    """Put form and `PageSession` into an app of `create_app` that is not yet started.

    It goes inside the outermost middleware, `RequestContext`, so that the way to the form is a request like others:
    with an id, headers, a line in the log.
    """
    app.include_router(_router(keys))
    app.user_middleware.insert(1, Middleware(PageSession, keys=keys))


def _router(keys: KeyRing) -> APIRouter:
    """The form, and the end of the session."""
    routes = APIRouter(include_in_schema=False)

    @routes.get(SIGN_IN)
    async def form(request: Request) -> HTMLResponse:
        return _form(request, request.query_params.get("next", ""), wrong=False)

    @routes.post(SIGN_IN)
    async def sign_in(request: Request) -> Response:
        async with request.form() as fields:
            key, back = str(fields.get("key", "")).strip(), str(fields.get("next", ""))
        if keys.find(key) is None:
            return _form(request, back, wrong=True)
        response = RedirectResponse(request.scope.get("root_path", "") + _own_path(back), 303)
        response.set_cookie(
            COOKIE, quote(key, safe=""), _KEPT_S, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return response

    @routes.post(SIGN_OUT)
    async def sign_out(request: Request) -> Response:
        response = RedirectResponse(request.scope.get("root_path", "") + SIGN_IN, 303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    return routes


def language_of(request: Request) -> Language:
    """The one that was chosen last, else the browser's."""
    match request.cookies.get(LANGUAGE_COOKIE):
        case "zh":
            return "zh"
        case "en":
            return "en"
        case _:
            return preferred(request.headers.get("accept-language", ""))


def _own_path(back: str) -> str:
    """Where to go on: a path of this service, never another host's (`//host`, `/\\host`)."""
    own = back.startswith("/") and back[1:2] not in {"/", "\\"} and back.isprintable()
    return back if own else "/"


def _form(request: Request, back: str, *, wrong: bool) -> HTMLResponse:
    from jinja2 import Environment

    template = (files("dmnrag.service") / "page_sign_in.html").read_text(encoding="utf-8")
    language = language_of(request)
    html = Environment(autoescape=True).from_string(template).render(t=TEXTS[language], back=back, wrong=wrong)
    return HTMLResponse(html, 401 if wrong else 200, {"cache-control": "no-store"})
