"""Any table that a library writes reads back equal, in every format and encoding."""

import csv
import datetime
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dmnrag.data import ColumnMapping, read_documents
from dmnrag.data.formats import open_table
from dmnrag.data.formats.delimited import find_delimiter
from dmnrag.data.options import ReadOptions
from dmnrag.data.tables import Malformed, Table
from dmnrag.errors import ConfigError

FEW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

# Cells of any printable text with quotes, delimiters and line breaks, none of them blank.
SHAPES = st.characters(exclude_categories=["C"], include_characters="\n\t\"',;|", exclude_characters="\ufeff")
CELL = st.text(SHAPES, min_size=1, max_size=12).map(lambda s: "字" + s)
TABLES = st.integers(2, 4).flatmap(
    lambda n: st.tuples(
        st.lists(CELL.map(str.strip), min_size=n, max_size=n, unique=True),
        st.lists(st.lists(CELL, min_size=n, max_size=n), min_size=1, max_size=5),
    )
)


def rows_of(table: Table) -> list[dict[str, Any]]:
    rows = []
    for _, row in table.rows:
        assert not isinstance(row, Malformed)
        rows.append(dict(row))
    return rows


def opened(path: Path, content: bytes, **options: Any) -> Table:
    path.write_bytes(content)
    return open_table(path, ReadOptions(**options))


def as_csv(header: list[str], rows: list[list[str]], **dialect: Any) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, **dialect).writerows([header, *rows])
    return out.getvalue()


def as_xlsx(header: list[str], rows: list[list[Any]]) -> bytes:
    openpyxl = pytest.importorskip("openpyxl")
    book, out = openpyxl.Workbook(), io.BytesIO()
    for row in [header, *rows]:
        book.active.append(row)
        for cell in book.active[book.active.max_row]:
            cell.data_type = "s" if isinstance(cell.value, str) else cell.data_type  # "=1+1" is text here
    book.save(out)
    return out.getvalue()


def as_xls(header: list[str], rows: list[list[Any]]) -> bytes:
    xlwt = pytest.importorskip("xlwt")
    book, out = xlwt.Workbook(encoding="utf-8"), io.BytesIO()
    sheet = book.add_sheet("表")
    for i, row in enumerate([header, *rows]):
        for j, cell in enumerate(row):
            sheet.write(i, j, cell)
    book.save(out)
    return out.getvalue()


def as_parquet(header: list[str], rows: list[list[Any]]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    out = io.BytesIO()
    parquet.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(header)}), out)
    return out.getvalue()


def records(header: list[str], rows: list[list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(header, row, strict=True)) for row in rows]


def as_json(header: list[str], rows: list[list[Any]]) -> bytes:
    return json.dumps(records(header, rows), ensure_ascii=False, indent=1).encode()


def as_jsonl(header: list[str], rows: list[list[Any]]) -> bytes:
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records(header, rows)).encode()


@given(
    TABLES,
    st.sampled_from(["utf-8", "utf-8-sig", "gb18030", "utf-16"]),
    st.sampled_from(",\t;|"),
    st.booleans(),
)
@FEW
def test_text_table_reads_back_equal_when_encoding_and_delimiter_are_given(
    tmp_path: Path, table: tuple[list[str], list[list[str]]], encoding: str, delimiter: str, zipped: bool
) -> None:
    header, rows = table
    content = as_csv(header, rows, delimiter=delimiter).encode(encoding)
    content = gzip.compress(content) if zipped else content
    found = opened(tmp_path / "t.csv", content, encoding=encoding, delimiter=delimiter)
    assert (found.columns, rows_of(found)) == (tuple(header), records(header, rows))


COMMON = st.text(st.sampled_from('高血压患者能吃党参吗的是不了在有人我，。？\n"'), min_size=4, max_size=20)


@given(
    st.lists(st.tuples(COMMON, COMMON), min_size=1, max_size=6),
    st.sampled_from(["utf-8", "utf-8-sig", "gb18030", "utf-16", "utf-16-le"]),
    st.sampled_from(",\t;|"),
)
@FEW
def test_text_table_reads_back_equal_when_nothing_is_given(
    tmp_path: Path, rows: list[tuple[str, str]], encoding: str, delimiter: str
) -> None:
    header, cells = ["question", "answer"], [list(r) for r in rows]
    found = opened(tmp_path / "t.csv", as_csv(header, cells, delimiter=delimiter).encode(encoding))
    assert rows_of(found) == records(header, cells)
    assert found.facts["delimiter"] == delimiter


@pytest.mark.parametrize(
    ("write", "suffix"),
    [(as_json, "json"), (as_jsonl, "jsonl"), (as_parquet, "parquet"), (as_xlsx, "xlsx"), (as_xls, "xls")],
)
@given(table=TABLES)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_table_of_other_formats_reads_back_equal(
    tmp_path: Path, write: Callable[..., bytes], suffix: str, table: tuple[list[str], list[list[str]]]
) -> None:
    header, rows = table
    found = opened(tmp_path / f"t.{suffix}", write(header, rows))
    assert (found.columns, rows_of(found)) == (tuple(header), records(header, rows))


@pytest.mark.parametrize(("write", "suffix"), [(as_json, "json"), (as_jsonl, "jsonl"), (as_parquet, "parquet")])
def test_gzip_of_other_formats_is_unpacked_and_named(tmp_path: Path, write: Callable[..., bytes], suffix: str) -> None:
    found = opened(tmp_path / f"t.{suffix}.gz", gzip.compress(write(["q", "a"], [["x", "y"]])))
    assert rows_of(found) == [{"q": "x", "a": "y"}]
    assert found.facts["compression"] == "gzip"


def test_workbook_numbers_and_dates_come_as_they_are_shown(tmp_path: Path) -> None:
    day = datetime.date(2024, 5, 1)
    found = opened(tmp_path / "t.xlsx", as_xlsx(["id", "a", "d"], [[7, 2.5, day]]))
    # The library gives numbers as floats; whole ones become whole texts with the cells.
    assert rows_of(found) == [{"id": 7.0, "a": 2.5, "d": day}]
    documents, _ = read_documents([tmp_path / "t.xlsx"], ColumnMapping(("id",), ("a",), metadata=("d",)))
    assert (documents[0].question, documents[0].answers) == ("7", ("2.5",))
    assert documents[0].metadata == {"d": "2024-05-01"}


def test_sheet_is_chosen_by_name_and_the_others_are_reported(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()  # the first sheet stays empty
    for name in ("甲", "乙"):
        sheet = book.create_sheet(name)
        sheet.append(["q"])
        sheet.append([name])
    book.save(tmp_path / "t.xlsx")
    first = open_table(tmp_path / "t.xlsx", ReadOptions())
    assert (rows_of(first), first.facts["sheets_not_read"]) == ([{"q": "甲"}], "Sheet, 乙")
    assert rows_of(open_table(tmp_path / "t.xlsx", ReadOptions(sheet="乙"))) == [{"q": "乙"}]


def test_row_numbers_are_those_an_editor_or_spreadsheet_shows(tmp_path: Path) -> None:
    # Row 1 header, row 2 with a line break in a cell, row 3 blank, row 4.
    found = opened(tmp_path / "t.csv", b'q,a\n"x\nx",y\n\nz,w\n')
    assert [n for n, _ in found.rows] == [2, 4]
    found = opened(tmp_path / "t.jsonl", b'{"q": 1}\n\n{"q": 2}\n')
    assert [n for n, _ in found.rows] == [1, 3]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"version": 1, "data": [{"q": "x"}, {"q": "y"}]}, [{"q": "x"}, {"q": "y"}]),
        ({"q": "x", "a": ["y", "z"]}, [{"q": "x", "a": ["y", "z"]}]),
        ({"n1": {"q": "x"}, "n2": {"q": "y"}}, [{"key": "n1", "q": "x"}, {"key": "n2", "q": "y"}]),
    ],
)
def test_json_records_are_found_under_a_key_or_alone(
    tmp_path: Path, document: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    assert rows_of(opened(tmp_path / "t.json", json.dumps(document).encode())) == expected


def test_content_decides_over_the_name(tmp_path: Path) -> None:
    assert opened(tmp_path / "a.csv", b'{"q": "x"}\n{"q": "y"}\n').format == "JSON lines"
    assert opened(tmp_path / "a.txt", b'[{"q": "x"}]').format == "JSON"
    assert opened(tmp_path / "a.json", b'{"q": "x"}\n{"q": "y"}\n').format == "JSON lines"
    assert opened(tmp_path / "a.json", b"q,a\nx,y\n").format == "delimited text"
    assert opened(tmp_path / "a.xls", as_xlsx(["q"], [["x"]])).format == "workbook"


def test_commas_in_the_text_do_not_hide_tabs() -> None:
    assert find_delimiter("question\tanswer\na, b, c\td, e\nf\tg, h\n") == "\t"
    assert find_delimiter("only\none\n") == ","


def test_unquoted_tab_separated_text_keeps_its_quotes(tmp_path: Path) -> None:
    found = opened(tmp_path / "t.tsv", '问题\t回答\n"重度"贫血怎么办\t输血\n"甲\t乙\n'.encode())
    assert rows_of(found) == [{"问题": '"重度"贫血怎么办', "回答": "输血"}, {"问题": '"甲', "回答": "乙"}]
    assert found.facts["quoting"] == "none"


def test_nameless_and_repeated_columns_get_names(tmp_path: Path) -> None:
    found = opened(tmp_path / "t.csv", b"q,,a,a\n1,2,3,4\n")
    assert found.columns == ("q", "column 2", "a", "a (2)")
    assert found.repeated == {"a"}


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n"])
def test_impossible_delimiter_is_refused(delimiter: str) -> None:
    with pytest.raises(ConfigError, match="delimiter"):
        ReadOptions(delimiter=delimiter)
