"""The audit log: whole lines only, whatever kills the writer."""

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from dmnrag import _io
from dmnrag.service.audit import AuditLog


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_holds_who_asked_and_what_was_given_but_not_the_question(tmp_path: Path) -> None:
    log = AuditLog.open(tmp_path / "audit.jsonl")
    log.write(
        "desk", "a1", "answer", request_id="r1", doc_ids=["d1", "d2"], domain=("内科",), outcome="answered",
        question="我的秘密\n问题",
    )  # fmt: skip
    log.close()
    [row] = lines(tmp_path / "audit.jsonl")
    assert row.pop("time").endswith("+00:00")
    assert row == {
        "request_id": "r1", "owner": "desk", "event": "answer", "answer_id": "a1", "doc_ids": ["d1", "d2"],
        "domain": ["内科"], "outcome": "answered",
    }  # fmt: skip


def test_question_text_where_it_is_asked_for(tmp_path: Path) -> None:
    log = AuditLog.open(tmp_path / "audit.jsonl", questions=True)
    log.write("desk", "a1", "answer", question="两行\n问题 \udcff")
    log.write("desk", "a1", "feedback")
    log.close()
    first, second = lines(tmp_path / "audit.jsonl")
    assert first["question"] == "两行\n问题 ?"
    assert "question" not in second


def test_only_this_user_reads_it(tmp_path: Path) -> None:
    AuditLog.open(tmp_path / "audit.jsonl").close()
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


@pytest.mark.parametrize("torn", ["", '{"time": "20', "x" * 200_000])
def test_a_torn_last_line_is_dropped_when_opened(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path)
    log.write("desk", "a1", "answer")
    log.close()
    with path.open("a", encoding="utf-8") as file:
        file.write(torn)
    log = AuditLog.open(path)
    log.write("desk", "a2", "answer")
    log.close()
    assert [row["answer_id"] for row in lines(path)] == ["a1", "a2"]


def test_a_file_of_one_torn_line_becomes_empty(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"time": ', encoding="utf-8")
    AuditLog.open(path).close()
    assert path.read_bytes() == b""


def test_every_line_is_on_the_disk_and_a_full_disk_leaves_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path)
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    log.write("desk", "a1", "answer")
    assert synced == [path.stat().st_size]

    def fail(step: str, _path: Path) -> None:
        if step == "fsync":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(_io, "FAULT_HOOK", fail)
    with pytest.raises(OSError, match="No space"):
        log.write("desk", "a2", "answer")
    monkeypatch.setattr(_io, "FAULT_HOOK", None)
    log.write("desk", "a3", "answer")
    log.close()
    assert [row["answer_id"] for row in lines(path)] == ["a1", "a3"]


def test_threads_and_a_second_opening_write_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    logs = [AuditLog.open(path), AuditLog.open(path)]

    def write(number: int) -> None:
        for i in range(20):
            logs[number % 2].write("desk", f"{number}-{i}", "answer", doc_ids=["d" * 3_000])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for log in logs:
        log.close()
    assert {row["answer_id"] for row in lines(path)} == {f"{n}-{i}" for n in range(4) for i in range(20)}
