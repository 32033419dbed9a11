"""What every format reader hands on: named columns and rows of raw cells.

A cell is what the library gave: text, number, date, None, or in JSON and Parquet a list or an object.
Turning cells into text is the work of `dmnrag.data.cells`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Malformed:
    """A row that cannot be used, and why; it is dropped and listed in the report."""

    reason: str


NumberedRow = tuple[int, Row | Malformed]
"""The number is what a spreadsheet program or an editor shows: in tables the header is row 1, in JSON lines
it is the line; items of a JSON array and Parquet rows count from 1."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file in memory, unpacked where the file on disk was compressed."""

    path: Path
    content: bytes
    """Of binary formats; empty once the file is known to be text."""
    suffixes: tuple[str, ...]
    """Lower-case endings of the name without `.gz`, last first: what the name says the file is."""
    text: str = ""
    """Of text formats."""
    encoding: str = ""
    """The encoding that `text` was in."""

    @property
    def name(self) -> str:
        """The path as the user gave it, for messages."""
        return str(self.path)


@dataclass(slots=True)
class Table:
    """Rows of one file with what was found out on the way."""

    format: str
    columns: tuple[str, ...]
    rows: Iterator[NumberedRow]
    facts: dict[str, str] = field(default_factory=dict)
    """Encoding, delimiter, sheet and the like, for the report."""
    repeated: frozenset[str] = frozenset()
    """Column names that stand more than once in the header: a mapping that names one is ambiguous."""


def named_columns(header: list[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Unique column names for a header, and those that were repeated.

    A nameless column is called by its position (`column 3`), a repeated one gets a number (`answer (2)`).
    """
    names: list[str] = []
    repeated = set()
    for position, cell in enumerate(header, start=1):
        name = cell.strip() or f"column {position}"
        if name in names:
            repeated.add(name)
            name = next(f"{name} ({n})" for n in range(2, position + 2) if f"{name} ({n})" not in names)
        names.append(name)
    return tuple(names), frozenset(repeated)
