"""Writes the archive: a plain tar of regular files, its manifest with every checksum in front.

The file appears whole or not at all.
"""

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dmnrag._io import fault_point, fsync_path, rename
from dmnrag.bundle.files import Content
from dmnrag.errors import ConfigError

FORMAT = 1
"""Raised by every change that an older installer could not read; each archive carries its own installer."""

MANIFEST, INSTALLER = "manifest.json", "install.sh"

Progress = Callable[[str, int, int], None]
"""Told the stage, the megabytes done and all of them."""

_MB = 1_000_000


def write_archive(
    out: Path, files: Mapping[str, Content], facts: Mapping[str, Any], installer: bytes, on_progress: Progress
) -> str:
    """Write the archive beside its place and rename it; returns its sha256.

    Args:
        out: the archive.
        files: what it holds, by name.
        facts: what the manifest says beside names, sizes and checksums.
        installer: the program in front.
        on_progress: called after each file.

    Raises:
        ConfigError: the disk has no room for it.
        OSError: what the disk says; nothing is left then.
    """
    sizes = {name: len(c) if isinstance(c, bytes) else c.stat().st_size for name, c in files.items()}
    total, free = sum(sizes.values()), shutil.disk_usage(out.parent).free
    if total > free:
        raise ConfigError(
            f"the bundle takes {total / 1e9:.1f} GB and {out.absolute().parent} has {free / 1e9:.1f} GB free; "
            "name another place with --out"
        )
    done = 0
    parts: dict[str, dict[str, Any]] = {}
    for name, content in sorted(files.items()):
        parts[name] = {"bytes": sizes[name], "sha256": _sha256(content)}
        done += sizes[name]
        on_progress("checksums", done // _MB, total // _MB)
    manifest = json.dumps({"format": FORMAT, **facts, "files": parts}, ensure_ascii=False, indent=1).encode()
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        fault_point("write", out)
        with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, INSTALLER, installer)
            _add(tar, MANIFEST, manifest)
            done = 0
            for name, content in sorted(files.items()):
                _add(tar, name, content)
                done += sizes[name]
                on_progress("archive", done // _MB, total // _MB)
        digest = _sha256(temporary)
        fsync_path(temporary)
        rename(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)
    return digest


def _add(tar: tarfile.TarFile, name: str, content: Content) -> None:
    """Owner, rights and time say nothing of this machine."""
    entry = tarfile.TarInfo(name)
    entry.mode = 0o644
    if isinstance(content, bytes):
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
        return
    with content.open("rb") as stream:
        entry.size = os.fstat(stream.fileno()).st_size
        tar.addfile(entry, stream)


def _sha256(content: Content) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
