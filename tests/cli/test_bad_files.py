"""Files as they should not be, through the command: a clear error in one line, or a report with nothing lost."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmnrag.data.formats import compressed
from dmnrag.index import Index

Run = Callable[..., Any]
GOOD = "q,a,d\n头痛怎么办,多休息,内科\n咳嗽怎么办,多喝水,呼吸科\n"


@pytest.fixture
def index(run_cli: Run, tmp_path: Path) -> Callable[..., Any]:
    """Indexes a file of columns q, a and d into tmp_path/out without vectors."""

    def _index(path: Path, *more: object, domain: bool = True) -> Any:
        columns = ["--question-column", "q", "--answer-column", "a", *(["--domain-column", "d"] if domain else [])]
        return run_cli("index", path, "--out", tmp_path / "out", "--encoder", "none", *columns, *more)

    return _index


def assert_refused(done: Any, out: Path, *said: str) -> None:
    """One line on stderr that says it all, exit code 1 and no trace of an index."""
    assert (done.code, done.out) == (1, "")
    lines = done.err.splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("error: ")
    assert "unexpected" not in lines[0]
    for part in said:
        assert part in lines[0]
    assert not out.exists()


def read_of(done: Any) -> dict[str, Any]:
    """The report of a run with --json."""
    assert done.code == 0, done.err
    read: dict[str, Any] = json.loads(done.out)["read"]
    return read


def documents_in(folder: Path, *doc_ids: str) -> list[Any]:
    with Index.open(folder, verify=True) as opened:
        return list(opened.documents(list(doc_ids)))


def xlsx_of(rows: list[list[object]]) -> bytes:
    openpyxl = pytest.importorskip("openpyxl")
    book, out = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(out)
    return out.getvalue()


def xls_of(rows: list[list[str]]) -> bytes:
    xlwt = pytest.importorskip("xlwt")
    book, out = xlwt.Workbook(), io.BytesIO()
    sheet = book.add_sheet("s")
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            sheet.write(i, j, cell)
    book.save(out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("f.csv", b"question,a,d\nx,y,z\n", ["no column 'q'", "'question', 'a', 'd'"]),
        ("f.csv", b"", ["is empty"]),
        ("f.jsonl", b"\n\n", ["is empty"]),
        ("f.csv", b"q,a,d\n", ["has a header (q, a, d) but no rows below it"]),
        ("f.json", b"[]", ["holds no records"]),
        ("~$f.xlsx", b"\x05user", ["lock file", "give the document itself"]),
        (".~lock.f.csv#", b",user,host,", ["lock file", "give the document itself"]),
        ("f.csv", b"\x7fELF\x02\x01\x01" + bytes(300), ["is a program", "CSV"]),
        ("f.txt", bytes(range(1, 32)) * 20, ["is not text", "control characters"]),
        ("f.xlsx", b"PK\x03\x04" + bytes(300), ["damaged workbook or zip"]),
        ("f.parquet", b"PAR1" + bytes(300), ["damaged Parquet"]),
        # The header has 6 bytes, the rows 23 and 25 in GB18030: the first bad byte is number 54.
        ("f.csv", GOOD.encode("gb18030") + b"\xff\xff,\xff\n", ["gb18030 (fails at byte 54: 0xff)", "--encoding"]),
        ("f.json", b'[{"q": "x", "a": [["y"]], "d": "z"}]', ["row 1, column 'a'", "inside the list"]),
        ("f.json", b'[{"q": {"t": "x"}, "a": "y", "d": "z"}]', ["row 1, column 'q'", "an object"]),
        ("f.json", b'[{"q": "x", "a": "y", "d": "z"}, {"q": "v', ["line 1, column", "cut short"]),
        ("f.jsonl", b'{"q": "x", "a": "y", "d": "z"}\n{"q": "v', ["line 2", "not JSON"]),
        ("f.csv", b'q,a,d\nx,y,z\n"u,v,w\nx,y,z\n', ["row 3", "a quote is opened in this row and never closed"]),
        ("f.csv", b"q,a,d\n,y,z\nx,,z\n", ["no row gave a document", "no question", "no answer"]),
    ],
)
def test_file_that_cannot_be_used(index: Run, tmp_path: Path, name: str, content: bytes, said: list[str]) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert_refused(index(path), tmp_path / "out", name, *said)


def test_wrong_column_suggests_the_nearest(run_cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("question,answer\nx,y\n")
    columns = ("--question-column", "quesion", "--answer-column", "answer")
    done = run_cli("index", path, "--out", tmp_path / "out", *columns, "--encoder", "none")
    assert_refused(done, tmp_path / "out", "no column 'quesion'. Did you mean 'question'?", "'question', 'answer'")


def test_directory_without_a_readable_file_and_file_that_is_not_there(index: Run, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "readme.md").write_text("x")
    assert_refused(index(folder), tmp_path / "out", "holds no file that can be read", ".csv")
    assert_refused(index(tmp_path / "none.csv"), tmp_path / "out", "does not exist")


def test_directory_is_read_whole_and_what_is_passed_over_is_said(index: Run, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "f.csv").write_text(GOOD, encoding="utf-8")
    (folder / "~$f.xlsx").write_bytes(b"x")
    done = index(folder)
    assert done.code == 0
    assert f"{folder / '~$f.xlsx'}: passed over, lock file" in done.err
    assert done.out == f"2 documents in {tmp_path / 'out'} (generation 1)\n"


def test_xls_named_xlsx_is_read(index: Run, tmp_path: Path) -> None:
    path = tmp_path / "f.xlsx"
    path.write_bytes(xls_of([line.split(",") for line in GOOD.splitlines()]))
    read = read_of(index(path, "--json"))
    assert (read["documents"], read["files"][0]["format"], read["files"][0]["sheet"]) == (2, "workbook", "s")


@pytest.mark.parametrize("name", ["f.csv.gz", "f.xlsx"])
def test_zip_bomb_is_stopped(index: Run, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Allowed are 256 MiB from any file; the test makes do with 1 MiB, and 10 MB of one letter, packed to 10 kB.
    monkeypatch.setattr(compressed, "_ALWAYS_ALLOWED", 1 << 20)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", b"a" * 10_000_000)
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"a" * 10_000_000) if name.endswith("gz") else bomb.getvalue())
    assert_refused(index(path), tmp_path / "out", "zip bomb")


def test_rows_without_question_or_answer_are_dropped_counted_and_listed(index: Run, tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text(GOOD + ",答,内科\n问, ,内科\n问,,\n", encoding="utf-8")
    done = index(path)
    assert done.code == 0
    for row, reason in ((4, "no question"), (5, "no answer"), (6, "no answer")):
        assert f"dropped, {reason} (rows" in done.err
        assert str(row) in done.err
    read = read_of(index(path, "--json"))
    assert [(d["reason"], d["count"], d["rows"]) for d in read["dropped"]] == [
        ("no question", 1, [4]),
        ("no answer", 2, [5, 6]),
    ]
    assert (read["rows_read"], read["documents"]) == (5, 2)


def test_bare_nan_is_an_empty_cell(index: Run, tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('[{"q": "x", "a": "y", "d": NaN}, {"q": "x", "a": NaN, "d": "z"}]')
    read = read_of(index(path, "--json"))
    assert [(d["reason"], d["rows"]) for d in read["dropped"]] == [("no answer", [2])]
    assert read["without_label"] == 1


def test_two_record_shapes_in_one_array_are_both_read(index: Run, tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('[{"q": "x", "a": "y", "d": "z"}, {"ask": "v", "a": "w"}, "text"]')
    read = read_of(index(path, "--question-column", "q,ask", "--json"))
    assert (read["documents"], read["without_label"]) == (2, 1)
    assert [(d["reason"], d["rows"]) for d in read["dropped"]] == [("not a JSON object", [3])]


def test_quoted_cell_with_line_breaks_stays_one_cell(index: Run, tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes('q,a,d\r\n"头痛\r\n怎么办","一、休息\n二、喝水",内科\r\n'.encode())
    assert index(path).code == 0
    document = documents_in(tmp_path / "out", "f-0000002")[0]
    assert (document.question, document.answers) == ("头痛\n怎么办", ("一、休息\n二、喝水",))


@pytest.mark.parametrize("name", ["f.csv", "f.jsonl", "f.csv.gz"])
def test_cell_of_a_megabyte_is_indexed_whole(index: Run, tmp_path: Path, name: str) -> None:
    long = "长" * 1_000_000
    text = json.dumps({"q": "x", "a": long, "d": "z"}) if name == "f.jsonl" else f"q,a,d\nx,{long},z\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode(), 1) if name.endswith("gz") else text.encode())
    assert read_of(index(path, "--json"))["answer_characters"]["p100"] == 1_000_000
    doc_id = "f-0000001" if name == "f.jsonl" else "f-0000002"
    assert documents_in(tmp_path / "out", doc_id)[0].answers == (long,)


def test_nul_surrogates_and_control_characters_are_repaired_and_counted(index: Run, tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text('{"q": "头\\u0000痛\\u0007", "a": "休\\ud800息", "d": "内\\u0001科"}\n', encoding="utf-8")
    done = index(path)
    # Three control characters: U+0000 and U+0007 in the question, U+0001 in the label.
    assert "3 control characters removed, 1 broken characters replaced" in done.err
    document = documents_in(tmp_path / "out", "f-0000001")[0]
    assert (document.question, document.answers, document.domain) == ("头痛", ("休\ufffd息",), ("内科",))


def test_duplicate_ids_are_refused_with_their_rows(index: Run, tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("id,q,a,d\n1,x,y,z\n2,x,y,z\n1,v,w,z\n")
    done = index(path, "--id-column", "id")
    assert_refused(done, tmp_path / "out", "1 ids in column 'id'", "'1'", "row 2", "row 4")


def test_without_a_domain_column_it_works_and_methods_with_the_domain_refuse(
    index: Run, run_cli: Run, tmp_path: Path
) -> None:
    path = tmp_path / "f.csv"
    path.write_text(GOOD, encoding="utf-8")
    done = index(path, domain=False)
    assert done.code == 0
    assert "no domain labels: methods that use the domain cannot be used" in done.err
    found = run_cli("search", tmp_path / "out", "头痛", "--json")
    assert [hit["doc_id"] for hit in json.loads(found.out)["hits"]] == ["f-0000002"]
    refused = run_cli("ask", tmp_path / "out", "头痛", "--llm", "fake", "--method", "Dmn-ques-front")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "domain" in refused.err
    answered = run_cli("ask", tmp_path / "out", "头痛", "--llm", "fake", "--json")
    assert json.loads(answered.out)["method"] == "no-Dmn"


def test_a_refused_file_leaves_an_index_that_is_there_as_it_was(index: Run, tmp_path: Path) -> None:
    good, bad = tmp_path / "f.csv", tmp_path / "bad.csv"
    good.write_text(GOOD, encoding="utf-8")
    bad.write_text('q,a,d\nx,"y,z\n')
    assert index(good).code == 0
    done = index(bad)
    assert (done.code, done.err.count("\n")) == (1, 1)
    with Index.open(tmp_path / "out", verify=True) as opened:
        assert (opened.manifest.generation, opened.n_documents) == (1, 2)


UGLY = {
    "u01_内科_gb18030.csv": ("title,ask", "answer", "department"),
    "u05_really_xls.xlsx": ("QUESTION", "ANSWER", None),
    "u07_multiline_cells.xlsx": ("question", "answer", None),
    "u18_missing_labels_multiturn.json": ("instruction,instruct", "output", "cate1,cate2"),
    "u28_nan_literal_multi_label.json": ("问题", "答案文本", "关键词"),
}


@pytest.mark.parametrize("name", UGLY)
def test_ugly_file_is_indexed_and_every_row_is_accounted_for(
    run_cli: Run, shared: Path, tmp_path: Path, name: str
) -> None:
    question, answer, domain = UGLY[name]
    columns = ["--question-column", question, "--answer-column", answer]
    columns += ["--domain-column", domain] if domain else []
    out = tmp_path / "out"
    done = run_cli("index", shared / "data" / "ugly" / name, "--out", out, *columns, "--encoder", "none", "--json")
    read = read_of(done)
    assert read["rows_read"] == read["documents"] + sum(d["count"] for d in read["dropped"])
    with Index.open(out, verify=True) as opened:
        assert opened.n_documents == read["documents"] > 0


def test_ugly_file_without_a_header_says_what_is_missing(index: Run, shared: Path, tmp_path: Path) -> None:
    done = index(shared / "data" / "ugly" / "u02_内科_blocks_gb18030.txt")
    assert_refused(done, tmp_path / "out", "first row looks like data: a table needs a header row")


def test_every_ugly_file_is_covered(shared: Path) -> None:
    names = {path.name for path in (shared / "data" / "ugly").iterdir()}
    assert names == {*UGLY, "u02_内科_blocks_gb18030.txt"}
