"""Lines and JSON objects of files that programs wrote: UTF-8, one record a line, strict; and writing them.

Knows nothing of what the records mean. Reading streams: a line is in memory, never the file.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from dmnrag._io import fault_point, fsync_path, rename
from dmnrag.errors import DataError

_BOM = b"\xef\xbb\xbf"
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank with their numbers from 1, without line ends. A BOM is passed over.

    Raises:
        DataError: the file cannot be read, or a line is not UTF-8; names the line and the byte.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                content = line.removeprefix(_BOM) if number == 1 else line
                text = _decode(content, f"{path}, line {number:,}").rstrip("\r\n")
                if text.strip():
                    yield number, text
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def whole_text(path: Path) -> str:
    """A file in one piece, without BOM.

    Raises:
        DataError: it cannot be read or is not UTF-8; names the byte.
    """
    try:
        content = path.read_bytes().removeprefix(_BOM)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return _decode(content, str(path))


def json_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON-lines file, each with where it stands ("FILE, line 3").

    Raises:
        DataError: as `numbered_lines`, or a line is not a JSON object.
    """
    for number, line in numbered_lines(path):
        where = f"{path}, line {number:,}"
        row = parse_json(line, where)
        if not isinstance(row, dict):
            raise DataError(f"{where}: a JSON object is needed, found {type(row).__name__}")
        yield where, row


def parse_json(text: str, where: str) -> Any:
    """One JSON value whose texts can all be written as UTF-8 again.

    Raises:
        DataError: not JSON, nested too deeply, or a text with half a surrogate pair.
    """
    try:
        value = json.loads(text)
        surrogates = json.dumps(value, ensure_ascii=False) if _SURROGATE_ESCAPE.search(text) else ""
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON ({error.msg}, line {error.lineno} column {error.colno})") from error
    except RecursionError as error:
        raise DataError(f"{where}: JSON nested too deeply to be read") from error
    except ValueError as error:  # a whole number of more digits than Python converts
        raise DataError(f"{where}: not usable JSON ({error})") from error
    if surrogates:
        refuse_surrogates(surrogates, where)
    return value


def refuse_surrogates(text: str, where: str) -> None:
    """Raise `DataError` where a text cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: holds half a surrogate pair ({error.object[error.start]!r}), which is no character;"
            " remove it or replace it by U+FFFD"
        ) from error


def text_at(row: Mapping[str, Any], key: str, where: str, *, empty: bool = False) -> str:
    """The text under a key; with `empty` it may be empty.

    Raises:
        DataError: no such key, no text, or an empty one.
    """
    if key not in row:
        raise DataError(f"{where}: no {key!r}; its keys are {', '.join(map(repr, row)) or 'none'}")
    value = row[key]
    if not isinstance(value, str):
        raise DataError(f"{where}: {key!r} is {_shown(value)}; a text is needed")
    if not empty and not value.strip():
        raise DataError(f"{where}: {key!r} is empty; a text is needed")
    return value


def id_at(row: Mapping[str, Any], key: str, where: str) -> str:
    """The id under a key: a text, or a whole number as text.

    Raises:
        DataError: no such key, or neither.
    """
    if isinstance(row.get(key), int) and not isinstance(row[key], bool):
        return str(row[key])
    return text_at(row, key, where)


def texts_at(row: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    """The list of texts under a key; it may be empty.

    Raises:
        DataError: no such key, no list (one text is none), or something else than texts in it.
    """
    if key not in row:
        raise DataError(f"{where}: no {key!r}; its keys are {', '.join(map(repr, row)) or 'none'}")
    value = row[key]
    if not isinstance(value, list):
        raise DataError(f"{where}: {key!r} is {_shown(value)}; a list of texts is needed")
    odd = next((item for item in value if not isinstance(item, str)), None)
    if odd is not None or None in value:
        raise DataError(f"{where}: {key!r} holds {_shown(odd)}; a list of texts is needed")
    return tuple(value)


@contextmanager
def written_atomically(path: Path) -> Iterator[TextIO]:
    """A text file (UTF-8, LF) that takes the place of `path` when the block ends without an error.

    A link is followed, so that it stays one. A device or pipe cannot be replaced and is written to.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fault_point("write", path)
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        fsync_path(temporary)
        rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def json_line(row: Mapping[str, Any], where: str) -> str:
    """One object as a line.

    Raises:
        DataError: a number that is not finite, a text that is not UTF-8, or a value that JSON does not have.
    """
    try:
        line = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} cannot be written as JSON: {error}") from error
    refuse_surrogates(line, where)
    return line + "\n"


def _decode(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: byte 0x{content[error.start]:02x} at position {error.start} there is not UTF-8;"
            " this format is always UTF-8: convert the file"
        ) from error


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
