"""Files that survive a crash: atomic writes, one writer at a time, JSON lines.

Every step that makes data durable goes through `fsync_path` and `rename`, so that tests can stop
the program at each of them (`FAULT_HOOK`).
"""

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dmnrag.errors import DataError, IndexLockedError

FAULT_HOOK: Callable[[str, Path], None] | None = None
"""Called with ("fsync" | "rename" | "write", path) before the step is done; tests replace it."""


def fault_point(step: str, path: Path) -> None:
    """A place where a test can kill the program or make the disk fail."""
    if FAULT_HOOK is not None:
        FAULT_HOOK(step, path)


def fsync_path(path: Path) -> None:
    """Push a file, or a folder's list of names, to the disk."""
    fault_point("fsync", path)
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder; its renames are durable by themselves.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Atomic replacement, durable when it returns."""
    fault_point("rename", target)
    os.replace(source, target)
    fsync_path(target.parent)


def write_bytes_atomic(path: Path, content: bytes) -> None:
    """Readers see the former content or the new one, never a mixture."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fault_point("write", path)
        temporary.write_bytes(content)
        fsync_path(temporary)
        rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json_atomic(path: Path, value: Any) -> None:
    """Readable JSON (UTF-8, sorted as given), written atomically."""
    write_bytes_atomic(path, (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode())


def write_jsonl_atomic(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """One JSON object a line, written atomically."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_bytes_atomic(path, "".join(lines).encode())


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a UTF-8 JSON-lines file; blank lines are passed over.

    Raises:
        DataError: a line is not a JSON object; names the line.
    """
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(
                    f"{path}, line {number}: not JSON ({error.msg} at column {error.colno})"
                ) from error
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}: a JSON object is needed, found {type(row).__name__}")
            yield row


def link_or_copy(source: Path, target: Path) -> None:
    """Share an immutable file between folders; copies where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@contextmanager
def writer_lock(folder: Path) -> Iterator[None]:
    """One writer in `folder` at a time; the system frees the lock when its holder dies.

    Raises:
        IndexLockedError: another process writes there; says who.
    """
    path = folder / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try_lock(descriptor):
            holder = path.read_text(encoding="utf-8", errors="replace").strip() or "an unknown process"
            raise IndexLockedError(
                f"{folder} is being written by {holder}; wait until it ends, then try again"
            )
        os.ftruncate(descriptor, 0)
        command = " ".join(Path(part).name if i == 0 else part for i, part in enumerate(sys.argv[:3]))
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()} ({command})".encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
