"""Generations on disk: `CURRENT` names one, a new one appears whole or not at all.

    INDEX/CURRENT                  the name of the generation in use, replaced atomically
    INDEX/lock                     held by the one writer
    INDEX/generations/000001/      immutable once named; unchanged files are hard links to the former's

A reader holds a shared lock on its generation's manifest; pruning deletes only what nobody holds.
"""

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dmnrag._io import (
    delete_folder,
    describe_os_error,
    fault_point,
    fsync_path,
    link_or_copy,
    rename,
    write_bytes_atomic,
    writer_lock,
)
from dmnrag.errors import ConfigError, DmnragError, IndexDamagedError, IndexFolderError, IndexMissingError
from dmnrag.index import manifest as manifest_file
from dmnrag.index.alias import release
from dmnrag.index.models import delete_unused_models

_logger = logging.getLogger(__name__)

_POINTER = "CURRENT"
_GENERATIONS = "generations"
_STAGING = ".staging"
_DOOMED = ".doomed-"


def is_index(folder: Path) -> bool:
    """Whether there is an index at `folder`."""
    return (folder / _POINTER).is_file()


def current_generation(folder: Path) -> int:
    """Number of the generation in use.

    Raises:
        IndexMissingError: no index there.
        IndexDamagedError: the pointer is not one.
    """
    path = folder / _POINTER
    if not folder.is_dir():
        raise IndexMissingError(f"there is no folder {folder}; build an index with: dmnrag index FILE --out {folder}")
    if not path.is_file():
        raise IndexMissingError(
            f"{folder} is not an index (no {_POINTER} in it); build one with: dmnrag index FILE --out {folder}"
        )
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if not (text.isascii() and text.isdigit()):
        raise IndexDamagedError(f"{path} holds {text[:40]!r} instead of a generation's number; restore it or rebuild")
    return int(text)


def generation_folder(folder: Path, number: int) -> Path:
    """Where a generation lives."""
    return folder / _GENERATIONS / f"{number:06d}"


def generation_numbers(folder: Path) -> list[int]:
    """All whole generations on disk, oldest first."""
    parent = folder / _GENERATIONS
    if not parent.is_dir():
        return []
    return sorted(int(p.name) for p in parent.iterdir() if p.name.isascii() and p.name.isdigit())


def generation_folders(folder: Path) -> list[Path]:
    """Where all whole generations live, oldest first."""
    return [generation_folder(folder, number) for number in generation_numbers(folder)]


def current_backend(folder: Path) -> manifest_file.ClusterPart | None:
    """What the generation in use names in a cluster; where that cannot be read, the newest one that can be."""
    for number in (pointed_at(folder), *reversed(generation_numbers(folder))):
        if number:
            with suppress(DmnragError):
                return manifest_file.Manifest.load(generation_folder(folder, number)).backend
    return None


class ReadLease:
    """Keeps a generation from being pruned while it is read. Freed by `close` or the process's end."""

    def __init__(self, generation: Path) -> None:
        path = generation / manifest_file.FILE_NAME
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise IndexDamagedError(f"{path} cannot be opened ({error.strerror}); restore it or rebuild") from error
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def close(self) -> None:
        """Free the generation."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        # An index that was dropped without `close` must not hold its generation as long as the process lives.
        if hasattr(self, "_descriptor"):
            self.close()


class Staging:
    """A generation in the making; `commit` makes it the current one."""

    def __init__(self, index: Path, number: int) -> None:
        self.index = index
        self.number = number
        self.path = index / _GENERATIONS / _STAGING
        self.linked: dict[str, manifest_file.Part] = {}

    def link(self, former: Path, parts: dict[str, manifest_file.Part], keep: Callable[[str], bool]) -> None:
        """Take over unchanged files of a former generation, with their known hashes."""
        for name, part in parts.items():
            if keep(name):
                target = self.path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(former / name, target)
                self.linked[name] = part

    def drop(self, segment: str) -> None:
        """Take back a segment that was written here and then joined into another."""
        for path in (*self.path.glob(f"documents-{segment}.parquet"), *self.path.glob(f"**/{segment}/*")):
            path.unlink()
        for folder in list(self.path.glob(f"**/{segment}")):
            folder.rmdir()

    def parts(self) -> dict[str, manifest_file.Part]:
        """Every file of the generation with size and hash."""
        files = sorted(p for p in self.path.rglob("*") if p.is_file())
        names = [p.relative_to(self.path).as_posix() for p in files]
        return {
            n: self.linked.get(n) or manifest_file.describe_part(p)
            for n, p in zip(names, files, strict=True)
            if n != manifest_file.FILE_NAME
        }

    def commit(self, manifest: manifest_file.Manifest) -> None:
        """Make the generation durable, name it, and point `CURRENT` at it."""
        for folder in sorted((p for p in self.path.rglob("*") if p.is_dir()), reverse=True):
            fsync_path(folder)
        manifest.save(self.path)
        rename(self.path, generation_folder(self.index, self.number))
        write_bytes_atomic(self.index / _POINTER, f"{self.number:06d}\n".encode())


@contextmanager
def stage_generation(index: Path) -> Iterator[Staging]:
    """Hold the writer's lock and give a folder for a new generation; leftovers of killed writers go.

    Raises:
        ConfigError: the folder holds something else.
        IndexLockedError: another process writes there.
        IndexFolderError: the system refuses to write: no space, no permission, a failing disk.
    """
    staging: Staging | None = None
    try:
        _refuse_foreign(index)
        _make_folders(index / _GENERATIONS)
        with writer_lock(index):
            staging = Staging(index, 1 + max([*generation_numbers(index), pointed_at(index) or 0]))
            _clear_leftovers(index)
            staging.path.mkdir()
            try:
                yield staging
            finally:
                _clear_leftovers(index)
    except OSError as error:
        if isinstance(error, DmnragError):
            raise
        raise IndexFolderError(f"{index} {_state(index, staging)}: {describe_os_error(error)}") from error


OWN_NAMES = frozenset({_POINTER, _GENERATIONS, "lock", "models"})
"""Names that an index folder consists of."""


def _refuse_foreign(index: Path) -> None:
    if index.exists() and not index.is_dir():
        raise ConfigError(f"{index} is a file; an index is a folder, name another one")
    if not index.is_dir() or is_index(index):
        return
    half_written = set(_half_written(index))
    if any(path.name not in OWN_NAMES and path not in half_written for path in index.iterdir()):
        raise ConfigError(f"{index} holds other files and no index; name a new or empty folder")


def _half_written(index: Path) -> list[Path]:
    """Pointers that a killed writer did not finish."""
    return list(index.glob(f".{_POINTER}.*.tmp"))


def _make_folders(folder: Path) -> None:
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        fsync_path(path.parent)


def pointed_at(index: Path) -> int | None:
    """The generation in use; 0 where there is none yet, None where the pointer is damaged."""
    try:
        return current_generation(index)
    except IndexMissingError:
        return 0
    except IndexDamagedError:
        return None


def _clear_leftovers(index: Path) -> None:
    """Delete what writers that failed or were killed left, generations that were never pointed at included."""
    folders = index / _GENERATIONS
    for leftover in (folders / _STAGING, *folders.glob(f"{_DOOMED}*")):
        delete_folder(leftover)
    for pointer in _half_written(index):
        with suppress(OSError):
            pointer.unlink()
    current = pointed_at(index)
    if current is not None:
        for number in generation_numbers(index):
            if number > current:
                _delete_unless_read(index, number)
    delete_unused_models(index, generation_folders(index))


def _state(index: Path, staging: Staging | None) -> str:
    """What an update that failed left behind, for the error."""
    with suppress(DmnragError, OSError):
        if staging is not None and current_generation(index) == staging.number:
            return "has the change, but perhaps not safely on the disk yet"
        return "cannot be written, nothing in it was changed"
    return "cannot be written"


def prune(index: Path, keep: int = 1) -> list[int]:
    """Delete generations older than the newest `keep` former ones, where no reader holds them, and what they alone
    name in a cluster.

    The caller holds the writer's lock. One that cannot be deleted now is tried again after the next update.
    """
    current = current_generation(index)
    former = [n for n in generation_numbers(index) if n < current]
    return [n for n in former[: max(0, len(former) - keep)] if _delete_unless_read(index, n)]


def _delete_unless_read(index: Path, number: int) -> bool:
    folder = generation_folder(index, number)
    try:
        descriptor = os.open(folder / manifest_file.FILE_NAME, os.O_RDONLY)
    except FileNotFoundError:  # without a manifest nobody can hold it
        descriptor = -1
    except OSError:
        return False
    try:
        if descriptor >= 0:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        release(folder, [path for path in generation_folders(index) if path != folder])
        # Renamed first: a half-deleted generation must not look like one.
        doomed = folder.with_name(f"{_DOOMED}{folder.name}")
        fault_point("rename", doomed)
        os.replace(folder, doomed)
        delete_folder(doomed)
        return True
    except DmnragError as error:  # the cluster that it names, most likely
        _logger.warning("generation %d of %s stays: %s", number, index, error)
        return False
    except OSError:
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)
