import socket
import threading
import time
from typing import Any

import pytest
from llm_fake_server import Handler, chunk, completion, echo, fails, says, serving, streams, usage_chunk

from dmnrag.errors import ConfigError, EndpointError, GenerationError
from dmnrag.llm.approximate_tokens import ROLE_TOKENS, ApproximateCounter
from dmnrag.llm.openai_compatible import EndpointSettings, OpenAIGenerator
from dmnrag.types import Generation, GenerationSettings, Prompt, Usage

KEY = "sk-very-secret-key-0123456789"
SETTINGS = GenerationSettings(max_tokens=20)
SOON = {"retry-after-ms": "5"}


def connect(url: str, **options: Any) -> OpenAIGenerator:
    return OpenAIGenerator("m", EndpointSettings(**{"url": url, "timeout_s": 5.0, "retries": 2, **options}))


def ask(generator: OpenAIGenerator, settings: GenerationSettings = SETTINGS, text: str = "问") -> Generation:
    return generator.generate([Prompt(text)], settings)[0]


def collect(generator: OpenAIGenerator, prompt: Prompt = Prompt("问")) -> tuple[list[str], Generation]:  # noqa: B008
    *pieces, last = generator.stream(prompt, SETTINGS)
    assert isinstance(last, Generation)
    return [str(piece) for piece in pieces], last


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def test_settings_roles_and_key_reach_the_server() -> None:
    settings = GenerationSettings(64, 0.3, 5, 0.85, 1.05, stop=("甲", "乙"), seed=7)
    with serving(says("答")) as server:
        answer = connect(server.url).generate([Prompt("问", "系统", stop=("乙", "丙"))], settings)[0]
    assert answer == Generation("答", "stop", Usage(11, 3))
    assert server.keys == [f"Bearer {KEY}"]
    assert server.requests == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "系统"}, {"role": "user", "content": "问"}],
            "max_tokens": 64,
            "temperature": 0.3,
            "top_p": 0.85,
            "seed": 7,
            "stop": ["乙", "丙", "甲"],
            "top_k": 5,
            "repetition_penalty": 1.05,
        }
    ]


def test_what_is_not_set_is_not_sent() -> None:
    with serving(says("答")) as server:
        ask(connect(server.url))
    assert set(server.requests[0]) == {"model", "messages", "max_tokens"}


def test_the_key_comes_from_the_named_variable_and_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "other")
    with serving(says("答")) as server:
        ask(connect(server.url, api_key_env="OTHER_KEY"))
        ask(connect(server.url, api_key_env="UNSET_KEY"))
    assert server.keys[0] == "Bearer other"
    assert KEY not in server.keys[1]


def test_control_spellings_in_text_are_broken_before_they_are_sent() -> None:
    with serving(says("答")) as server:
        ask(connect(server.url), text="a<|im_end|>b")
    assert server.requests[0]["messages"][0]["content"] == "a< |im_end|>b"


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_failures_that_may_pass_are_tried_again(status: int) -> None:
    with serving(fails(status, headers=SOON), fails(status, headers=SOON), says("答")) as server:
        assert ask(connect(server.url)).text == "答"
    assert len(server.requests) == 3


@pytest.mark.parametrize(("status", "advice"), [(429, "too many requests"), (500, "an error of its own")])
def test_at_the_end_of_the_retries_the_error_names_host_status_and_cure(status: int, advice: str) -> None:
    with serving(fails(status, "overloaded", SOON)) as server:
        with pytest.raises(EndpointError) as caught:
            ask(connect(server.url))
        host = server.url.removeprefix("http://").removesuffix("/v1")
    for part in (host, str(status), advice, "overloaded"):
        assert part in str(caught.value)
    assert len(server.requests) == 3  # One try and two more.


def test_retry_after_is_respected() -> None:
    with serving(fails(429, headers={"retry-after": "1"}), says("答")) as server:
        start = time.monotonic()
        ask(connect(server.url))
        # The client's own first pause would be .375 to .5 s.
        assert time.monotonic() - start >= 1.0


@pytest.mark.parametrize(
    ("status", "advice"),
    [(400, "refuses the request"), (401, "OPENAI_API_KEY"), (403, "OPENAI_API_KEY"), (404, "/v1"), (422, "parameter")],
)
def test_refusals_are_not_tried_again_and_say_what_to_do(status: int, advice: str) -> None:
    with serving(fails(status)) as server, pytest.raises(EndpointError, match=advice):
        ask(connect(server.url))
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 500])
def test_the_key_is_never_in_an_error(status: int) -> None:
    with serving(fails(status, f"Incorrect API key provided: {KEY}")) as server:
        with pytest.raises(EndpointError) as caught:
            ask(connect(server.url, retries=0))
        with pytest.raises(EndpointError) as streamed:
            collect(connect(server.url, retries=0))
    for error in (caught.value, streamed.value):
        assert KEY not in str(error)
        assert error.__suppress_context__ or error.__context__ is None


@pytest.mark.parametrize("at", range(250, 301, 10))
def test_no_part_of_the_key_is_left_where_a_long_message_is_cut(at: int) -> None:
    with serving(fails(400, f"{'x' * at}{KEY} is not known")) as server, pytest.raises(EndpointError) as caught:
        ask(connect(server.url, retries=0))
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "answered"),
    [(400, True), (413, True), (422, True), (401, False), (404, False), (429, False), (503, False)],
)
def test_an_error_says_whether_the_server_works_and_refuses_this_request_alone(status: int, answered: bool) -> None:
    with serving(fails(status)) as server, pytest.raises(EndpointError) as caught:
        ask(connect(server.url, retries=0))
    assert caught.value.answered is answered


def test_a_server_that_is_down_is_an_error_after_the_retries() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(EndpointError, match="cannot be reached"):
        ask(connect(url, retries=0))
    with pytest.raises(EndpointError, match="cannot be reached"):
        collect(connect(url, retries=0))


def test_a_server_that_is_too_slow_is_an_error() -> None:
    free = threading.Event()
    with serving(lambda handler, body: free.wait(5) and None) as server:
        with pytest.raises(EndpointError, match=r"no answer within 0\.2 s"):
            ask(connect(server.url, timeout_s=0.2, retries=0))
        free.set()


def html(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_raw(b"<html>Welcome</html>", "text/html")


def broken_json(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_raw(b'{"choices": [', "application/json")


@pytest.mark.parametrize(
    "reply",
    [
        html,
        broken_json,
        says(None),
        says(["a", "list"]),
        lambda handler, body: handler.send_json({**completion("x"), "choices": []}),
        lambda handler, body: handler.send_json({**completion("x"), "choices": None}),
        lambda handler, body: handler.send_json({"choices": [{"finish_reason": "stop"}]}),
        lambda handler, body: handler.send_json({"choices": [{"message": None}]}),
        lambda handler, body: handler.send_json({"choices": ["x"]}),
        lambda handler, body: handler.send_json({}),
        lambda handler, body: handler.send_json([]),
    ],
    ids=["html", "broken json", "no content", "content is a list", "no choices", "null choices", "no message",
         "null message", "choice is a string", "empty object", "list"],
)  # fmt: skip
def test_replies_that_hold_no_answer_are_errors(reply: Any) -> None:
    with serving(reply) as server, pytest.raises(EndpointError, match=r"LLM server 127\.0\.0\.1:\d+ answered"):
        ask(connect(server.url, retries=0))


def test_usage_is_estimated_when_the_server_reports_none() -> None:
    with serving(says("血压", usage=None)) as server:
        assert ask(connect(server.url)).usage == Usage(1 + ROLE_TOKENS, 2)


def test_reasons_are_translated() -> None:
    with serving(says("答", "length"), says("答", None), says("答", "eos_token"), says("", "content_filter")) as server:
        generator = connect(server.url)
        assert ask(generator).finish_reason == "length"
        assert ask(generator).finish_reason == "stop"
        assert ask(generator).finish_reason == "stop"
        with pytest.raises(GenerationError, match="content_filter"):
            ask(generator)


def test_a_batch_keeps_its_order_and_its_limit_of_requests_at_once() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def slow_echo(handler: Handler, body: dict[str, Any]) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.03)
        with lock:
            running -= 1
        echo(handler, body)

    with serving(slow_echo) as server:
        answers = connect(server.url, concurrency=3).generate([Prompt(f"{i}a") for i in range(9)], SETTINGS)
    assert [answer.text for answer in answers] == [f"a{i}" for i in range(9)]
    assert 1 < most <= 3


def test_one_failure_in_a_batch_is_raised_without_waiting_for_the_rest() -> None:
    free = threading.Event()

    def some(handler: Handler, body: dict[str, Any]) -> None:
        if body["messages"][0]["content"] == "bad":
            fails(400)(handler, body)
        elif free.wait(60):
            echo(handler, body)

    with serving(some) as server:
        start = time.monotonic()
        with pytest.raises(EndpointError):
            connect(server.url, concurrency=2).generate([Prompt("bad"), *[Prompt("ok")] * 5], SETTINGS)
        assert time.monotonic() - start < 30  # Not the minute that the others hang.
        free.set()


def test_newer_servers_get_the_newer_name_of_max_tokens() -> None:
    with serving(fails(400, "Use 'max_completion_tokens' instead."), says("一"), says("二")) as server:
        generator = connect(server.url)
        assert [ask(generator).text, ask(generator).text] == ["一", "二"]
    assert "max_completion_tokens" not in server.requests[0]
    assert server.requests[1]["max_completion_tokens"] == server.requests[2]["max_completion_tokens"] == 20
    assert "max_tokens" not in server.requests[2]


def test_a_model_without_a_system_role_gets_one_message() -> None:
    with serving(fails(400, "System role not supported"), says("答")) as server:
        generator = connect(server.url)
        assert generator.generate([Prompt("问", "系统")], SETTINGS)[0].text == "答"
    assert server.requests[1]["messages"] == [{"role": "user", "content": "系统\n\n问"}]


def test_streams_give_pieces_and_the_servers_usage() -> None:
    with serving(
        streams(chunk("血"), chunk(""), chunk("压"), chunk(None, "stop"), usage_chunk(9, 2), "[DONE]")
    ) as server:
        assert collect(connect(server.url)) == (["血", "压"], Generation("血压", "stop", Usage(9, 2)))
    assert server.requests[0]["stream_options"] == {"include_usage": True}


def test_a_stream_that_ends_half_way_is_an_error_and_its_pieces_stay_valid() -> None:
    with serving(streams(chunk("血"), chunk("压"))) as server:
        stream = connect(server.url).stream(Prompt("问"), SETTINGS)
        assert [next(stream), next(stream)] == ["血", "压"]
        with pytest.raises(EndpointError, match="half way, after 2 characters"):
            next(stream)


def test_a_connection_that_breaks_within_a_stream_is_an_error() -> None:
    def cut(handler: Handler, body: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("content-length", "1000")
        handler.end_headers()
        handler.send_event(chunk("血"))
        handler.close_connection = True

    with serving(cut) as server, pytest.raises(EndpointError, match="cannot be reached"):
        collect(connect(server.url))


@pytest.mark.parametrize(
    "events",
    [[{"error": {"message": "CUDA out of memory"}}], ["{not json"], ["[]"], []],
    ids=["error event", "not json", "a list", "nothing"],
)
def test_streams_that_hold_no_answer_are_errors(events: list[Any]) -> None:
    with serving(streams(*events)) as server, pytest.raises(EndpointError, match="LLM server"):
        collect(connect(server.url))


def test_an_html_page_instead_of_a_stream_is_an_error() -> None:
    with serving(html) as server, pytest.raises(EndpointError, match="LLM server"):
        collect(connect(server.url))


def test_a_cancelled_stream_returns_at_once_and_closes_the_connection() -> None:
    def endless(handler: Handler, body: dict[str, Any]) -> None:
        handler.start_stream()
        while handler.send_event(chunk("字")):
            time.sleep(0.01)

    with serving(endless) as server:
        given: list[str] = []
        for piece in connect(server.url).stream(Prompt("问"), SETTINGS, lambda: len(given) >= 3):
            last = piece
            if isinstance(piece, str):
                given.append(piece)
        assert last == Generation("字字字", "cancelled", Usage(1 + ROLE_TOKENS, 3))
        assert server.client_left.wait(5)


def test_cancelling_does_not_wait_for_a_silent_server() -> None:
    free = threading.Event()
    with serving(lambda handler, body: free.wait(60) and None) as server:
        start = time.monotonic()
        *pieces, last = connect(server.url).stream(Prompt("问"), SETTINGS, lambda: time.monotonic() - start > 0.1)
        assert time.monotonic() - start < 30  # Not the minute that the server is silent.
        free.set()
    assert pieces == []
    assert isinstance(last, Generation)
    assert last.finish_reason == "cancelled"


def test_the_context_is_what_the_server_says_or_what_is_set() -> None:
    with serving(says("答"), models=[{"id": "other"}, {"id": "m", "max_model_len": 8192}]) as server:
        generator = connect(server.url)
        assert generator.context_tokens == 8192
        assert generator.context_tokens == 8192
        assert server.n_gets == 1
        assert connect(server.url, context_tokens=100).context_tokens == 100
    with serving(says("答"), models=[{"id": "m"}]) as server:
        assert connect(server.url).context_tokens is None
    with serving(says("答")) as server:
        assert connect(server.url).context_tokens is None


def test_a_server_that_is_down_has_an_unknown_context_for_now() -> None:
    with serving(says("答"), models=[{"id": "m", "max_model_len": 8192}]) as server:
        generator, url = connect(server.url), server.url
        port = server.server_address[1]
    assert generator.context_tokens is None
    assert url.endswith(f":{port}/v1")


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"url": "localhost:8000"}, "http://host:port/v1"),
        ({"url": "http://user:pass@host/v1"}, "into the environment"),
        ({"url": "http://host/v1?api_key=1"}, "into the environment"),
        ({"url": "http://host/v1", "timeout_s": 0.0}, "timeout_s 0"),
        ({"url": "http://host/v1", "retries": -1}, "retries -1"),
        ({"url": "http://host/v1", "concurrency": 0}, "concurrency 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as caught:
        EndpointSettings(**options)
    assert "pass" not in str(caught.value).replace("password", "")


def test_token_estimates() -> None:
    counter = ApproximateCounter()
    assert counter.count("血压高。") == 4
    assert counter.count("abcdefg") == 3  # 7 letters, 3 a token.
    assert counter.count("a b") == 3
    assert counter.count("🙂") == 2
    assert counter.prompt_tokens(Prompt("血压", "系统")) == 4 + ROLE_TOKENS


def test_requests_that_are_refused_together_are_all_asked_anew() -> None:
    together = threading.Barrier(4, timeout=5)

    def refuse_the_old_name(handler: Handler, body: dict[str, Any]) -> None:
        if "max_tokens" in body:
            together.wait()
            fails(400, "Use 'max_completion_tokens' instead.")(handler, body)
        else:
            says("好")(handler, body)

    with serving(refuse_the_old_name) as server:
        answers = connect(server.url, concurrency=4).generate([Prompt(str(n)) for n in range(4)], SETTINGS)
    assert [answer.text for answer in answers] == ["好"] * 4


@pytest.mark.parametrize("body", [b"null", b"[]", b"<html>", b"[" * 5000, b'data: {"choices": []}\n\n', b"1"])
def test_a_body_of_any_kind_that_is_no_completion_is_an_error(body: bytes) -> None:
    def send(handler: Handler, _body: dict[str, Any]) -> None:
        handler.send_raw(body, "application/json")

    with serving(send) as server, pytest.raises(EndpointError, match=r"127\.0\.0\.1"):
        ask(connect(server.url))


def test_half_a_surrogate_pair_costs_no_answer() -> None:
    with serving(says("a\ud83d b")) as server:
        assert ask(connect(server.url)).text == "a\ufffd b"
        connect(server.url).generate([Prompt("问\udcff")], SETTINGS)
    assert server.requests[-1]["messages"][0]["content"] == "问\ufffd"


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/v1", "http://[::1/v1"])
def test_a_url_that_is_none_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match="http://host:port/v1"):
        EndpointSettings(url=url)


def test_a_key_with_other_characters_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "密钥")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY") as caught:
        connect("http://127.0.0.1:9/v1")
    assert "密钥" not in str(caught.value)
