"""Domain labels from cells: several in one cell, a list, or several columns, general to specific."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from dmnrag.data.cells import CellReader, unique
from dmnrag.data.labels import normalise_label
from dmnrag.data.options import ReadOptions
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


class DomainReader:
    """Domain cells to labels in normal spelling, mapped and ordered as the options say; counts what it did."""

    def __init__(self, options: ReadOptions, cells: CellReader) -> None:
        self.seen: Counter[str] = Counter()
        """Labels as the data has them, in normal spelling, before mapping."""
        self.normalised: Counter[tuple[str, str]] = Counter()
        """Spelling in the data and normal spelling, where they differ."""
        self._options = options
        self._cells = cells

    def labels(self, cell: Any) -> list[str]:
        """Labels of one cell as the data spells them. An item of a list is one label as it is.

        Raises:
            DataError: the cell holds an object, or a list in a list.
        """
        if isinstance(cell, list | tuple):
            return self._cells.texts(cell)
        return split_labels(self._cells.text(cell), self._options.domain_separators)

    def domain(self, labels: Iterable[str]) -> Domain:
        """The domain of a row with these labels, without repetition."""
        found = [(label, normal) for label in labels if (normal := normalise_label(label))]
        self.normalised.update(pair for pair in found if pair[0] != pair[1])
        self.seen.update(normal for _, normal in found)
        mapping = self._options.domain_map
        domain = unique(new for _, label in found for new in mapping.get(label, (label,)))
        return tuple(sorted(domain)) if self._options.domain_kind == "set" else domain
