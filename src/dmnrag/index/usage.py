"""How much disk an index takes: all of it, and what each generation holds that no other one does."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dmnrag.index import generations


@dataclass(frozen=True, slots=True)
class GenerationUsage:
    """Bytes of one generation."""

    generation: int
    bytes: int
    own_bytes: int
    """What deleting it would free: files that no other generation shares."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of an index folder; files that generations share count once."""

    bytes: int
    generations: list[GenerationUsage]
    """Oldest first."""


def disk_usage(index: Path) -> DiskUsage:
    """Look at every file. A generation that is pruned meanwhile counts as far as it was still there."""
    of_generation = {
        number: dict(_files(generations.generation_folder(index, number)))
        for number in generations.generation_numbers(index)
    }
    holders = Counter(inode for sizes in of_generation.values() for inode in sizes)
    return DiskUsage(
        sum(dict(_files(index)).values()),
        [
            GenerationUsage(
                number, sum(sizes.values()), sum(size for inode, size in sizes.items() if holders[inode] == 1)
            )
            for number, sizes in of_generation.items()
        ],
    )


def _files(folder: Path) -> Iterator[tuple[int, int]]:
    """Inode and size of each file."""
    for path in folder.rglob("*"):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if path.is_file():
            yield found.st_ino, found.st_size
