"""Which column means what."""

from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, process

from dmnrag.errors import ConfigError, DataError

_NEAR_ENOUGH = 50
"""Similarity (0 to 100) from which a column name is suggested."""
_LONG_FOR_A_NAME = 20
"""Characters; longer column names make the first row look like data."""


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """Names of the columns that hold each part of a document."""

    question: tuple[str, ...]
    """Joined by a space; a part that only repeats the others is left out."""
    answer: tuple[str, ...]
    """Each gives one answer, or several where a cell holds a list."""
    domain: tuple[str, ...] = ()
    """General to specific; a cell may hold several labels."""
    doc_id: str | None = None
    """None numbers the rows (`dmnrag.data.read`)."""
    metadata: tuple[str, ...] = ()
    """Kept and shown with a hit, never searched."""

    def __post_init__(self) -> None:
        for part, names in (("question", self.question), ("answer", self.answer)):
            if not names:
                raise ConfigError(f"no {part} column is named: at least one is needed")

    def names(self) -> tuple[str, ...]:
        """Every column named, in order, without repetition."""
        own_id = () if self.doc_id is None else (self.doc_id,)
        return tuple(dict.fromkeys((*self.question, *self.answer, *self.domain, *own_id, *self.metadata)))

    def check(self, columns: Sequence[str], repeated: frozenset[str], source: str) -> None:
        """Refuse a file that lacks a named column or has it twice.

        Raises:
            DataError: lists the columns and suggests the nearest one.
        """
        for name in self.names():
            if name not in columns:
                raise DataError(missing_column(name, columns, source))
            if name in repeated:
                raise DataError(f"{source} has several columns named {name!r}; rename all but one")


def missing_column(name: str, columns: Sequence[str], source: str) -> str:
    """Message that a column is not there: suggests the nearest and lists all."""
    near = process.extractOne(name.casefold(), [c.casefold() for c in columns], scorer=fuzz.ratio)
    suggestion = f" Did you mean {columns[near[2]]!r}?" if near and near[1] >= _NEAR_ENOUGH else ""
    shown = ", ".join(repr(c if len(c) <= 40 else c[:40] + "…") for c in columns[:50])
    more = f" and {len(columns) - 50} more" if len(columns) > 50 else ""
    headless = ""
    if not suggestion and any(len(c) > _LONG_FOR_A_NAME for c in columns):
        headless = " The first row looks like data: a table needs a header row with column names."
    return f"{source} has no column {name!r}.{suggestion} Its columns are: {shown}{more}.{headless}"
