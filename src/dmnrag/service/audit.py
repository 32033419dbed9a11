"""Who asked when, and which sources were given: JSON lines, appended, on the disk when `write` returns.

A line: `time` (UTC), `request_id`, `owner`, `event`, `answer_id`, `doc_ids`, `domain`, `outcome`, and `question` only
in a log that was opened for it. Deleting a person's stored questions does not touch this file: it is evidence of who
had access to what; with `question` it holds what was asked as well. Rotate it with copytruncate.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from dmnrag._io import fault_point
from dmnrag.types import Domain

_OWN_ONLY = 0o600
_CHUNK = 1 << 16


class AuditLog:
    """An open audit file. Any thread may write, and several processes may share the file.

    `write` waits for the disk: not for an event loop's own thread.
    """

    def __init__(self, path: Path, *, questions: bool = False) -> None:
        """Open, or create for this user alone; a line that a kill cut off is dropped. `questions`: keep their text.

        Raises:
            OSError: the file cannot be written.
        """
        self._questions = questions
        self._path = path
        self._lock = Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _OWN_ONLY)
        with self._alone():
            self._drop_torn_line()

    @classmethod
    def open(cls, path: Path, *, questions: bool = False) -> "AuditLog":
        """As the constructor."""
        return cls(path, questions=questions)

    def write(
        self,
        owner: str,
        answer_id: str,
        event: str,
        *,
        request_id: str = "",
        doc_ids: Sequence[str] = (),
        domain: Domain = (),
        outcome: str = "",
        question: str | None = None,
    ) -> None:
        """Append one line; on the disk when this returns.

        Raises:
            OSError: the disk refuses it; then nothing of the line is in the file.
        """
        row: dict[str, Any] = {
            "time": datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds"),
            "request_id": request_id,
            "owner": owner,
            "event": event,
            "answer_id": answer_id,
            "doc_ids": list(doc_ids),
            "domain": list(domain),
            "outcome": outcome,
        }
        if self._questions and question is not None:
            row["question"] = question
        line = (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        with self._alone():
            self._append(line)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One thread of one process at the file."""
        with self._lock:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _append(self, line: bytes) -> None:
        end = os.fstat(self._descriptor).st_size
        try:
            fault_point("write", self._path)
            while line:
                line = line[os.write(self._descriptor, line) :]
            fault_point("fsync", self._path)
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, end)
            raise

    def _drop_torn_line(self) -> None:
        end = size = os.fstat(self._descriptor).st_size
        while end:
            start = max(0, end - _CHUNK)
            newline = os.pread(self._descriptor, end - start, start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._descriptor, end)
