"""Query files: JSON lines of `{"query_id", "text", "domain"}`, strict, with line numbers in every error."""

from pathlib import Path
from typing import Any

from rapidfuzz import process

from dmnrag.data.cells import CellReader
from dmnrag.data.formats import open_table
from dmnrag.data.options import ReadOptions
from dmnrag.data.tables import Malformed, Row
from dmnrag.errors import DataError
from dmnrag.types import Domain, Query

_KEYS = ("query_id", "text", "domain")
_FORMAT = 'each line is {"query_id": "..", "text": "..", "domain": [..]}, domain may be left out'


def read_queries(path: Path, *, encoding: str | None = None) -> list[Query]:
    """The queries of a file, in order.

    `query_id` may be a whole number; `domain` is a list of labels, one label, or left out.

    Raises:
        DataError: a key missing or unknown, an empty text, an id twice, or no query; names the line.
    """
    table = open_table(path, ReadOptions(encoding=encoding))
    if not table.format.startswith("JSON"):
        raise DataError(f"{path} is {table.format}; a query file holds JSON lines: {_FORMAT}")
    queries: dict[str, Query] = {}
    lines: dict[str, int] = {}
    for number, row in table.rows:
        where = f"{path}, {'line' if table.format == 'JSON lines' else 'record'} {number:,}"
        query = _query(row, where)
        if query.query_id in queries:
            raise DataError(f"{where}: query_id {query.query_id!r} stands in {lines[query.query_id]:,} already")
        queries[query.query_id] = query
        lines[query.query_id] = number
    if not queries:
        raise DataError(f"{path} holds no query; {_FORMAT}")
    return list(queries.values())


def _query(row: Row | Malformed, where: str) -> Query:
    if isinstance(row, Malformed):
        raise DataError(f"{where}: {row.reason}; {_FORMAT}")
    unknown = [key for key in row if key not in _KEYS]
    if unknown:
        near = process.extractOne(unknown[0], _KEYS)
        raise DataError(f"{where}: unknown key {unknown[0]!r}; did you mean {near[0]!r}? {_FORMAT}")
    missing = [key for key in _KEYS[:2] if key not in row]
    if missing:
        raise DataError(f"{where}: no {' and no '.join(missing)}; {_FORMAT}")
    query_id = row["query_id"]
    if isinstance(query_id, bool) or not isinstance(query_id, str | int) or not str(query_id).strip():
        raise DataError(f"{where}: query_id is {query_id!r}; a text or a whole number is needed")
    text = row["text"]
    if not isinstance(text, str) or not (cleaned := CellReader().text(text)):
        raise DataError(f"{where}: text is {text!r}; a question is needed")
    return Query(str(query_id).strip(), cleaned, _domain(row.get("domain"), where))


def _domain(value: Any, where: str) -> Domain:
    if value is None or value == "":
        return ()
    labels = [value] if isinstance(value, str) else value
    if not isinstance(labels, list) or not all(isinstance(x, str) and x.strip() for x in labels):
        raise DataError(f"{where}: domain is {value!r}; a label or a list of labels is needed")
    return tuple(dict.fromkeys(x.strip() for x in labels))
