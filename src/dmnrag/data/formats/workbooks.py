"""Workbooks: XLSX, XLS, XLSB and ODS, parsed by python-calamine.

The library looks at the content, so an .xls that is named .xlsx reads as well. Numbers that are whole come as
whole numbers, dates as dates.
"""

import io
import zipfile
from collections.abc import Iterator
from typing import Any

from dmnrag.data.formats.compressed import allowed_size
from dmnrag.data.options import ReadOptions
from dmnrag.data.tables import Malformed, NumberedRow, Source, Table, named_columns
from dmnrag.errors import DataError


def read_workbook(source: Source, options: ReadOptions) -> Table:
    """One sheet, whose first non-empty row is the header. Row numbers are those of the sheet.

    Raises:
        DataError: not a workbook, damaged, protected by a password, no such sheet, or no cells.
    """
    from python_calamine import CalamineError, CalamineWorkbook, WorksheetNotFound

    _refuse_bomb(source)
    try:
        workbook = CalamineWorkbook.from_filelike(io.BytesIO(source.content))
        name = _choose_sheet(workbook, source.name, options.sheet)
        cells = workbook.get_sheet_by_name(name).to_python(skip_empty_area=False)
    except (CalamineError, WorksheetNotFound, OSError) as error:
        raise DataError(
            f"{source.name} is not a workbook that can be read ({error}); it may be damaged or protected by a"
            " password: open it, save it again without a password, or save it as CSV"
        ) from error
    numbered = ((n, row) for n, row in enumerate(cells, start=1) if any(str(c).strip() for c in row))
    header_number, header = next(numbered, (0, []))
    if not header:
        raise DataError(f"{source.name}, sheet {name!r} is empty: a header row and rows below it are needed")
    columns, repeated = named_columns([str(c) for c in header])
    facts = {"sheet": name, "header_row": str(header_number)}
    unread = [other for other in workbook.sheet_names if other != name]
    if unread:
        facts["sheets_not_read"] = ", ".join(unread)
    return Table("workbook", columns, _as_rows(numbered, columns), facts, repeated)


def _choose_sheet(workbook: Any, file_name: str, wanted: str | None) -> str:
    names: list[str] = workbook.sheet_names
    if wanted is not None:
        if wanted not in names:
            raise DataError(f"{file_name} has no sheet {wanted!r}; its sheets are: {', '.join(names)}")
        return wanted
    filled = (name for name in names if workbook.get_sheet_by_name(name).height)
    return next(filled, names[0] if names else "")


def _as_rows(numbered: Iterator[tuple[int, list[Any]]], columns: tuple[str, ...]) -> Iterator[NumberedRow]:
    width = len(columns)
    for number, cells in numbered:
        if any(str(c).strip() for c in cells[width:]):
            yield number, Malformed("more cells than the header has columns")
        else:
            yield number, {name: cell for name, cell in zip(columns, cells, strict=False) if cell != ""}


def _refuse_bomb(source: Source) -> None:
    """An XLSX is a zip; what it says it unpacks to is checked before anything is unpacked."""
    if not source.content.startswith(b"PK"):
        return
    try:
        with zipfile.ZipFile(io.BytesIO(source.content)) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DataError(f"{source.name} is a damaged workbook or zip file ({error}); fetch it again") from error
    limit = allowed_size(len(source.content))
    if unpacked > limit:
        raise DataError(
            f"{source.name} would unpack to {unpacked:,} bytes from {len(source.content):,}; up to {limit:,}"
            " are allowed. If it is no zip bomb, save its sheet as CSV"
        )
