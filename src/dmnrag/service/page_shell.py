"""What stands between the network and the page's library (gradio).

The library serves much that this page has no use for (uploads, files, a proxy, its own API and log-in) and lets pages
of other hosts read it. Here only what the page loads passes, for this host alone, and its HTML gets what a strict
content security policy needs: scripts without this response's nonce do not run, so a script that ever came out of a
document would not either.
"""

import re
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dmnrag.service.page_presence import Presence
from dmnrag.service.page_session import LANGUAGE_COOKIE
from dmnrag.service.page_texts import TEXTS, Language

_PASSED = re.compile(
    r"/(?:(?:assets|static)/.+|theme\.css|gradio_api/(?:queue/(?:join|data)|cancel|reset|startup-events"
    r"|heartbeat/(?P<tab>\w+)))?"
)
"""A tab holds its heartbeat as long as it is open."""
_CSP = (
    "default-src 'self'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'none'"
)
"""`unsafe-eval`: the library compiles its HTML templates in the browser; they are its own, texts are values in them."""
_YEAR_S = 365 * 24 * 3600
_HEAD = (
    '<link rel="icon" href="data:,"><link rel="stylesheet" href="../page/page_style.css">'
    '<script nonce="{nonce}" src="../page/page_script.js" defer></script></head>'
)


class Shell:
    """Around the library's app of one language."""

    def __init__(self, app: ASGIApp, language: Language, presence: Presence) -> None:
        self._app = app
        self._language: Language = language
        self._presence = presence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        headers = MutableHeaders(scope=scope)
        if headers.get("sec-fetch-site") == "cross-site" and scope["method"] != "GET":
            await PlainTextResponse("Not for pages of other hosts.", 403)(scope, receive, send)
            return
        passed = _PASSED.fullmatch(path)
        if passed is None or ".." in path:
            await PlainTextResponse("Not found.", 404)(scope, receive, send)
            return
        del headers["origin"]  # else the library answers that any page may read this
        if path == "/" and scope["method"] == "GET":
            send = _Page(send, self._language).send
        try:
            await self._app(scope, receive, send)
        finally:
            if tab := passed["tab"]:
                self._presence.left(tab)


class _Page:
    """Rewrites the page's HTML."""

    def __init__(self, send: Send, language: Language) -> None:
        self._send = send
        self._language: Language = language
        self._start: Message = {}
        self._body = bytearray()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body", False):
            return
        nonce = secrets.token_urlsafe(16)
        headers = MutableHeaders(raw=list(self._start["headers"]))
        body = bytes(self._body)
        if Headers(raw=self._start["headers"]).get("content-type", "").startswith("text/html"):
            body = rewritten(body.decode("utf-8"), self._language, nonce).encode("utf-8")
            headers["content-length"] = str(len(body))
            headers["content-security-policy"] = _CSP.format(nonce=nonce)
            headers["cache-control"] = "no-store"
            cookie = f"{LANGUAGE_COOKIE}={self._language}; Max-Age={_YEAR_S}; Path=/; SameSite=Lax"
            headers.append("set-cookie", cookie)
        await self._send({**self._start, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def rewritten(html: str, language: Language, nonce: str) -> str:
    """The library's page in this language, its scripts with the nonce, without addresses of other hosts for robots."""
    lang = TEXTS[language].html_lang
    html = re.sub(r'<html\s+lang="[^"]*"', f'<html lang="{lang}" data-language="{lang}"', html, count=1)
    html = re.sub(r'<meta\s+(?:property="og:|name="twitter:)[^>]*>|<link rel="manifest"[^>]*>', "", html)
    html = re.sub(r"<script\b", f'<script nonce="{nonce}"', html)
    return html.replace("</head>", _HEAD.format(nonce=nonce), 1)
