"""Which files a list of paths means: files as they are, folders with everything readable in them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dmnrag.data.formats import SUFFIXES
from dmnrag.errors import DataError

_LOCK_PREFIXES = ("~$", ".~lock.")
"""What office programs put beside a file that is open."""


@dataclass(slots=True)
class FileList:
    """Files to read, in order, and those of a folder that are passed over, with the reason."""

    files: list[Path] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def list_files(paths: Sequence[Path]) -> FileList:
    """The files to read. Folders are searched to any depth, in sorted order.

    Raises:
        DataError: no path, one that does not exist, a lock file, the same file twice, or a folder without any
            readable file.
    """
    found = FileList()
    for path in paths:
        if path.is_dir():
            _add_folder(path, found)
        elif not path.exists():
            raise DataError(f"{path} does not exist{_neighbours(path)}")
        elif path.name.startswith(_LOCK_PREFIXES):
            raise DataError(f"{path} is the lock file of an office program, without data; give the document itself")
        elif not path.is_file():
            raise DataError(f"{path} is neither a file nor a folder")
        else:
            found.files.append(path)
    if not found.files:
        raise DataError("no file was given to read")
    twice = [str(path) for path, n in Counter(path.resolve() for path in found.files).items() if n > 1]
    if twice:
        raise DataError(f"given more than once: {', '.join(twice)}")
    return found


def _add_folder(folder: Path, found: FileList) -> None:
    before = len(found.files)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        inside = path.relative_to(folder)
        if any(part.startswith(".") for part in inside.parts):
            found.skipped[str(path)] = "hidden"
        elif path.name.startswith(_LOCK_PREFIXES):
            found.skipped[str(path)] = "lock file"
        elif _ending(path) not in SUFFIXES:
            found.skipped[str(path)] = "not a known ending"
        else:
            found.files.append(path)
    if len(found.files) == before:
        raise DataError(f"the folder {folder} holds no file that can be read ({', '.join(sorted(SUFFIXES))}, also .gz)")


def _ending(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def _neighbours(path: Path) -> str:
    from rapidfuzz import process

    if not path.parent.is_dir():
        return f": there is no folder {path.parent}"
    near = process.extractOne(path.name, [p.name for p in path.parent.iterdir()], score_cutoff=70)
    return f"; did you mean {near[0]!r}?" if near else ""
