"""Files that cannot be used: each a clear error, none read in part."""

import gzip
import io
import zipfile
from pathlib import Path

import pytest

from dmnrag.data import ColumnMapping, ReadOptions, read_documents
from dmnrag.data.formats import compressed
from dmnrag.errors import DataError

QA = ColumnMapping(("q",), ("a",))


def refused(path: Path, content: bytes, match: str, **options: str) -> None:
    path.write_bytes(content)
    with pytest.raises(DataError, match=match):
        read_documents([path], QA, options=ReadOptions(**options))


@pytest.mark.parametrize("content", [b"", b" \n\n", b"\xef\xbb\xbf\n"])
def test_empty_file(tmp_path: Path, content: bytes) -> None:
    refused(tmp_path / "f.csv", content, "is empty")


@pytest.mark.parametrize(("name", "content"), [("f.csv", b"q,a\n"), ("f.csv", b"\nq,a\n\n")])
def test_header_only(tmp_path: Path, name: str, content: bytes) -> None:
    refused(tmp_path / name, content, r"has a header \(q, a\) but no rows")


def test_empty_json_array(tmp_path: Path) -> None:
    refused(tmp_path / "f.json", b"[]", "holds no records")


def test_no_row_gives_a_document(tmp_path: Path) -> None:
    refused(tmp_path / "f.csv", b"q,a\n,x\ny,\n", "no row gave a document.*no question.*no answer")


def test_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "medical.csv").write_text("q,a\nx,y\n")
    with pytest.raises(DataError, match=r"does not exist; did you mean 'medical\.csv'\?"):
        read_documents([tmp_path / "medcal.csv"], QA)


def test_lock_file_same_file_twice_and_empty_folder(tmp_path: Path) -> None:
    lock, good, folder = tmp_path / "~$f.xlsx", tmp_path / "f.csv", tmp_path / "d"
    lock.write_bytes(b"x")
    good.write_text("q,a\nx,y\n")
    folder.mkdir()
    for paths, match in (
        ([lock], "lock file"),
        ([good, good], "more than once"),
        ([folder], "holds no file"),
        ([], "no file"),
    ):
        with pytest.raises(DataError, match=match):
            read_documents(paths, QA)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("f.pdf", b"%PDF-1.7 ...", "is a PDF"),
        ("f.csv", b"\x89PNG\r\n\x1a\n", "picture"),
        ("f.csv", bytes(range(1, 32)) * 20, "is not text"),
        ("f.csv", b"q,a\n\xff\xfe\xff,b\n", "byte 4"),
        ("f.parquet", b"PAR1" + b"\0" * 50, "damaged Parquet"),
        ("f.xlsx", b"PK\x03\x04" + b"\0" * 50, "damaged workbook or zip"),
        ("f.xls", b"\xd0\xcf\x11\xe0" + b"\0" * 600, "not a workbook that can be read"),
        ("f.csv.gz", gzip.compress(b"q,a\nx,y\n" * 50)[:-20], "damaged gzip"),
        ("f.json", b'[{"q": "x", "a": "y"}, {"q": "z', "cut short"),
        ("f.json", b'[{"q": "x" "a": "y"}]', "line 1, column 12: not JSON"),
        ("f.json", b'"text"', "no column 'q'"),
        ("f.json", b'{"a": [{"q": 1}], "b": [{"q": 1}]}', "several keys"),
        ("f.json", b"[" * 200_000, "nested too deeply"),
        ("f.jsonl", b'{"q": "x", "a": "y"}\n{"q": "z', "line 2: not JSON"),
        ("f.csv", b'q,a\nx,y\n"z,w\nv,u\n', "row 3: a quote is opened in this row and never closed"),
        ("f.csv", b'q,a\n"x"x,y\n', "row 2: a closing quote is followed by more text"),
    ],
)
def test_damaged_or_foreign_file(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    refused(tmp_path / name, content, match)


def test_zip_without_a_workbook(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.csv", "q,a\nx,y\n")
    refused(tmp_path / "f.zip", out.getvalue(), "not a workbook that can be read")


def test_gzip_bomb_is_stopped_while_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "_ALWAYS_ALLOWED", 1 << 20)
    # 10 MB of one character pack to about 10 kB: a ratio of 1,000, allowed are 100.
    refused(tmp_path / "f.csv.gz", gzip.compress(b"a" * 10_000_000), "zip bomb")


def test_workbook_bomb_is_stopped_before_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "_ALWAYS_ALLOWED", 1 << 20)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b"a" * 10_000_000)
    refused(tmp_path / "f.xlsx", out.getvalue(), "would unpack to 10,000,000 bytes")


def test_wrong_sheet_lists_the_sheets(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["q", "a"])
    book.save(tmp_path / "f.xlsx")
    with pytest.raises(DataError, match="no sheet '问答'; its sheets are: Sheet"):
        read_documents([tmp_path / "f.xlsx"], QA, options=ReadOptions(sheet="问答"))


@pytest.mark.parametrize("name", ["f.json", "f.jsonl"])
def test_a_number_of_thousands_of_digits_is_named(tmp_path: Path, name: str) -> None:
    row = b'{"q": "a", "a": ' + b"9" * 5000 + b"}"
    content = b"[" + row + b"]" if name == "f.json" else row + b"\n" + row
    refused(tmp_path / name, content, rf"{name}.*JSON that cannot be read")


def test_many_nul_bytes_in_utf8_are_named_as_what_they_are(tmp_path: Path) -> None:
    content = ("q,a\n" + "高血压\0\0能喝酒吗\0,不\0\n" * 20).encode()
    refused(tmp_path / "f.csv", content, "80 of its first 284 characters are control characters")
