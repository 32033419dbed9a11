"""Signing in, and what stands before the page's library, without the library."""

import asyncio
import logging
from typing import Any

import pytest
from fastapi import FastAPI, Request
from page_fake_engine import FakeEngine
from page_visits import DESK, SURGEON
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from dmnrag.service import page_session
from dmnrag.service.app import create_app
from dmnrag.service.keys import KeyRing
from dmnrag.service.page_presence import Presence
from dmnrag.service.page_session import COOKIE
from dmnrag.service.page_shell import Shell, rewritten
from dmnrag.service.settings import ServeSettings

KEYS = KeyRing.load(None, {"DMNRAG_API_KEYS": f"desk:{DESK},surgeon:{SURGEON}"})
HTML = {"accept": "text/html,*/*"}


@pytest.fixture
def client() -> TestClient:
    """Of an app with the form and one page that tells who asks."""
    app = create_app(FakeEngine(), ServeSettings(), KEYS)  # type: ignore[arg-type]

    @app.get("/who")
    def who(request: Request) -> str:
        return str(request.state.owner)

    page_session.add_session(app, KEYS)
    return TestClient(app, follow_redirects=False)


def sign_in(client: TestClient, key: str, back: str = "/who") -> Any:
    return client.post("/sign-in", data={"key": key, "next": back})


def test_a_page_without_a_key_leads_to_the_form_and_back(client: TestClient) -> None:
    sent = client.get("/who?a=1&b=2", headers=HTML)
    assert (sent.status_code, sent.headers["location"]) == (303, "/sign-in?next=%2Fwho%3Fa%3D1%26b%3D2")
    form = client.get(sent.headers["location"])
    assert form.status_code == 200
    assert 'value="/who?a=1&amp;b=2"' in form.text
    assert client.get("/who").status_code == 401  # a program gets the error that it can read


def test_the_way_to_the_form_is_a_request_like_others(
    client: TestClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("dmnrag"), "propagate", True)
    caplog.set_level(logging.INFO, "dmnrag")
    sent = client.get("/zh/", headers=HTML | {"x-request-id": "r303"})
    assert (sent.status_code, sent.headers["location"]) == (303, "/sign-in?next=%2Fzh%2F")
    assert sent.headers["x-request-id"] == "r303"
    assert sent.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in sent.headers["content-security-policy"]
    [line] = [record.facts for record in caplog.records if hasattr(record, "facts")]
    assert (line["request_id"], line["path"], line["status"]) == ("r303", "/zh/", 303)
    counted = client.get("/metrics", headers={"authorization": f"Bearer {DESK}"}).text
    assert 'dmnrag_requests_total{method="GET",route="other",status="303"} 1.0' in counted


@pytest.mark.parametrize(("key", "owner"), [(DESK, "desk"), (SURGEON, "surgeon")])
def test_the_key_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(
    client: TestClient, key: str, owner: str
) -> None:
    done = sign_in(client, f" {key} ")
    assert (done.status_code, done.headers["location"]) == (303, "/who")
    cookie = done.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie
    assert client.get("/who", headers=HTML).json() == owner


def test_over_https_the_cookie_stays_there(client: TestClient) -> None:
    client.base_url = "https://testserver"
    assert "secure" in sign_in(client, DESK).headers["set-cookie"].lower()


def test_the_api_takes_no_cookie(client: TestClient) -> None:
    sign_in(client, DESK)
    assert client.get("/v1/domains").status_code == 401
    assert client.post("/v1/answer", json={"question": "x"}).status_code == 401


def test_a_wrong_key_sets_no_cookie(client: TestClient) -> None:
    refused = sign_in(client, "wrong-0123456789abcdef", '"><script>')
    assert refused.status_code == 401
    assert "set-cookie" not in refused.headers
    assert "<script>" not in refused.text
    client.cookies.set(COOKIE, "wrong-0123456789abcdef")
    assert client.get("/who", headers=HTML).status_code == 303


@pytest.mark.parametrize("back", ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\r\nx: y", "zh/"])
def test_nobody_is_led_to_another_host(client: TestClient, back: str) -> None:
    assert sign_in(client, DESK, back).headers["location"] == "/"


def test_signing_out_deletes_the_cookie(client: TestClient) -> None:
    sign_in(client, DESK)
    client.post("/sign-out")
    assert client.get("/who", headers=HTML).status_code == 303


class Library:
    """Stands for the library: notes the headers that reach it, and answers with a page."""

    def __init__(self) -> None:
        self.seen: list[dict[bytes, bytes]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(dict(scope["headers"]))
        html = b'<html\n lang="en"><head><meta property="og:image" content="https://x.example/a.png"/></head><script>1</script>'
        headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", str(len(html)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": html[:9], "more_body": True})
        await send({"type": "http.response.body", "body": html[9:]})


@pytest.fixture
def shelled() -> tuple[TestClient, Library]:
    library, app, presence = Library(), FastAPI(), Presence()
    app.mount("/zh", Shell(library, "zh", presence))
    return TestClient(app), library


def test_only_what_the_page_needs_reaches_the_library(shelled: tuple[TestClient, Library]) -> None:
    client, library = shelled
    names = "config login monitoring gradio_api/upload gradio_api/file=/etc/passwd gradio_api/proxy=http://x"
    for path in (*names.split(), "gradio_api/run/ask", "gradio_api/call/ask", "assets/..%2f..%2fx"):
        assert client.get(f"/zh/{path}").status_code == 404
        assert client.post(f"/zh/{path}").status_code == 404
    assert library.seen == []
    assert client.post("/zh/gradio_api/queue/join").status_code == 200


def test_pages_of_other_hosts_are_kept_out(shelled: tuple[TestClient, Library]) -> None:
    client, library = shelled
    other = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    assert client.post("/zh/gradio_api/queue/join", headers=other).status_code == 403
    client.get("/zh/gradio_api/queue/data", headers=other)
    assert b"origin" not in library.seen[-1]  # so the library allows nobody


def test_the_page_gets_its_language_and_scripts_with_a_fresh_nonce(shelled: tuple[TestClient, Library]) -> None:
    client, _ = shelled
    first, second = client.get("/zh/"), client.get("/zh/")
    assert '<html lang="zh-CN"' in first.text
    assert "https:" not in first.text
    policy = first.headers["content-security-policy"]
    nonce = policy.partition("'nonce-")[2].partition("'")[0]
    assert f'<script nonce="{nonce}">1</script>' in first.text
    assert "script-src 'self' 'nonce-" in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    assert nonce not in second.text
    assert int(first.headers["content-length"]) == len(first.content)
    assert "dmnrag_language=zh" in first.headers["set-cookie"]


def test_the_librarys_real_page_names_no_other_host() -> None:
    from importlib.util import find_spec
    from pathlib import Path

    found = find_spec("gradio")
    assert found is not None
    assert found.origin is not None
    html = (Path(found.origin).parent / "templates" / "frontend" / "index.html").read_text(encoding="utf-8")
    page = rewritten(html, "zh", "n")
    assert "http://" not in page
    assert "https://" not in page
    assert page.count("<script") == page.count('<script nonce="n"')


def test_shell_passes_what_is_no_request_on() -> None:
    seen: list[str] = []

    async def library(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    asyncio.run(Shell(library, "en", Presence())({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
    assert seen == ["lifespan"]


def test_the_end_of_a_heartbeat_is_told_to_who_watches_that_tab() -> None:
    presence, told = Presence(), []

    async def library(scope: Scope, receive: Receive, send: Send) -> None:
        assert told == []

    async def beat(tab: str) -> None:
        scope = {"type": "http", "method": "GET", "path": f"/gradio_api/heartbeat/{tab}", "headers": []}
        await Shell(library, "en", presence)(scope, None, None)  # type: ignore[arg-type]

    with presence.watch("mine", lambda: told.append("left")):
        asyncio.run(beat("other"))
        asyncio.run(beat("mine"))
        assert told == ["left"]
    presence.left("mine")
    assert told == ["left"]
