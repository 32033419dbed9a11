"""A small HTTP server in a thread: answers as a test says, with or without TLS, or passes on to a real node."""

import http.client
import json
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    """Names in small letters."""
    body: bytes


@dataclass
class Reply:
    content: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    product: bool = True
    """With the header by which the client knows Elasticsearch."""
    content_type: str = "application/vnd.elasticsearch+json;compatible-with=8"


Answer = Callable[[Request], Reply]

INFO = {"version": {"number": "9.5.3"}, "tagline": "You Know, for Search"}


def error(status: int, kind: str, reason: str = "as the test says") -> Reply:
    return Reply({"error": {"type": kind, "reason": reason}, "status": status}, status)


def _handler(answer: Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = answer(Request(self.command, self.path, headers, body))
            content = reply.content if isinstance(reply.content, bytes) else json.dumps(reply.content).encode()
            self.send_response(reply.status)
            if reply.product:
                self.send_header("X-Elastic-Product", "Elasticsearch")
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(len(content)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_one

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the console."""

    return Handler


@contextmanager
def serve(answer: Answer, certificate: "Certificate | None" = None) -> Iterator[str]:
    """The URL of a server that answers as long as the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answer))
    server.daemon_threads = True
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.path, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "https"
    server.handle_error = lambda request, address: None  # type: ignore[method-assign]  # a refused handshake is meant
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"{scheme}://localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def pass_on(url: str, key: str) -> Answer:
    """To a real node, for requests that carry the API key; 401 for others."""
    parts = urlsplit(url)

    def answer(request: Request) -> Reply:
        if request.headers.get("authorization") != f"ApiKey {key}":
            return error(401, "security_exception", "missing authentication credentials")
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        kept = {n: v for n, v in request.headers.items() if n in ("content-type", "accept", "x-elastic-client-meta")}
        connection.request(request.method, request.path, request.body or None, kept)
        given = connection.getresponse()
        content = given.read()
        connection.close()
        return Reply(content, given.status, {}, True, given.headers.get("content-type", "application/json"))

    return answer


@dataclass(frozen=True)
class Certificate:
    path: Path
    key: Path
    fingerprint: str


def make_certificate(folder: Path, host: str = "localhost", authority: Certificate | None = None) -> Certificate:
    """By the system's openssl; signed by itself, which makes it an authority too, or by the one that is given."""
    if shutil.which("openssl") is None:
        pytest.skip("no certificates can be made: there is no openssl here")
    path, key = folder / f"{host}.pem", folder / f"{host}.key"
    new = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={host}", "-keyout", str(key), "-out", str(path)]
    names = f"subjectAltName=DNS:{host}"
    if authority is None:
        _openssl(*new, "-x509", "-days", "2", "-addext", names)
    else:
        _openssl(*new)
        extensions = folder / f"{host}.ext"
        extensions.write_text(names)
        by = ["-CA", str(authority.path), "-CAkey", str(authority.key), "-CAcreateserial", "-days", "2"]
        _openssl("x509", "-req", "-in", str(path), "-out", str(path), *by, "-extfile", str(extensions))
    shown = _openssl("x509", "-in", str(path), "-noout", "-fingerprint", "-sha256")
    return Certificate(path, key, shown.strip().partition("=")[2])


def _openssl(*arguments: str) -> str:
    return subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True).stdout
