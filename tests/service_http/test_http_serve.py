"""`dmnrag serve`: a process that listens, answers, and ends when it is told to."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from http_real_engine import DOCUMENTS
from typer.testing import CliRunner

from dmnrag.cli import serve as serve_command
from dmnrag.cli.main import app
from dmnrag.errors import ConfigError
from dmnrag.index import IndexSettings, build_index
from dmnrag.service import logs
from dmnrag.service.settings import AnswerSettings, LoadSettings, ServeSettings, TrustSettings

KEY = "desk-0123456789abcdef"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve") / "index"
    build_index(folder, DOCUMENTS, IndexSettings(dense=None))
    return folder


@contextmanager
def process(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its URL, when it listens."""
    command = [sys.executable, "-c", "from dmnrag.cli.main import run; run()", "serve", *arguments, "--port", "0"]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )
    try:
        assert started.stdout is not None
        yield started, started.stdout.readline().split("  ")[0].rstrip("/\n")
    finally:
        started.kill()
        started.communicate()


def ready(url: str, **headers: str) -> None:
    while httpx.get(f"{url}/readyz", headers=headers).status_code != 200:
        pass


@pytest.mark.slow
def test_it_answers_and_ends_on_sigterm_with_json_lines_alone_on_stderr(index: Path, tmp_path: Path) -> None:
    store, audit = tmp_path / "store", tmp_path / "audit"
    options = ("--llm", "fake", "--no-page", "--store", str(store), "--audit", str(audit))
    with process(str(index), *options, DMNRAG_API_KEYS=f"desk:{KEY}") as (started, url):
        ready(url)
        assert httpx.get(f"{url}/v1/models").status_code == 401
        key = {"authorization": f"Bearer {KEY}"}
        answer = httpx.post(f"{url}/v1/answer", json={"question": "高血压头晕"}, headers=key, timeout=60).json()
        assert answer["sources"]
        vote = {"answer_id": answer["answer_id"], "good": True}
        assert httpx.post(f"{url}/v1/feedback", json=vote, headers=key).status_code == 200
        started.send_signal(signal.SIGTERM)
        _, talk = started.communicate(timeout=60)
    assert started.returncode in {0, -signal.SIGTERM}
    lines = [json.loads(line) for line in talk.splitlines()]
    assert {"/v1/answer", "/v1/feedback"} <= {line.get("path") for line in lines}
    assert "高血压" not in talk
    assert KEY not in talk + audit.read_text(encoding="utf-8")
    assert store.stat().st_size > 0


@pytest.mark.slow
def test_without_an_llm_it_is_ready_to_search(index: Path) -> None:
    with process(str(index), "--no-page") as (_, url):
        ready(url)
        assert httpx.post(f"{url}/v1/search", json={"question": "高血压"}).json()["sources"]
        assert httpx.post(f"{url}/v1/answer", json={"question": "高血压"}).status_code == 503


def test_other_addresses_need_keys_or_the_word_that_it_is_open() -> None:
    serve_command._check_reach("127.0.0.1", without_keys=True, anyone=False)
    serve_command._check_reach("::1", without_keys=True, anyone=False)
    serve_command._check_reach("localhost", without_keys=True, anyone=False)
    serve_command._check_reach("0.0.0.0", without_keys=False, anyone=False)
    serve_command._check_reach("0.0.0.0", without_keys=True, anyone=True)
    for host in ("0.0.0.0", "::", "192.168.1.7", "desk.example", ""):
        with pytest.raises(ConfigError, match="--keys FILE"):
            serve_command._check_reach(host, without_keys=True, anyone=False)


def test_a_port_in_use_is_said_before_anything_is_loaded(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "configure_logs", lambda log_questions: None)  # the process's, and it stays
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(app, ["serve", str(index), "--no-page", "--port", str(taken.getsockname()[1])])
    assert isinstance(result.exception, ConfigError)
    assert "choose another --host or --port" in str(result.exception)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--layer", "deep"), ("--mask", "maybe"), ("-k", "0"), ("--queue-timeout-s", "0"), ("--max-body-bytes", "9")],
)
def test_settings_that_cannot_be_are_refused(index: Path, option: str, value: str) -> None:
    result = CliRunner().invoke(app, ["serve", str(index), option, value])
    assert isinstance(result.exception, ConfigError)


def test_every_setting_has_its_option(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the service is left to its default by the command line."""
    seen: list[ServeSettings] = []
    monkeypatch.setattr(serve_command, "ServeSettings", lambda **parts: seen.append(ServeSettings(**parts)) or 1 / 0)
    options = [
        "--layer", "sparse", "-k", "4", "--max-k", "9", "--max-tokens", "11", "--temperature", "0.5", "--no-refuse",
        "--notices", "none", "--valid-until-column", "c", "--mask", "never", "--llm-concurrency", "2", "--queue", "3",
        "--queue-timeout-s", "4", "--answer-timeout-s", "5", "--search-timeout-s", "6", "--shutdown-grace-s", "7",
        "--reload-every-s", "8", "--keys", "keys", "--rate-per-minute", "12", "--max-body-bytes", "2000",
        "--max-question-characters", "13", "--cors-origin", "https://a.example", "--log-questions", "--audit", "audit",
        "--store", "store", "--no-page",
    ]  # fmt: skip
    CliRunner().invoke(app, ["serve", str(index), *options])
    [given] = seen
    for part, default in (
        (given.answer, AnswerSettings()),
        (given.load, LoadSettings()),
        (given.trust, TrustSettings()),
    ):
        same = [name for name in type(default).__slots__ if getattr(part, name) == getattr(default, name)]
        assert same == []
