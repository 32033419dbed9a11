"""Keys, rates, sizes, headers, ids: what happens to every request."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from http_fake_engine import FakeEngine, Open, script

from dmnrag.service.keys import KeyRing

DESK, LAW = "desk-0123456789abcdef", "law-0123456789abcdef"
KEYS = KeyRing.load(None, {"DMNRAG_API_KEYS": f"desk:{DESK},law:{LAW}"})
QUESTION = {"question": "头晕？"}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def pieces(n: int) -> Iterator[bytes]:
    """A body without a length."""
    for _ in range(n):
        yield b"x" * 1_000


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/answer"), ("POST", "/v1/search"), ("GET", "/v1/domains"), ("GET", "/v1/answers/a1"),
     ("DELETE", "/v1/answers/a1"), ("DELETE", "/v1/me"), ("POST", "/v1/feedback"), ("POST", "/v1/chat/completions"),
     ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/openapi.json"), ("GET", "/docs"), ("GET", "/"),
     ("GET", "/nowhere")],
)  # fmt: skip
def test_nothing_is_told_without_a_key(connect: Open, method: str, path: str) -> None:
    client = connect(keys=KEYS)
    for headers in (
        {},
        bearer("desk-0123456789abcdeX"),
        bearer(""),
        {"authorization": "x"},
        {"authorization": f"Basic {DESK}"},
    ):
        response = client.request(method, path, headers=headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert response.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_key(connect: Open, path: str) -> None:
    assert connect(keys=KEYS).get(path).status_code == 200


def test_a_key_makes_its_name_the_owner(connect: Open) -> None:
    engine = FakeEngine()
    connect(engine, KEYS).post("/v1/answer", json=QUESTION, headers=bearer(LAW))
    assert engine.asked[0].owner == "law"


def test_a_limited_key_sees_its_domains_alone(connect: Open, tmp_path: Any) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[[key]]\nname = "desk"\nkey = "{DESK}"\ndomains = ["外科"]\n', encoding="utf-8")
    file.chmod(0o600)
    engine = FakeEngine()
    client = connect(engine, KeyRing.load(file, {}))
    client.post("/v1/answer", json=QUESTION, headers=bearer(DESK))
    assert engine.asked[0].allowed_domains == {"外科"}
    listed = client.get("/v1/domains", headers=bearer(DESK)).json()
    assert listed == {"domains": [{"domain": ["外科"], "documents": 2}]}


def test_each_key_has_its_own_rate(connect: Open) -> None:
    client = connect(keys=KEYS, rate_per_minute=2)
    statuses = [client.post("/v1/answer", json=QUESTION, headers=bearer(DESK)).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    refused = client.get("/v1/domains", headers=bearer(DESK))
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert client.get("/v1/domains", headers=bearer(LAW)).status_code == 200


def test_health_and_pages_use_up_no_rate(connect: Open) -> None:
    client = connect(rate_per_minute=1)
    for path in ("/healthz", "/readyz", "/docs", "/metrics", "/openapi.json"):
        assert [client.get(path).status_code for _ in range(3)] == [200, 200, 200]
    assert [client.get("/v1/domains").status_code for _ in range(2)] == [200, 429]


def test_signing_in_to_the_page_needs_no_key_and_has_the_limit_of_an_address(connect: Open) -> None:
    client = connect(keys=KEYS, rate_per_minute=2)
    assert [client.get("/sign-in").status_code for _ in range(4)] == [404] * 4  # nothing is mounted there here
    assert [client.post("/sign-in").status_code for _ in range(3)] == [404, 404, 429]


def test_too_long_a_body_is_413_with_and_without_a_length(connect: Open) -> None:
    client = connect(max_body_bytes=2_000)
    for path in ("/v1/answer", "/v1/chat/completions", "/docs"):
        for content in (b"x" * 2_001, pieces(3)):
            response = client.post(path, content=content)
            assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")
    assert client.post("/v1/answer", content=b"1", headers={"content-length": "9" * 5_000}).status_code == 413
    assert client.post("/v1/answer", content=pieces(2), headers={"content-type": "application/json"}).status_code == 400


def test_a_body_of_exactly_the_limit_in_pieces_arrives_whole(connect: Open) -> None:
    engine = FakeEngine()
    client = connect(engine, max_body_bytes=2_000)
    body = json.dumps({"question": "a" * 1_900}).encode().ljust(2_000)
    halves = iter([body[:7], b"", body[7:]])
    response = client.post("/v1/answer", content=halves, headers={"content-type": "application/json"})
    assert response.status_code == 200
    assert engine.asked[0].question == "a" * 1_900


@pytest.mark.parametrize("path", ["/v1/domains", "/docs", "/healthz", "/nowhere", "/v1/answer"])
def test_security_headers_are_everywhere(connect: Open, path: str) -> None:
    headers = connect().get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    policy = headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "http" not in policy
    assert "*" not in policy
    assert policy.startswith("default-src 'none'" if path.startswith("/v1/") else "default-src 'self'")
    directives = {words[0]: words[1:] for words in map(str.split, policy.split(";"))}
    scripts = directives.get("script-src", directives["default-src"])
    assert scripts in (["'none'"], ["'self'"])  # none inline, none made of text
    assert not directives.keys() & {"script-src-elem", "script-src-attr"}


def test_cors_is_off_unless_told(connect: Open) -> None:
    asks = {"origin": "https://desk.example", "access-control-request-method": "POST"}
    closed = connect().options("/v1/answer", headers=asks)
    assert closed.status_code == 405
    assert not [name for name in closed.headers if name.startswith("access-control")]


def test_cors_lets_named_origins_in_without_a_key_for_the_preflight(connect: Open) -> None:
    client = connect(keys=KEYS, cors_origins=("https://desk.example",))
    asks = {
        "origin": "https://desk.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type",
    }
    assert client.options("/v1/answer", headers=asks).headers["access-control-allow-origin"] == "https://desk.example"
    other = client.options("/v1/answer", headers=asks | {"origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers
    refused = client.get("/v1/domains", headers={"origin": "https://desk.example"})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://desk.example")


def test_a_well_formed_request_id_is_taken_over_and_others_are_not(connect: Open) -> None:
    client = connect()
    assert client.get("/healthz", headers={"x-request-id": "desk-1.b_C"}).headers["x-request-id"] == "desk-1.b_C"
    for given in ("", "a b", 'x"y', "a" * 65, "é"):
        made = client.get("/healthz", headers=[(b"x-request-id", given.encode("latin-1"))]).headers["x-request-id"]
        assert made != given
        assert len(made) == 32


def request_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.facts for record in caplog.records if hasattr(record, "facts")]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("dmnrag"), "propagate", True)
    caplog.set_level(logging.INFO, "dmnrag")
    return caplog


def test_each_request_is_logged_with_its_id_and_owner(connect: Open, logged: pytest.LogCaptureFixture) -> None:
    client = connect(keys=KEYS)
    client.post("/v1/answer", json=QUESTION, headers=bearer(LAW) | {"x-request-id": "r1"})
    client.get("/v1/domains?secret=1", headers={"x-request-id": "r2"})
    first, second = request_lines(logged)
    assert first["ms"] > 0
    assert {**first, "ms": 0} == {
        "request_id": "r1", "method": "POST", "path": "/v1/answer", "status": 200, "ms": 0, "owner": "law",
        "question": "头晕？",
    }  # fmt: skip
    assert (second["request_id"], second["path"], second["status"], second["owner"]) == ("r2", "/v1/domains", 401, "")
    assert not [record for record in logged.records if record.exc_info]


@pytest.mark.parametrize("fault", [ZeroDivisionError("planted in /srv"), KeyError("planted in /srv"), OSError("/srv")])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/answer", QUESTION),
        ("/v1/answer", QUESTION | {"stream": True}),
        ("/v1/search", QUESTION),
        ("/v1/chat/completions", {"model": "dmnrag", "messages": [{"role": "user", "content": "头晕？"}]}),
    ],
)
def test_an_internal_fault_is_500_and_its_traceback_is_logged(
    connect: Open, logged: pytest.LogCaptureFixture, path: str, body: dict[str, Any], fault: Exception
) -> None:
    response = connect(FakeEngine([fault])).post(path, json=body, headers={"x-request-id": "r500"})
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert response.json()["error"]["request_id"] == response.headers["x-request-id"] == "r500"
    assert "srv" not in response.text
    assert response.headers["x-content-type-options"] == "nosniff"
    [record] = [record for record in logged.records if hasattr(record, "facts")]
    assert record.levelname == "ERROR"
    assert record.exc_info
    assert record.exc_info[1] is fault


def test_a_fault_in_a_stream_is_logged_too(connect: Open, logged: pytest.LogCaptureFixture) -> None:
    fault = ZeroDivisionError("planted")
    connect(FakeEngine([script()[0], fault])).post("/v1/answer", json=QUESTION | {"stream": True})
    [record] = [record for record in logged.records if hasattr(record, "facts")]
    assert record.exc_info
    assert record.exc_info[1] is fault
