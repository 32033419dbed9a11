"""Health, metrics, documentation, and what is kept."""

import re
from pathlib import Path
from typing import Any

import pytest
from http_fake_engine import FakeEngine, Open, keep
from http_fake_engine import script as make_script
from prometheus_client.parser import text_string_to_metric_families

from dmnrag.errors import EndpointError, QueryError
from dmnrag.service.faults import QueueFull
from dmnrag.service.keys import KeyRing

KEY, OTHER = "desk-0123456789abcdef", "law-0123456789abcdef"
KEYS = KeyRing.load(None, {"DMNRAG_API_KEYS": f"desk:{KEY},law:{OTHER}"})
MINE, THEIRS = {"authorization": f"Bearer {KEY}"}, {"authorization": f"Bearer {OTHER}"}


@pytest.mark.parametrize(
    ("state", "llm_state", "ready"),
    [("ready", "ready", True), ("ready", "none", True), ("loading", "none", False), ("ready", "loading", False),
     ("ready", "down", False), ("failed", "ready", False)],
)  # fmt: skip
def test_readiness_needs_the_index_and_the_llm_if_there_is_one(
    connect: Open, state: str, llm_state: str, ready: bool
) -> None:
    client = connect(FakeEngine(state=state, llm_state=llm_state))
    response = client.get("/readyz")
    assert response.status_code == (200 if ready else 503)
    problem = response.json().pop("problem")
    assert response.json() == {"ready": ready, "index": state, "llm": llm_state, "problem": problem}
    assert bool(problem) is not ready
    assert client.get("/healthz").json() == {"status": "alive"}


def test_the_engine_starts_and_stops_with_the_app(connect: Open) -> None:
    engine = FakeEngine()
    client = connect(engine)
    assert engine.running
    client.__exit__()
    assert not engine.running


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_count_requests_answers_and_tokens_of_this_app_alone(connect: Open) -> None:
    client, other = connect(), connect()
    client.post("/v1/answer", json={"question": "头晕？"})
    client.post("/v1/answer", json={"question": "头晕？", "stream": True})
    client.post("/v1/answer", json={})
    client.get("/v1/answers/some-id")
    client.get("/nowhere/1")
    client.request("BREW", "/nowhere/2")
    found = samples(client.get("/metrics").text)
    requests = {key[1]: value for key, value in found.items() if key[0] == "dmnrag_requests_total"}
    named = {tuple(dict(labels)[name] for name in ("method", "route", "status")): n for labels, n in requests.items()}
    assert named == {
        ("POST", "/v1/answer", "200"): 2,
        ("POST", "/v1/answer", "400"): 1,
        ("GET", "/v1/answers/{answer_id}", "404"): 1,
        ("GET", "other", "404"): 1,
        ("other", "other", "404"): 1,
    }
    assert found["dmnrag_answers_total", frozenset({("outcome", "answered"), ("method", "Dmn-ques-front")})] == 2
    assert found["dmnrag_tokens_total", frozenset({("kind", "prompt")})] == 240
    assert found["dmnrag_tokens_total", frozenset({("kind", "completion")})] == 18
    assert found["dmnrag_request_seconds_count", frozenset({("route", "/v1/answer")})] == 3
    assert found["dmnrag_queue_length", frozenset()] == 4
    assert found["dmnrag_generation", frozenset()] == 17
    assert not [key for key in samples(other.get("/metrics").text) if key[0] == "dmnrag_requests_total"]


@pytest.mark.parametrize(
    ("script", "n"),
    [
        ([ValueError("planted")], 3),
        ([EndpointError("http://10.0.0.7")], 3),
        ([*make_script()[:3], ValueError("planted")], 2),  # `script` ends before a search sees it
        ([QueryError("no word")], 0),
        ([QueueFull("64 wait", 2)], 0),
        (make_script(), 0),
    ],
)
def test_faults_are_counted_also_when_the_stream_has_begun(connect: Open, script: Any, n: int) -> None:
    client = connect(FakeEngine(script))
    assert samples(client.get("/metrics").text)["dmnrag_faults_total", frozenset()] == 0
    client.post("/v1/answer", json={"question": "头晕？"})
    client.post("/v1/answer", json={"question": "头晕？", "stream": True})
    client.post("/v1/search", json={"question": "头晕？"})
    client.get("/nowhere")
    assert samples(client.get("/metrics").text)["dmnrag_faults_total", frozenset()] == n


def test_the_documentation_loads_nothing_from_elsewhere_and_runs_no_script(connect: Open) -> None:
    page = connect().get("/docs").text
    assert "<script" not in page
    assert not re.findall(r"(?:src|href)=\"(?!#|openapi\.json)[^\"]*\"", page)
    for path in ("/v1/answer", "/v1/chat/completions", "/readyz"):
        assert path in page
    names = set(re.findall(r'href="#(\w+)"', page))
    assert names
    assert names <= set(re.findall(r'id="(\w+)"', page))


def test_the_description_has_examples_and_no_status_that_is_never_sent(connect: Open) -> None:
    described = connect(keys=KEYS).get("/openapi.json", headers=MINE).json()
    assert described["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
    for path in described["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            assert operation["description"]
            assert "422" not in operation["responses"]
    assert described["components"]["schemas"]["AnswerRequest"]["properties"]["question"]["examples"]


def test_a_stored_answer_is_shown_again_with_its_sources(connect: Open, tmp_path: Path) -> None:
    with keep(tmp_path / "store", "desk") as store:
        client = connect(FakeEngine(store=store), KEYS)
        fresh = client.post("/v1/answer", json={"question": "头晕？"}, headers=MINE).json()
        again = client.get("/v1/answers/a1", headers=MINE).json()
        assert again.items() >= fresh.items()
        assert (again["asked"], again["feedback"]) == ("头晕？", None)
        assert client.get("/v1/answers/a1", headers=THEIRS).status_code == 404
        assert client.get("/v1/answers/a2", headers=MINE).status_code == 404


@pytest.mark.parametrize(
    ("labels", "status"), [('"内科"', 200), ('"外科", "心血管内科"', 200), ('"外科"', 404), ('"头晕"', 404)]
)
def test_a_key_that_was_limited_sees_no_stored_sources_of_other_domains(
    connect: Open, tmp_path: Path, labels: str, status: int
) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[[key]]\nname = "desk"\nkey = "{KEY}"\ndomains = [{labels}]\n', encoding="utf-8")
    file.chmod(0o600)
    with keep(tmp_path / "store", "desk") as store:
        client = connect(FakeEngine(store=store), KeyRing.load(file, {}))
        response = client.get("/v1/answers/a1", headers=MINE)
        assert response.status_code == status
        if status == 404:
            unknown = client.get("/v1/answers/a2", headers=MINE).json()["error"]
            assert response.json()["error"] | {"request_id": ""} == unknown | {"request_id": ""}


def test_feedback_is_kept_and_belongs_to_the_asker(connect: Open, tmp_path: Path) -> None:
    vote = {"answer_id": "a1", "good": False, "comment": "过时"}
    with keep(tmp_path / "store", "desk") as store:
        client = connect(FakeEngine(store=store), KEYS)
        assert client.post("/v1/feedback", json=vote, headers=THEIRS).status_code == 404
        assert client.post("/v1/feedback", json=vote, headers=MINE).json() == {"kept": True}
        assert client.get("/v1/answers/a1", headers=MINE).json()["feedback"] == {"good": False, "comment": "过时"}
        too_long = client.post("/v1/feedback", json=vote | {"comment": "x" * 2_001}, headers=MINE)
        assert too_long.status_code == 400


def test_a_key_deletes_what_is_its_own(connect: Open, tmp_path: Path) -> None:
    with keep(tmp_path / "store", "desk") as store:
        client = connect(FakeEngine(store=store), KEYS)
        assert client.delete("/v1/me", headers=THEIRS).json() == {"deleted": 0}
        assert client.delete("/v1/answers/a1", headers=THEIRS).json() == {"deleted": 0}
        assert client.delete("/v1/me", headers=MINE).json() == {"deleted": 1}
        assert client.get("/v1/answers/a1", headers=MINE).status_code == 404


def test_without_keys_answers_are_deleted_by_id_alone(connect: Open, tmp_path: Path) -> None:
    with keep(tmp_path / "store") as store:
        client = connect(FakeEngine(store=store))
        assert client.delete("/v1/me").status_code == 403
        assert client.delete("/v1/answers/a1").json() == {"deleted": 1}


def test_without_a_store_no_vote_pretends_to_be_kept(connect: Open) -> None:
    response = connect(keys=KEYS).post("/v1/feedback", json={"answer_id": "a1", "good": True}, headers=MINE)
    assert (response.status_code, response.json()["error"]["code"]) == (409, "nothing_kept")
