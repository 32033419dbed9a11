"""Bundles of a few kilobytes: a stand-in for dmnrag, the pip of this environment, an index that is a text file."""

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from dmnrag.bundle.archive import write_archive
from dmnrag.bundle.build import installer
from dmnrag.bundle.files import Content

PROGRAM = """
import os, sys
def run():
    print(sys.argv[1:], os.environ.get("DMNRAG_CACHE"), os.environ.get("HF_HUB_OFFLINE"))
"""
"""What the stand-in's command does."""


def make_wheel(folder: Path, name: str = "dmnrag", version: str = "1.0", extras: tuple[str, ...] = ("serve",)) -> Path:
    """A wheel with one module, and a command of its name."""
    path, about = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{name}.py": PROGRAM,
        f"{about}/METADATA": metadata + "".join(f"Provides-Extra: {extra}\n" for extra in extras),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {name}:run\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{about}/RECORD"))
    with ZipFile(path, "w") as wheel:
        for file, content in files.items():
            wheel.writestr(file, content)
    return path


def facts(**changes: Any) -> dict[str, Any]:
    """What the manifest of a bundle for this machine says."""
    return {
        "created": "2026-01-01T00:00:00+00:00",
        "version": "1.0",
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "system": platform.system(),
        "machine": platform.machine(),
        "glibc": None,
        "extras": ["serve"],
        "llm": "models/small:int8",
        "unpacked_bytes": 1000,
        **changes,
    }


def make_small_bundle(out: Path, files: Mapping[str, Content], **changes: Any) -> Path:
    """An archive as `make_bundle` writes it."""
    write_archive(out, files, facts(**changes), installer(facts(**changes)["python"], out.name), lambda *_: None)
    return out
