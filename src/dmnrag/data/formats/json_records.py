"""JSON lines and JSON: an array of objects, objects under a key, or one object.

Bare `NaN` is accepted, as Python writes it, and means an empty cell. Records of different shape may stand in
one file: the columns are all keys that occur, and a missing key is an empty cell.
"""

import io
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from dmnrag.data.options import ReadOptions
from dmnrag.data.tables import Malformed, NumberedRow, Source, Table
from dmnrag.errors import DataError

_NOT_AN_OBJECT = "not a JSON object"


def read_jsonl(source: Source, options: ReadOptions) -> Table:
    """One object a line; blank lines are passed over. Row numbers are line numbers.

    Raises:
        DataError: a line is not JSON; names the line.
    """
    text, facts = source.text, {"encoding": source.encoding}
    rows = list(_lines(text, source.name))
    return Table("JSON lines", _all_keys(rows), iter(rows), facts)


def read_json(source: Source, options: ReadOptions) -> Table:
    """The records of one JSON document. Row numbers count records from 1.

    Raises:
        DataError: not JSON (names line and column), or no records in it.
    """
    text, facts = source.text, {"encoding": source.encoding}
    try:
        # Control characters inside strings are let in here, and cleaned and counted with the cells.
        document = json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        whole = source.text.rstrip().endswith(("}", "]"))
        cut = "" if whole else "; the file does not end with a bracket: it may have been cut short"
        raise DataError(f"{source.name}, {where}: not JSON: {error.msg}{cut}") from error
    except RecursionError as error:
        raise DataError(f"{source.name}: JSON nested too deeply to be read; records are objects of texts") from error
    except ValueError as error:  # a number of thousands of digits
        raise DataError(f"{source.name}: JSON that cannot be read: {error}") from error
    records, key = _records(document, source.name)
    if key:
        facts["records_under"] = key
    rows: list[NumberedRow] = [(n, _row(value)) for n, value in enumerate(records, start=1)]
    return Table("JSON", _all_keys(rows), iter(rows), facts)


def looks_like_lines(text: str) -> bool:
    """Whether the first two non-blank lines are each a whole JSON value (then it is JSON lines)."""
    lines = list(islice((line for line in io.StringIO(text) if line.strip()), 2))
    try:
        values = [json.loads(line, strict=False) for line in lines]
    except (ValueError, RecursionError):
        return False
    return len(values) == 2 and all(isinstance(v, dict) for v in values)


def _lines(text: str, name: str) -> Iterator[NumberedRow]:
    for number, line in enumerate(io.StringIO(text), start=1):
        if not line.strip():
            continue
        try:
            yield number, _row(json.loads(line, strict=False))
        except json.JSONDecodeError as error:
            raise DataError(f"{name}, line {number:,}: not JSON ({error.msg} at column {error.colno})") from error
        except RecursionError as error:
            raise DataError(f"{name}, line {number:,}: JSON nested too deeply to be read") from error
        except ValueError as error:  # a number of thousands of digits
            raise DataError(f"{name}, line {number:,}: JSON that cannot be read: {error}") from error


def _row(value: Any) -> dict[str, Any] | Malformed:
    return value if isinstance(value, dict) else Malformed(_NOT_AN_OBJECT)


def _all_keys(rows: list[NumberedRow]) -> tuple[str, ...]:
    """Every key that occurs, in order of first appearance."""
    keys: dict[str, None] = {}
    for _, row in rows:
        if not isinstance(row, Malformed):
            keys.update(dict.fromkeys(row))
    return tuple(keys)


def _records(document: Any, name: str) -> tuple[list[Any], str]:
    """The list of records and the key under which it was found ("" where the document is the list)."""
    if isinstance(document, list):
        return document, ""
    if not isinstance(document, dict):
        raise DataError(f"{name}: a JSON array of objects is needed, found {type(document).__name__}")
    lists = [key for key, value in document.items() if isinstance(value, list) and _mostly_objects(value)]
    if len(lists) > 1:
        raise DataError(f"{name}: records stand under several keys ({', '.join(lists)}); make one file of each")
    if lists:
        return document[lists[0]], lists[0]
    values = list(document.values())
    if values and all(isinstance(v, dict) for v in values):
        return [{"key": key, **value} for key, value in document.items()], "each key"
    return [document], ""


def _mostly_objects(values: list[Any]) -> bool:
    return sum(isinstance(v, dict) for v in values) * 2 > len(values)
