"""Logs: JSON lines on stderr, without questions unless asked."""

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from dmnrag.service.logs import configure_logs, log_request

FACTS: dict[str, Any] = {"request_id": "r1", "method": "POST", "path": "/v1/answer", "status": 200, "ms": 12.34567}


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("", "dmnrag", "uvicorn")]
    before = [([*logger.handlers], logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
    logging.captureWarnings(False)


def logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def fault() -> ValueError:
    try:
        raise ValueError("cannot use 我的问题")
    except ValueError as error:
        return error


def test_a_request_is_one_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(log_questions=False)
    log_request(**FACTS, owner="desk", question="我的问题")
    [line] = logged(capsys)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info", "event": "request", "request_id": "r1", "method": "POST", "path": "/v1/answer",
        "status": 200, "ms": 12.3, "owner": "desk",
    }  # fmt: skip


def test_question_text_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(log_questions=True)
    log_request(**FACTS, question="我的问题\n\udcff")
    log_request(**FACTS)
    first, second = logged(capsys)
    assert first["question"] == "我的问题\n?"
    assert "question" not in second


def test_a_fault_says_what_and_where_but_quotes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(log_questions=False)
    log_request(**{**FACTS, "status": 500}, question="我的问题", error=fault())
    logging.getLogger("uvicorn.error").error("Exception in ASGI application", exc_info=fault())
    mine, servers = logged(capsys)
    assert mine["level"] == "error"
    assert mine["error"] == servers["error"] == "ValueError"
    assert mine["where"][-1].endswith(" fault")
    assert "我的问题" not in json.dumps([mine, servers], ensure_ascii=False)


def test_the_words_of_a_fault_where_questions_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(log_questions=True)
    log_request(**{**FACTS, "status": 500}, error=fault())
    assert logged(capsys)[0]["error_message"] == "cannot use 我的问题"


def test_the_query_of_a_path_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(log_questions=False)
    log_request(**{**FACTS, "path": "/v1/search?key=secret&q=我的问题"})
    assert logged(capsys)[0]["path"] == "/v1/search"


def test_configuring_twice_writes_once_and_the_last_one_counts(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(log_questions=True)
    configure_logs(log_questions=False)
    log_request(**FACTS, question="我的问题")
    [line] = logged(capsys)
    assert "question" not in line


def test_other_lines_of_the_package_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(log_questions=False)
    logging.getLogger("dmnrag.service.keys").warning("the keys file %s", "keys.toml")
    [line] = logged(capsys)
    assert (line["event"], line["level"], line["message"]) == ("message", "warning", "the keys file keys.toml")


def test_what_other_libraries_warn_of_is_one_json_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(log_questions=False)
    logging.getLogger("gradio.routes").warning("a form of %s parts", 3)
    logging.getLogger("multipart").info("not worth a line")
    logging.getLogger("dmnrag.service.keys").warning("mine")
    logging.getLogger("uvicorn.error").info("the server's")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)  # within the context, which has put its own in place
        warnings.warn("old\nuse", DeprecationWarning, stacklevel=1)
    lines = logged(capsys)
    assert [line["message"] for line in lines[:3]] == ["a form of 3 parts", "mine", "the server's"]
    assert lines[0]["logger"] == "gradio.routes"
    assert (lines[3]["logger"], "old\nuse" in lines[3]["message"]) == ("py.warnings", True)
    assert len(lines) == 4


def test_importing_installs_no_handler() -> None:
    code = (
        "import logging, dmnrag.service.logs, dmnrag.service.keys\n"
        "print([logging.getLogger(n).handlers for n in ('', 'dmnrag', 'dmnrag.service.requests', 'uvicorn')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[], [], [], []]"
