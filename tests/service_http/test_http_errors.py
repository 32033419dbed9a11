"""Every error that is raised on purpose has its status; no other gets one that hides it."""

import pytest
from http_fake_engine import FakeEngine, Open

import dmnrag.errors as e
from dmnrag.service.faults import AnswerTimeout, NotReady, QueueFull
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
