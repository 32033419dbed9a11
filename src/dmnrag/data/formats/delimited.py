"""Text tables: CSV, TSV and other delimiters, parsed by the standard library's csv module.

Quoted cells may hold line breaks and be of any length. A quote that is never closed is an error, because
everything after it would silently become one cell. A row with more cells than the header is handed on as
malformed: usually a delimiter in a cell that should have been quoted.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from dmnrag.data.options import ReadOptions
from dmnrag.data.tables import Malformed, NumberedRow, Source, Table, named_columns
from dmnrag.errors import DataError

_DELIMITERS = ",\t;|"
_SAMPLE_ROWS = 200
_SAMPLE_CHARACTERS = 1 << 18
_LONGEST_CELL = 1 << 30  # the csv module's own limit of 128 KiB is below what people have


def read_delimited(source: Source, options: ReadOptions) -> Table:
    """Table whose first non-empty row is the header.

    Raises:
        DataError: not decodable, no header, an unclosed or stray quote.
    """
    text, facts = source.text, {"encoding": source.encoding}
    delimiter = options.delimiter or find_delimiter(text)
    quoting = _quoting(text, delimiter)
    numbered = _parse(text, delimiter, quoting, source.name)
    header_number, header = next(((n, cells) for n, cells in numbered if any(c.strip() for c in cells)), (0, []))
    if not header:
        raise DataError(f"{source.name} is empty: a header row and at least one row below it are needed")
    columns, repeated = named_columns(header)
    facts |= {"delimiter": delimiter, "quoting": "none" if quoting == csv.QUOTE_NONE else "double quotes"}
    if header_number != 1:
        facts["header_row"] = str(header_number)
    return Table("delimited text", columns, _as_rows(numbered, columns), facts, repeated)


def find_delimiter(text: str) -> str:
    """The candidate that parts most rows into the header's number of cells; a comma where there is none."""
    best, best_score = ",", 0.0
    for delimiter in _DELIMITERS:
        try:
            rows = list(islice(_reader(text[:_SAMPLE_CHARACTERS], delimiter, csv.QUOTE_MINIMAL), _SAMPLE_ROWS + 1))
        except csv.Error:
            continue
        widths = [len(cells) for cells in rows if cells]
        if len(widths) > 2:
            del widths[-1]  # the sample may end within it
        if not widths or widths[0] < 2:
            continue
        agreeing = Counter(widths)[widths[0]] / len(widths)
        score = agreeing + widths[0] / 1000  # among equals the one that finds more columns
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _reader(text: str, delimiter: str, quoting: int, *, strict: bool = False) -> Iterator[list[str]]:
    # The limit belongs to the whole module; raising it once is safe, restoring it would race other readers.
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
    lines = io.StringIO(text, newline="")
    if quoting == csv.QUOTE_NONE:
        return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=strict)
    return csv.reader(lines, delimiter=delimiter, strict=strict)


def _quoting(text: str, delimiter: str) -> int:
    """Tab-separated files are often written without quoting, so that a quote is just a character."""
    if delimiter != "\t" or '"' not in text:
        return csv.QUOTE_MINIMAL
    try:
        for _ in _reader(text, delimiter, csv.QUOTE_MINIMAL, strict=True):
            pass
    except csv.Error:
        widths = {len(cells) for cells in _reader(text, delimiter, csv.QUOTE_NONE) if cells}
        return csv.QUOTE_NONE if len(widths) == 1 else csv.QUOTE_MINIMAL
    return csv.QUOTE_MINIMAL


def _parse(text: str, delimiter: str, quoting: int, name: str) -> Iterator[tuple[int, list[str]]]:
    """Row number (blank rows count, as in a spreadsheet program) and cells."""
    rows = _reader(text, delimiter, quoting, strict=quoting != csv.QUOTE_NONE)
    number = 0
    while True:
        number += 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(_broken(name, number, str(error))) from error
        if cells:
            yield number, cells


def _broken(name: str, number: int, reason: str) -> str:
    if "unexpected end" in reason:
        what = "a quote is opened in this row and never closed, so that the rest of the file would be one cell"
    elif "expected after" in reason:
        what = "a closing quote is followed by more text; quotes within a quoted cell must be doubled"
    else:
        what = reason
    return f"{name}, row {number:,}: {what}. Repair the quote in this row"


def _as_rows(numbered: Iterator[tuple[int, list[str]]], columns: tuple[str, ...]) -> Iterator[NumberedRow]:
    width = len(columns)
    for number, cells in numbered:
        if len(cells) > width and any(c.strip() for c in cells[width:]):
            yield number, Malformed("more cells than the header has columns")
        else:
            yield number, dict(zip(columns, cells, strict=False))
