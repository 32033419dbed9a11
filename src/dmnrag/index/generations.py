"""Generations on disk: `CURRENT` names one, a new one appears whole or not at all.

    INDEX/CURRENT                  the name of the generation in use, replaced atomically
    INDEX/lock                     held by the one writer
    INDEX/generations/000001/      immutable once named; unchanged files are hard links to the former's

A reader holds a shared lock on its generation's manifest; pruning deletes only what nobody holds.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dmnrag._io import fsync_path, link_or_copy, rename, write_bytes_atomic, writer_lock
from dmnrag.errors import ConfigError, IndexDamagedError, IndexMissingError
from dmnrag.index import manifest as manifest_file

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
        raise IndexMissingError(
            f"there is no folder {folder}; build an index with: dmnrag index FILE --out {folder}"
        )
    if not path.is_file():
        raise IndexMissingError(
            f"{folder} is not an index (no {_POINTER} in it); build one with: dmnrag index FILE --out {folder}"
        )
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if not (text.isascii() and text.isdigit()):
        raise IndexDamagedError(
            f"{path} holds {text[:40]!r} instead of a generation's number; restore it or rebuild"
        )
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


class ReadLease:
    """Keeps a generation from being pruned while it is read. Freed by `close` or the process's end."""

    def __init__(self, generation: Path) -> None:
        path = generation / manifest_file.FILE_NAME
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise IndexDamagedError(
                f"{path} cannot be opened ({error.strerror}); restore it or rebuild"
            ) from error
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def close(self) -> None:
        """Free the generation."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


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
    """
    if index.exists() and not index.is_dir():
        raise ConfigError(f"{index} is a file; an index is a folder, name another one")
    foreign = index.is_dir() and not is_index(index) and any(p.name not in OWN_NAMES for p in index.iterdir())
    if foreign:
        raise ConfigError(f"{index} holds other files and no index; name a new or empty folder")
    (index / _GENERATIONS).mkdir(parents=True, exist_ok=True)
    with writer_lock(index):
        newest = max(generation_numbers(index), default=0)
        staging = Staging(index, newest + 1)
        for leftover in (staging.path, *(index / _GENERATIONS).glob(f"{_DOOMED}*")):
            shutil.rmtree(leftover, ignore_errors=True)
        staging.path.mkdir()
        try:
            yield staging
        finally:
            shutil.rmtree(staging.path, ignore_errors=True)


OWN_NAMES = frozenset({_POINTER, _GENERATIONS, "lock", "models"})
"""Names that an index folder consists of."""


def prune(index: Path, keep: int = 1) -> list[int]:
    """Delete generations older than the newest `keep` former ones, where no reader holds them.

    The caller holds the writer's lock. Generations newer than `CURRENT` were never in use: a writer
    was killed between naming them and pointing at them; they go too.
    """
    current = current_generation(index)
    numbers = generation_numbers(index)
    former = [n for n in numbers if n < current]
    doomed = former[: max(0, len(former) - keep)] + [n for n in numbers if n > current]
    return [n for n in doomed if _delete_unless_read(index, n)]


def _delete_unless_read(index: Path, number: int) -> bool:
    folder = generation_folder(index, number)
    try:
        descriptor = os.open(folder / manifest_file.FILE_NAME, os.O_RDONLY)
    except FileNotFoundError:
        descriptor = -1
    try:
        if descriptor >= 0:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        # Renamed first: a half-deleted generation must not look like one.
        doomed = folder.with_name(f"{_DOOMED}{folder.name}")
        os.replace(folder, doomed)
        shutil.rmtree(doomed, ignore_errors=True)
        return True
    finally:
        if descriptor >= 0:
            os.close(descriptor)
