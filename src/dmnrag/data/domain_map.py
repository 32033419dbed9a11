"""A user's mapping of labels: a file of two columns, `from` and `to`, in any format that tables come in.

`from` is one label, compared in its normal spelling. `to` is the label or the path of labels that takes its
place; an empty `to` drops the label. Every label is mapped once: with a to b and b to c, a becomes b.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dmnrag.data.cells import CellReader, unique
from dmnrag.data.columns import missing_column
from dmnrag.data.domains import split_labels
from dmnrag.data.formats import open_table
from dmnrag.data.labels import normalise_label
from dmnrag.data.options import DOMAIN_SEPARATORS, DomainMap, ReadOptions
from dmnrag.data.tables import Malformed, Table
from dmnrag.errors import DataError
from dmnrag.types import Domain

_FROM, _TO = "from", "to"


def read_domain_map(path: Path, separators: str = DOMAIN_SEPARATORS) -> DomainMap:
    """The mapping in a file: a table or JSON records with the columns `from` and `to`, or one JSON object.

    Args:
        path: CSV, TSV, JSON, a workbook ... (`dmnrag.data.formats`).
        separators: what parts the labels of a path in `to`, as in the data.

    Raises:
        DataError: no such columns, a row without `from`, a label mapped in two ways, no row; names the row.
    """
    if not path.is_file():
        raise DataError(f"the domain map {path} is not a file; give a table with the columns 'from' and 'to'")
    mapping: dict[str, Domain] = {}
    rows: dict[str, int] = {}
    for number, source, target in _entries(open_table(path, ReadOptions()), path):
        where = f"{path}, row {number:,}"
        label, domain = _label(source, where), _domain(target, separators, where)
        if not label:
            if domain:
                raise DataError(f"{where}: 'to' is {','.join(domain)!r} and 'from' is empty; name the label to map")
            continue
        if mapping.setdefault(label, domain) != domain:
            raise DataError(
                f"{where}: {label!r} becomes {_shown(domain)} here and {_shown(mapping[label])} in row"
                f" {rows[label]:,}; keep one of them"
            )
        rows.setdefault(label, number)
    if not mapping:
        raise DataError(f"the domain map {path} maps no label: rows of 'from' and 'to' are needed")
    return mapping


def _entries(table: Table, path: Path) -> Iterator[tuple[int, Any, Any]]:
    """Row number, `from` and `to`."""
    rows = list(table.rows)
    as_object = table.format == "JSON" and len(rows) == 1 and not {_FROM, _TO} & set(table.columns)
    for name in (_FROM, _TO):
        if name not in table.columns and not as_object:
            raise DataError(missing_column(name, table.columns, f"the domain map {path}"))
    for number, row in rows:
        if isinstance(row, Malformed):
            raise DataError(
                f"{path}, row {number:,}: {row.reason}; each row is 'from' and 'to', with quotes round a path"
            )
        if as_object:
            yield from ((position, *item) for position, item in enumerate(row.items(), start=1))
        else:
            yield number, row.get(_FROM), row.get(_TO)


def _label(cell: Any, where: str) -> str:
    try:
        return normalise_label(CellReader().text(cell))
    except DataError as error:
        raise DataError(f"{where}, 'from': {error}") from error


def _domain(cell: Any, separators: str, where: str) -> Domain:
    reader = CellReader()
    try:
        labels = reader.texts(cell) if isinstance(cell, list) else split_labels(reader.text(cell), separators)
    except DataError as error:
        raise DataError(f"{where}, 'to': {error}") from error
    return unique(map(normalise_label, labels))


def _shown(domain: Domain) -> str:
    return repr(",".join(domain)) if domain else "nothing"
