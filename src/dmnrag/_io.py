"""Files that survive a crash: atomic writes, one writer at a time, JSON lines, the system's errors in words.

Every step that changes a disk calls `fault_point` before it, so that tests can stop the program or
make the disk fail at each of them (`FAULT_HOOK`).
"""

import errno
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dmnrag.errors import DataError, IndexLockedError

FAULT_HOOK: Callable[[str, Path], None] | None = None
"""Called with ("write" | "fsync" | "rename" | "delete" | "lock", path) before the step is done; tests replace it."""

_NO_HARD_LINKS = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
)
"""What systems answer where a file cannot get a second name."""

_LOCK_TRIES, _LOCK_PAUSE_S = 5, 0.02
"""`lock_holder` holds the lock for an instant to look at it; a writer that meets it there tries again."""

_WORDS = {
    errno.ENOSPC: "no space left on the disk; free some, then try again",
    errno.EDQUOT: "the disk quota is used up; free some space, then try again",
    errno.EFBIG: "the file would be larger than allowed; raise the limit (ulimit -f), then try again",
    errno.EROFS: "the file system is read-only; mount it writable or name another folder",
    errno.EACCES: "no permission; change the owner or the rights of the folder, or name another one",
    errno.EPERM: "the operation is not permitted; change the owner or the rights of the folder, or name another one",
    errno.EIO: "the disk reports an input/output error; check it before you go on",
    errno.EMFILE: "too many open files; raise the limit (ulimit -n), then try again",
}
"""What the system's error numbers mean for a person, and what to do."""


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
    """Readers see the former content or the new one, never a mixture.

    A link is followed, so that it stays one. A device or pipe cannot be replaced and is written to.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
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
                raise DataError(f"{path}, line {number}: not JSON ({error.msg} at column {error.colno})") from error
            except (ValueError, RecursionError) as error:  # a number of thousands of digits; nested too deeply
                raise DataError(f"{path}, line {number}: JSON that cannot be read: {error}") from error
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}: a JSON object is needed, found {type(row).__name__}")
            yield row


def link_or_copy(source: Path, target: Path) -> None:
    """Share an immutable file between folders; copies where the file system has no hard links."""
    fault_point("write", target)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        shutil.copy2(source, target)
        fsync_path(target)


def delete_folder(folder: Path) -> None:
    """Delete a folder that nobody needs; what cannot be deleted now stays for the next one who tries."""
    with suppress(OSError):
        fault_point("delete", folder)
        shutil.rmtree(folder, ignore_errors=True)


def describe_os_error(error: OSError) -> str:
    """The file, what the system says of it, and what to do, in one line."""
    words = _WORDS.get(error.errno or 0) or error.strerror or str(error) or type(error).__name__
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join((" to ".join(names), words)) if names else words


@contextmanager
def writer_lock(folder: Path) -> Iterator[None]:
    """One writer in `folder` at a time; the system frees the lock when its holder dies.

    Raises:
        IndexLockedError: another process writes there; says who.
    """
    path = folder / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _lock(descriptor):
            raise IndexLockedError(f"{folder} is being written by {_named(path)}; wait until it ends, then try again")
        os.ftruncate(descriptor, 0)
        command = " ".join(Path(part).name if i == 0 else part for i, part in enumerate(sys.argv[:3]))
        fault_point("lock", path)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()} ({command})".encode(), 0)
        try:
            yield
        finally:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def lock_holder(folder: Path) -> str | None:
    """Who writes in `folder` at this moment; None where nobody does."""
    path = folder / "lock"
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return None if _try_lock(descriptor, exclusive=False) else _named(path)
    finally:
        os.close(descriptor)


def _named(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip() or "an unknown process"


def _lock(descriptor: int) -> bool:
    for _ in range(_LOCK_TRIES - 1):
        if _try_lock(descriptor):
            return True
        time.sleep(_LOCK_PAUSE_S)
    return _try_lock(descriptor)


def _try_lock(descriptor: int, *, exclusive: bool = True) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
