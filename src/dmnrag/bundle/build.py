"""Makes a bundle: wheels by pip, models from here, one index, one archive.

Works in a hidden folder beside the archive, which the next run empties where one was killed.
"""

import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from dmnrag import __version__
from dmnrag._io import delete_folder, writer_lock
from dmnrag.bundle.archive import Progress, write_archive
from dmnrag.bundle.files import index_files
from dmnrag.bundle.settings import BundleSettings, model_files, needed_extras
from dmnrag.bundle.wheels import gather_wheels, needed_glibc, unpacked_bytes
from dmnrag.errors import ConfigError
from dmnrag.index import Index

Talk = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BundleReport:
    """What was made."""

    path: Path
    n_bytes: int
    sha256: str
    """Of the archive."""
    extras: tuple[str, ...]
    n_wheels: int
    python: str
    """Version that the other machine needs."""
    platform: str
    """System, processor and C library that it needs."""


def make_bundle(
    folder: Path,
    out: Path,
    settings: BundleSettings,
    *,
    replace: bool = False,
    talk: Talk = lambda _: None,
    on_progress: Progress = lambda *_: None,
) -> BundleReport:
    """Gather everything for an index into one archive. Reaches the network through pip alone.

    Killed at any point, `out` is as it was; the next run clears away what was left.

    Args:
        folder: the index; its files are checked against their hashes first.
        out: the archive.
        settings: what goes in beside the index.
        replace: an archive that is there may be replaced.
        talk: told what begins.
        on_progress: told how far the archive is.

    Raises:
        IndexFolderError: no usable index.
        ConfigError: an index in a cluster, a model or wheel that cannot be got, no room, or `out` cannot be used.
        IndexLockedError: another process makes the same bundle.
    """
    _check_target(out, replace)
    with Index.open(folder, verify=True) as index, _work_folder(out) as work:
        extras = needed_extras(index, settings)
        files = index_files(index)
        talk("models: looking them up, converting the built-in ones where that was not done yet")
        models, llm = model_files(index, settings)
        wanted = f"dmnrag[{','.join(extras)}]" if extras else "dmnrag"
        talk(f"wheels: {wanted} and its libraries, by pip; this can take some minutes")
        wheels = gather_wheels(work, extras, settings.pip_options())
        files |= models | {f"wheels/{path.name}": path for path in wheels}
        glibc = needed_glibc(path.name for path in wheels)
        facts: dict[str, Any] = {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": __version__,
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
            "system": platform.system(),
            "machine": platform.machine(),
            "glibc": None if glibc is None else list(glibc),
            "extras": extras,
            "llm": llm,
            "unpacked_bytes": unpacked_bytes(wheels),
        }
        digest = write_archive(out, files, facts, installer(facts["python"], out.name), on_progress)
    needed = f"{facts['system']} {facts['machine']}" + ("" if glibc is None else f", glibc {glibc[0]}.{glibc[1]}")
    return BundleReport(out, out.stat().st_size, digest, tuple(extras), len(wheels), facts["python"], needed)


def installer(python: str, archive: str) -> bytes:
    """The shell script in front of an archive, with the program that does the work inside."""
    script = resources(__package__).joinpath("install.sh").read_text(encoding="utf-8")
    program = resources(__package__).joinpath("install.py").read_text(encoding="utf-8")
    for mark, value in (("@PYTHON@", python), ("@ARCHIVE@", archive), ("@PROGRAM@", program)):
        script = script.replace(mark, value)
    return script.encode()


_SHELL_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def _check_target(out: Path, replace: bool) -> None:
    if not set(out.name) <= _SHELL_SAFE or out.name.startswith("-"):
        raise ConfigError(f"the archive's name {out.name!r} stands in a script: allowed are letters, digits, . _ and -")
    if out.is_dir():
        raise ConfigError(f"{out} is a folder; name a file, such as {out / 'dmnrag-offline.tar'}")
    if out.exists() and not replace:
        raise ConfigError(f"{out} exists; name another file, or say --replace")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"there is no folder {out.absolute().parent}; create it, or name another file")


@contextmanager
def _work_folder(out: Path) -> Iterator[Path]:
    """One process at a time; what a killed one left goes first."""
    folder = out.absolute().with_name(f".{out.name}.work")
    folder.mkdir(exist_ok=True)
    with writer_lock(folder):
        try:
            for leftover in (*folder.glob("content-*"), *folder.parent.glob(f".{out.name}.*.tmp")):
                delete_folder(leftover) if leftover.is_dir() else leftover.unlink()
            # A name of its own: the pip of a killed run may still write into the former one.
            yield Path(tempfile.mkdtemp(prefix="content-", dir=folder))
        finally:
            delete_folder(folder)
