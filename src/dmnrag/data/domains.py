"""Domain labels from cells: several in one cell, a list, or several columns, general to specific."""

from collections.abc import Sequence
from typing import Any

from dmnrag.data.cells import CellReader, unique
from dmnrag.types import Domain

_BRACKETS = dict(zip("(（[【〔<《「", ")）]】〕>》」", strict=True))


def split_labels(cell: str, separators: str) -> list[str]:
    """Labels of one cell, in order, without empty ones.

    A separator inside brackets parts nothing (`物权（含房产、土地）` is one label); brackets that are never
    closed are ordinary characters. A separator is never taken as a bracket.
    """
    opening = {b for b in _BRACKETS if b not in separators and _BRACKETS[b] not in separators}
    labels, start, position = [], 0, 0
    while position < len(cell):
        character = cell[position]
        if character in opening:
            position = max(position, cell.find(_BRACKETS[character], position))
        elif character in separators:
            labels.append(cell[start:position])
            start = position + 1
        position += 1
    labels.append(cell[start:])
    return [label.strip() for label in labels if label.strip()]


def read_domain(cells: Sequence[Any], separators: str, reader: CellReader) -> Domain:
    """Labels of all domain cells of a row, without repetition. An item of a list is one label as it is."""
    labels: list[str] = []
    for cell in cells:
        if isinstance(cell, list | tuple):
            labels += reader.texts(cell)
        else:
            labels += split_labels(reader.text(cell), separators)
    return unique(labels)
