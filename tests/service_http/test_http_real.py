"""The real engine behind the HTTP API: the parts fit together."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from http_real_engine import real_service

from dmnrag.service.keys import KeyRing

KEY, LIMITED = "desk-0123456789abcdef", "child-0123456789abcdef"
MINE = {"authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("real")
    file = folder / "keys.toml"
    file.write_text(
        f'[[key]]\nname = "desk"\nkey = "{KEY}"\n\n[[key]]\nname = "child"\nkey = "{LIMITED}"\ndomains = ["儿科"]\n',
        encoding="utf-8",
    )
    file.chmod(0o600)
    with (
        real_service(folder, KeyRing.load(file, {})) as url,
        httpx.Client(base_url=url, headers=MINE, timeout=60) as client,
    ):
        yield client


def test_an_answer_is_given_shown_again_judged_and_deleted(client: httpx.Client) -> None:
    answer = client.post("/v1/answer", json={"question": "高血压头晕", "domain": "内科"}).json()
    assert answer["outcome"] == "answered"
    assert answer["sources"][0]["doc_id"] == "med-1"
    assert answer["sources"][0]["excerpt"]
    assert {source["number"] for source in answer["sources"] if source["excerpt"]} >= set(answer["citations"])
    path = f"/v1/answers/{answer['answer_id']}"
    assert client.get(path).json().items() >= answer.items()
    vote = {"answer_id": answer["answer_id"], "good": True, "comment": "好"}
    assert client.post("/v1/feedback", json=vote).json() == {"kept": True}
    assert client.get(path).json()["feedback"] == {"good": True, "comment": "好"}
    assert client.delete(path).json() == {"deleted": 1}
    assert client.get(path).status_code == 404


def test_the_stream_joins_to_the_answer(client: httpx.Client) -> None:
    text = client.post("/v1/answer", json={"question": "高血压头晕", "domain": "内科", "stream": True}).text
    told = [(block.split("\n")[0], json.loads(block.split("\n")[1][6:])) for block in text.strip().split("\n\n")]
    joined = "".join(document["text"] for name, document in told if name == "event: delta")
    assert told[-1][0] == "event: finished"
    assert told[-1][1]["answer"] == joined


def test_openais_client_gets_the_same_text_streamed_and_whole(client: httpx.Client) -> None:
    with openai.OpenAI(base_url=f"{client.base_url}/v1", api_key=KEY, max_retries=0, timeout=60) as openai_client:
        messages: Any = [
            {"role": "user", "content": "高血压患者早上头晕怎么办？"},
            {"role": "assistant", "content": "先测血压。"},
            {"role": "user", "content": "那孩子呢？"},
        ]
        whole = openai_client.chat.completions.create(model="no-Dmn", messages=messages)
        chunks = openai_client.chat.completions.create(model="no-Dmn", messages=messages, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
        beside: Any = whole.model_extra
        assert beside["dmnrag"]["method"] == "no-Dmn"
        assert beside["dmnrag"]["question"] != "那孩子呢？"


def test_a_limited_key_sees_nothing_else(client: httpx.Client) -> None:
    limited = {"authorization": f"Bearer {LIMITED}"}
    found = client.post("/v1/search", json={"question": "高血压头晕", "k": 4, "domain": None}, headers=limited).json()
    assert {source["doc_id"] for source in found["sources"]} <= {"med-2"}
    assert client.get("/v1/domains", headers=limited).json() == {"domains": [{"domain": ["儿科"], "documents": 1}]}
    refused = client.post("/v1/search", json={"question": "头晕", "domain": "内科"}, headers=limited)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "domain_unknown")


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"question": " \n"}, "invalid_question", None),
        ({"question": "长" * 2_001}, "question_too_long", "question"),
        ({"question": "头晕", "k": 51}, "invalid_question", None),
        ({"question": "头晕", "domain": "火星科"}, "domain_unknown", "domain"),
    ],
)
def test_what_the_engine_refuses_is_400(
    client: httpx.Client, body: dict[str, Any], code: str, param: str | None
) -> None:
    for path in ("/v1/answer", "/v1/search"):
        refused = client.post(path, json=body)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["param"]) == (400, code, param)
        assert "dmnrag info" not in error["message"]


@pytest.mark.parametrize(
    ("content", "headers", "words"),
    [
        (b'{"question": "x"}', {"content-type": "text/plain"}, "Content-Type: application/json"),
        (b"{", {"content-type": "application/json"}, "no JSON document"),
        ('{"question": "头晕"}'.encode("gb18030"), {"content-type": "application/json"}, "UTF-8"),
        (b'{"question": "x", "domain": {"a": 1}}', {"content-type": "application/json"}, "domain: "),
    ],
)
def test_a_body_that_cannot_be_read_says_what_to_send(
    client: httpx.Client, content: bytes, headers: dict[str, str], words: str
) -> None:
    refused = client.post("/v1/answer", content=content, headers=headers)
    assert refused.status_code == 400
    assert words in refused.json()["error"]["message"]


def test_metrics_know_the_engine(client: httpx.Client) -> None:
    client.post("/v1/answer", json={"question": "高血压头晕"})
    text = client.get("/metrics").text
    for name in ("dmnrag_queue_length 0", "dmnrag_documents 4", "dmnrag_answers_total{", "dmnrag_tokens_total{"):
        assert name in text


def test_without_an_llm_searches_work_and_answers_say_why_not(tmp_path: Path) -> None:
    with real_service(tmp_path, KeyRing(), llm=None) as url:
        assert httpx.post(f"{url}/v1/search", json={"question": "头晕"}).status_code == 200
        refused = httpx.post(f"{url}/v1/answer", json={"question": "头晕"})
        assert refused.status_code == 503
        assert "no LLM" in refused.json()["error"]["message"]
