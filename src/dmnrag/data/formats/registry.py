"""Which reader reads a file: first by its content, then by its name.

To add a format: write a module beside this one with a function `(Source, ReadOptions) -> Table`, and name it
in `_BINARY` (formats that begin with fixed bytes) or in `_text_reader`, with its endings in `SUFFIXES`.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dmnrag.data.encoding import decode
from dmnrag.data.formats import compressed
from dmnrag.data.formats.delimited import read_delimited
from dmnrag.data.formats.json_records import looks_like_lines, read_json, read_jsonl
from dmnrag.data.formats.parquet import read_parquet
from dmnrag.data.formats.workbooks import read_workbook
from dmnrag.data.options import ReadOptions
from dmnrag.data.tables import Source, Table
from dmnrag.errors import DataError

Reader = Callable[[Source, ReadOptions], Table]

SUFFIXES = frozenset(
    {
        ".csv",
        ".tsv",
        ".tab",
        ".txt",
        ".json",
        ".jsonl",
        ".ndjson",
        ".xlsx",
        ".xlsm",
        ".xlsb",
        ".xls",
        ".ods",
        ".parquet",
    }
)
"""Endings by which files in a folder are taken, also with `.gz`. A file that is named may end in anything."""

_BINARY: tuple[tuple[bytes, Reader], ...] = (
    (b"PAR1", read_parquet),
    (b"PK\x03\x04", read_workbook),  # XLSX, XLSB, ODS
    (b"\xd0\xcf\x11\xe0", read_workbook),  # XLS
)
_REFUSED = (
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"GIF8", "a picture (GIF)"),
    (b"SQLite format 3", "an SQLite database"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\x7fELF", "a program"),
)
_LINES = (".jsonl", ".ndjson")
_TABLES = (".csv", ".tsv", ".tab")
_CONTROL_SHARE = 0.02
"""Text with a larger share of control characters is no text (real files: below one in 10,000)."""
_SHORTEST_JUDGED = 200
"""A file of a line or two may hold up to four of them."""


def open_table(path: Path, options: ReadOptions) -> Table:
    """Columns, rows and facts of a file of any known format.

    Raises:
        DataError: empty, of an unknown or refused kind, damaged, or not readable.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    suffixes = tuple(reversed([s.lower() for s in path.suffixes]))
    packed = content.startswith(compressed.MAGIC)
    if packed:
        content = compressed.unpack(content, str(path))
        suffixes = tuple(s for s in suffixes if s != ".gz")
    if not content.strip():
        raise DataError(f"{path} is empty")
    table = _read(Source(path, content, suffixes), options)
    if packed:
        table.facts["compression"] = "gzip"
    return table


def _read(source: Source, options: ReadOptions) -> Table:
    for magic, kind in _REFUSED:
        if source.content.startswith(magic):
            raise DataError(f"{source.name} is {kind}, which is not read; save its rows as CSV, JSONL or XLSX")
    for magic, reader in _BINARY:
        if source.content.startswith(magic):
            return reader(source, options)
    decoded = decode(source.content, source.name, options.encoding)
    source = replace(source, content=b"", text=decoded.text, encoding=decoded.encoding)
    _refuse_binary(source)
    return _text_reader(source)(source, options)


def _refuse_binary(source: Source) -> None:
    head = source.text[:4096]
    odd = sum(c < " " and c not in "\t\n\r" for c in head)
    if odd > _CONTROL_SHARE * max(len(head), _SHORTEST_JUDGED):
        raise DataError(
            f"{source.name} is not text: {odd} of its first {len(head):,} characters are control characters."
            " Give a CSV, TSV, JSON, JSONL, XLSX, XLS or Parquet file"
        )


def _text_reader(source: Source) -> Reader:
    suffix = source.suffixes[0] if source.suffixes else ""
    if suffix in _LINES:
        return read_jsonl
    if not source.text.lstrip().startswith(("{", "[")):
        return read_delimited
    if looks_like_lines(source.text):
        return read_jsonl
    return read_delimited if suffix in _TABLES else read_json
