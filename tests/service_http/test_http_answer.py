"""`/v1/answer`: the whole document, the stream, and what is asked of the engine."""

import json
from typing import Any

import pytest
from http_fake_engine import SOURCE, TEXT, FakeEngine, Open, script
from starlette.testclient import TestClient

from dmnrag.errors import ConfigError, EndpointError
from dmnrag.service.events import Asked

SOURCE_DOCUMENT = {
    "number": 1,
    "doc_id": "med-7",
    "domain": ["内科", "心血管内科"],
    "score": 7.25,
    "question": "高血压患者早上头晕",
    "answers": ["先测血压，再调药。", "注意休息。"],
    "metadata": {"来源": "门诊"},
    "excerpt": SOURCE.excerpt,
    "cut": True,
    "valid_until": "2020-12-31",
    "outdated": True,
}
INFERRED = {
    "domain": ["内科"],
    "probability": 0.93,
    "abstained": False,
    "alternatives": [["外科", 0.05], ["儿科", 0.01]],
}


def events(text: str) -> list[tuple[str, Any]]:
    """Name and document of each server-sent event."""
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, document = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(document.removeprefix("data: "))))
    return found


def test_the_answer_has_every_documented_field(connect: Open) -> None:
    response = connect().post("/v1/answer", json={"question": "头晕？"})
    assert response.status_code == 200
    assert response.json() == {
        "answer_id": "a1",
        "question": "q",
        "domain": ["内科"],
        "inferred": INFERRED,
        "method": "Dmn-ques-front",
        "llm": "fake",
        "outcome": "answered",
        "answer": TEXT,
        "citations": [1],
        "unsupported": [{"start": 9, "end": 13}],
        "sources": [SOURCE_DOCUMENT],
        "evidence": {"score": 0.83, "threshold": 0.4, "enough": True},
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 120, "completion_tokens": 9},
        "timings_ms": {"generation": 12.5},
    }


def test_the_stream_tells_the_same_in_pieces(connect: Open) -> None:
    client = connect()
    whole = client.post("/v1/answer", json={"question": "头晕？"}).json()
    response = client.post("/v1/answer", json={"question": "头晕？", "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    told = events(response.text)
    assert [name for name, _ in told] == [
        "started", "sources", "delta", "delta", "delta", "unsupported", "finished",
    ]  # fmt: skip
    assert "".join(document["text"] for name, document in told if name == "delta") == whole["answer"]
    assert told[5][1] == {"start": 9, "end": 13}
    assert told[0][1] | told[1][1] | told[-1][1] == whole


def test_the_engine_is_asked_as_the_client_says(connect: Open) -> None:
    engine = FakeEngine()
    body = {"question": "头晕？", "domain": ["内科"], "method": "dmn", "k": 5, "max_tokens": 9, "temperature": 0}
    connect(engine).post("/v1/answer", json=body, headers={"X-Request-ID": "r1"})
    assert engine.asked == [Asked("头晕？", ("内科",), "Dmn", 5, (), 9, 0.0, None, "", "r1")]


@pytest.mark.parametrize(
    ("given", "understood"),
    [({}, "auto"), ({"domain": None}, None), ({"domain": []}, None), ({"domain": "内科"}, "内科")],
)
def test_domains_as_they_can_be_given(connect: Open, given: dict[str, Any], understood: object) -> None:
    engine = FakeEngine()
    connect(engine).post("/v1/answer", json={"question": "头晕？", **given})
    assert engine.asked[0].domain == understood


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "question"),
        ({"question": ""}, "question"),
        ({"question": 7}, "question"),
        ({"question": "头晕？", "k": 0}, "k"),
        ({"question": "头晕？", "k": True}, "k"),
        ({"question": "头晕？", "temperature": 11}, "temperature"),
        ({"question": "头晕？", "method": "Dmm"}, "method"),
        ({"question": "头晕？", "metod": "Dmn"}, "metod"),
        ({"question": "头晕？", "stream": "yes"}, "stream"),
    ],
)
def test_unusable_requests_are_400_and_name_the_place(connect: Open, body: dict[str, Any], param: str) -> None:
    engine = FakeEngine()
    response = connect(engine).post("/v1/answer", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert engine.asked == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"question": "\xff"}', b'{"question": "\\ud800"}', b'{"\\ud800": 1}', b"[" * 20_000,
     b'{"question": "q", "temperature": NaN}', b'{"question": "q", "k": ' + b"9" * 6_000 + b"}"],
)  # fmt: skip
def test_broken_json_is_400(connect: Open, content: bytes) -> None:
    response = connect().post("/v1/answer", content=content, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_a_misspelt_method_gets_a_hint(connect: Open) -> None:
    response = connect().post("/v1/answer", json={"question": "头晕？", "method": "ques-fron"})
    assert "Did you mean ques-front?" in response.json()["error"]["message"]


def test_an_error_before_the_first_event_of_a_stream_has_its_own_status(connect: Open) -> None:
    client = connect(FakeEngine([EndpointError("http://10.0.0.7 is down")]))
    response = client.post("/v1/answer", json={"question": "头晕？", "stream": True})
    assert response.status_code == 502
    assert "10.0.0.7" not in response.text


@pytest.mark.parametrize(
    ("fault", "code"),
    [(EndpointError("http://10.0.0.7 is down"), "llm_failed"), (ConfigError("/etc/secret"), "internal_error"),
     (ZeroDivisionError("planted"), "internal_error")],
)  # fmt: skip
def test_an_error_in_a_stream_is_its_last_event(connect: Open, fault: Exception, code: str) -> None:
    client = connect(FakeEngine([*script()[:3], fault]))
    response = client.post("/v1/answer", json={"question": "头晕？", "stream": True})
    *_, last = events(response.text)
    assert (last[0], last[1]["error"]["code"]) == ("error", code)
    assert last[1]["error"]["request_id"] == response.headers["x-request-id"]
    assert str(fault) not in response.text


def test_search_gives_sources_and_asks_no_llm(connect: Open) -> None:
    engine = FakeEngine()
    response = connect(engine).post("/v1/search", json={"question": "头晕？", "k": 2, "layer": "sparse"})
    assert response.json() == {
        "question": "头晕？",
        "domain": ["内科"],
        "inferred": None,
        "method": "Dmn",
        "layer": "sparse",
        "sources": [SOURCE_DOCUMENT | {"excerpt": "", "cut": False}],
        "evidence": {"score": 0.2, "threshold": 0.4, "enough": False},
        "timings_ms": {"retrieval": 3.5},
    }


def test_domains_are_listed(connect: Open) -> None:
    client: TestClient = connect()
    assert client.get("/v1/domains").json() == {
        "domains": [{"domain": ["内科", "心血管内科"], "documents": 3}, {"domain": ["外科"], "documents": 2}]
    }
