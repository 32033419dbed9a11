"""Every error that is raised on purpose has its status; no other gets one that hides it."""

import logging
from pathlib import Path

import pytest
from http_fake_engine import FakeEngine, Open
from http_real_engine import DOCUMENTS
from starlette.testclient import TestClient

import dmnrag.errors as e
from dmnrag.index import IndexSettings, build_index
from dmnrag.service.app import create_app
from dmnrag.service.engine import Engine
from dmnrag.service.events import AUTO
from dmnrag.service.faults import AnswerTimeout, NotReady, QueueFull
from dmnrag.service.keys import KeyRing
from dmnrag.service.page_desk import Desk, Visitor
from dmnrag.service.page_texts import EN
from dmnrag.service.settings import ServeSettings
from dmnrag.service.store import StoreError

SAID = [
    (e.QueryError("no question"), 400, "invalid_question"),
    (e.DomainUnknownError("no domain"), 400, "domain_unknown"),
    (e.PromptTooLongError("too long"), 400, "question_too_long"),
    (QueueFull("64 wait", 2.5), 429, "queue_full"),
    (NotReady("index is loading", 5.0), 503, "not_ready"),
    (AnswerTimeout("too slow"), 504, "timeout"),
]
UNSAID = [
    (e.EndpointError("http://10.0.0.7"), 502, "llm_failed"),
    (e.GenerationError("/srv/model"), 502, "llm_failed"),
    (e.IndexDamagedError("/srv/index"), 503, "index_unusable"),
    (e.ClusterUnreachableError("https://10.0.0.7"), 503, "index_unusable"),
    (e.ConfigError("/srv"), 500, "internal_error"),
    (e.DataError("/srv"), 500, "internal_error"),
    (e.PromptError("/srv"), 500, "internal_error"),
    (e.MissingDependencyError("/srv"), 500, "internal_error"),
    (StoreError("/srv"), 500, "internal_error"),
    (ValueError("/srv"), 500, "internal_error"),
]


@pytest.mark.parametrize(("error", "status", "code"), SAID + UNSAID, ids=lambda value: type(value).__name__)
def test_errors_have_their_status_and_code(connect: Open, error: Exception, status: int, code: str) -> None:
    response = connect(FakeEngine([error])).post("/v1/answer", json={"question": "头晕？"})
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize(("error", "status", "code"), SAID, ids=lambda value: type(value).__name__)
def test_what_the_asker_can_change_is_said_to_him(connect: Open, error: Exception, status: int, code: str) -> None:
    response = connect(FakeEngine([error])).post("/v1/search", json={"question": "头晕？"})
    assert response.json()["error"]["message"] == str(error)


@pytest.mark.parametrize(("error", "status", "code"), UNSAID, ids=lambda value: type(value).__name__)
def test_files_and_servers_are_not(connect: Open, error: Exception, status: int, code: str) -> None:
    response = connect(FakeEngine([error])).post("/v1/search", json={"question": "头晕？"})
    assert str(error) not in response.text


def test_a_damaged_index_is_told_to_clients_without_its_files_and_to_the_log_with_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("dmnrag"), "propagate", True)
    folder = tmp_path / "secret-place"
    build_index(folder, DOCUMENTS, IndexSettings())
    for manifest in folder.rglob("manifest.json"):
        manifest.write_text("{", encoding="utf-8")
    settings = ServeSettings()
    engine = Engine(folder, "fake", settings)
    with TestClient(create_app(engine, settings, KeyRing())) as client:
        while engine.state == "loading" or engine.llm_state == "loading":
            client.get("/healthz")
        said = [
            client.post("/v1/search", json={"question": "头晕？"}),
            client.post("/v1/answer", json={"question": "头晕？"}),
            client.get("/v1/domains"),
            client.get("/readyz"),
        ]
        visitor = Visitor("", None, lambda: None, "r1")
        assert client.portal is not None
        panel = client.portal.call(Desk(engine, settings, EN).search, "头晕？", AUTO, None, visitor)
    assert engine.state == "failed"
    assert [response.status_code for response in said] == [503] * 4
    assert said[0].json()["error"]["message"] == (
        "the index cannot be used; the operator's log says why: ask again in a moment"
    )
    assert panel.problem == EN.index_failed
    for words in (*(response.text for response in said), panel.problem, panel.html()):
        assert "secret-place" not in words
        assert "manifest" not in words
    assert "secret-place" in engine.problem
    assert engine.problem in caplog.text


def test_how_long_to_wait_is_said_in_whole_seconds(connect: Open) -> None:
    assert connect(FakeEngine([QueueFull("", 2.5)])).post("/v1/search", json={"question": "q"}).headers[
        "retry-after"
    ] == "3"  # fmt: skip
    assert "retry-after" not in connect(FakeEngine([AnswerTimeout("")])).post(
        "/v1/search", json={"question": "q"}
    ).headers  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nowhere", 404, "not_found"), ("GET", "/v1/answer", 405, "method_not_allowed")],
)
def test_unknown_paths_and_methods_have_the_same_shape(
    connect: Open, method: str, path: str, status: int, code: str
) -> None:
    response = connect().request(method, path)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert set(response.json()["error"]) == {"message", "type", "code", "param", "request_id"}
