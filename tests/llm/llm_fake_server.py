"""A chat completions server on 127.0.0.1 that behaves, or misbehaves, as a test says."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    server: "Server"
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append(body)
            self.server.keys.append(self.headers.get("authorization", ""))
        replies = self.server.replies
        replies[min(number, len(replies) - 1)](self, body)

    def do_GET(self) -> None:
        self.server.n_gets += 1
        if self.server.models is None:
            self.send_json({"error": {"message": "no list"}}, 404)
        else:
            self.send_json({"object": "list", "data": self.server.models})

    def send_json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_raw(json.dumps(value).encode(), "application/json", status, headers)

    def send_raw(self, body: bytes, kind: str, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def start_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def send_event(self, value: Any) -> bool:
        """False when the client has gone."""
        try:
            text = value if isinstance(value, str) else json.dumps(value)
            self.wfile.write(f"data: {text}\n\n".encode())
            self.wfile.flush()
            return True
        except OSError:
            self.server.client_left.set()
            return False

    def log_message(self, *arguments: Any) -> None:
        """Quiet."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, replies: list[Reply], models: list[dict[str, Any]] | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies = replies
        self.models = models
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.n_gets = 0
        self.client_left = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are part of the tests."""


@contextmanager
def serving(*replies: Reply, models: list[dict[str, Any]] | None = None) -> Iterator[Server]:
    """The n-th request gets the n-th reply, later ones the last."""
    server = Server(list(replies), models)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def completion(
    text: Any, finish_reason: str | None = "stop", usage: tuple[int, int] | None = (11, 3)
) -> dict[str, Any]:
    value: dict[str, Any] = {
        "id": "x", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}],
    }  # fmt: skip
    if usage:
        value["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return value


def chunk(text: str | None, finish_reason: str | None = None) -> dict[str, Any]:
    delta = {} if text is None else {"content": text}
    return {
        "id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }  # fmt: skip


def usage_chunk(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": 0}
    return {**chunk(None), "choices": [], "usage": usage}


def says(text: Any, finish_reason: str | None = "stop", usage: tuple[int, int] | None = (11, 3)) -> Reply:
    return lambda handler, body: handler.send_json(completion(text, finish_reason, usage))


def fails(status: int, message: str = "no", headers: dict[str, str] | None = None) -> Reply:
    return lambda handler, body: handler.send_json({"error": {"message": message}}, status, headers)


def streams(*events: Any) -> Reply:
    def reply(handler: Handler, body: dict[str, Any]) -> None:
        handler.start_stream()
        for event in events:
            if not handler.send_event(event):
                return

    return reply


def echo(handler: Handler, body: dict[str, Any]) -> None:
    """A model that answers with the user's text backwards, a character a token; ignores stop strings, as some do."""
    text = body["messages"][-1]["content"][::-1]
    given = text[: body["max_tokens"]]
    reason = "length" if len(given) < len(text) else "stop"
    usage = (len(text), len(given))
    if not body.get("stream"):
        handler.send_json(completion(given, reason, usage))
        return
    handler.start_stream()
    for character in given:
        if not handler.send_event(chunk(character)):
            return
    handler.send_event(chunk(None, reason))
    handler.send_event(usage_chunk(*usage))
    handler.send_event("[DONE]")
