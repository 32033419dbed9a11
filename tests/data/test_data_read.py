"""Files to documents: what is kept, dropped, counted, and how rows are named."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dmnrag.data import ColumnMapping, ReadOptions, read_documents
from dmnrag.data.report import LengthQuantiles
from dmnrag.errors import DataError
from dmnrag.types import Document

QA = ColumnMapping(("q",), ("a",))
Writer = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    def _write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return _write


def test_all_parts_of_a_document_come_from_their_columns(write: Writer) -> None:
    path = write("f.csv", "no,title,ask,a1,a2,dept,url\n7,头痛,头痛三天怎么办,多休息,看医生,内科/神经内科,http://x\n")
    mapping = ColumnMapping(("title", "ask"), ("a1", "a2"), ("dept",), "no", ("url",))
    documents, _ = read_documents([path], mapping)
    assert documents == [
        Document("7", "头痛三天怎么办", ("多休息", "看医生"), ("内科", "神经内科"), {"url": "http://x"})
    ]


def test_rows_without_question_or_answer_are_dropped_counted_and_listed(write: Writer) -> None:
    path = write("f.csv", "q,a\nx,y\n,y\nx, \n,nan\nx,y,z\nz,w\n")
    documents, report = read_documents([path], QA)
    assert [d.doc_id for d in documents] == ["f-0000002", "f-0000007"]
    assert {(d.reason, d.rows) for d in report.dropped} == {
        ("no question", (3,)),
        ("no answer", (4,)),
        ("no question and no answer", (5,)),
        ("more cells than the header has columns", (6,)),
    }
    # Six rows read: two documents and four dropped.
    assert (report.rows_read, report.n_documents) == (6, 2)


def test_report_counts_labels_duplicates_lengths_and_repairs(write: Writer) -> None:
    path = write("f.csv", 'q,a,d\nab,cdef,"内科,儿科"\nab,cdef,"内科,儿科"\nabc,c\0d,\nabcd,c,内科\n')
    _, report = read_documents([path], ColumnMapping(("q",), ("a",), ("d",)))
    assert report.labels == {"内科": 3, "儿科": 2}
    assert (report.without_label, report.exact_duplicates, report.control_characters) == (1, 1, 1)
    # Questions 2, 2, 3, 4 characters: mean 11 / 4; answers 4, 4, 2, 1.
    assert report.question_lengths.mean == 2.75
    assert (report.answer_lengths.values[0.0], report.answer_lengths.values[1.0]) == (1, 4)
    shown = report.to_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert shown["files"][0] | {"path": ""} == {
        "path": "",
        "format": "delimited text",
        "rows": 4,
        "columns": ["q", "a", "d"],
        "encoding": "utf-8",
        "delimiter": ",",
        "quoting": "double quotes",
    }


def test_quantiles_are_by_nearest_rank() -> None:
    # Lengths 1..5: the median is at round(0.5 * 4) = 2, the third.
    assert LengthQuantiles.of(["a" * n for n in (5, 4, 3, 2, 1)]).values[0.5] == 3
    assert LengthQuantiles.of([]).values[1.0] == 0


def test_default_ids_do_not_change_when_read_again_or_with_other_files(write: Writer) -> None:
    one, two = write("one.csv", "q,a\nx,y\n"), write("my two.csv", "q,a\nx,y\n")
    alone = read_documents([one], QA)[0]
    both = read_documents([one, two], QA)[0]
    assert [d.doc_id for d in alone] == ["one-0000002"]
    assert [d.doc_id for d in both] == ["one-0000002", "my_two-0000002"]


def test_files_of_one_name_are_told_apart_by_their_folders(write: Writer) -> None:
    paths = [write("a/f.csv", "q,a\nx,y\n"), write("b/f.csv", "q,a\nx,y\n")]
    assert [d.doc_id for d in read_documents(paths, QA)[0]] == ["a/f.csv-0000002", "b/f.csv-0000002"]


def test_repeated_ids_are_refused_and_listed_with_their_rows(write: Writer) -> None:
    path = write("f.csv", "id,q,a\n1,x,y\n2,x,y\n1,x,y\n")
    with pytest.raises(DataError, match=r"1 ids in column 'id'.*'1' \(.*row 2; .*row 4\)"):
        read_documents([path], ColumnMapping(("q",), ("a",), doc_id="id"))


def test_rows_without_id_are_refused_when_ids_are_mapped(write: Writer) -> None:
    path = write("f.csv", "id,q,a\n1,x,y\n,x,y\n")
    with pytest.raises(DataError, match=r"1 rows have no id in column 'id'.*row 3"):
        read_documents([path], ColumnMapping(("q",), ("a",), doc_id="id"))


def test_two_record_shapes_in_one_array_are_read_with_both_names(write: Writer) -> None:
    path = write("f.json", '[{"q": "x", "a": "y"}, {"ask": "z", "a": NaN}, {"ask": "z", "a": ["v", "w"]}, 5]')
    documents, report = read_documents([path], ColumnMapping(("q", "ask"), ("a",)))
    assert [(d.question, d.answers) for d in documents] == [("x", ("y",)), ("z", ("v", "w"))]
    assert {(d.reason, d.rows) for d in report.dropped} == {("no answer", (2,)), ("not a JSON object", (4,))}


def test_nested_list_names_file_row_and_column(write: Writer) -> None:
    path = write("f.jsonl", '{"q": "x", "a": "y"}\n{"q": "x", "a": [["y"]]}\n')
    with pytest.raises(DataError, match=r"f\.jsonl, row 2, column 'a': a list of texts is needed"):
        read_documents([path], QA)


def test_list_in_a_domain_list_names_file_row_and_column(write: Writer) -> None:
    path = write("f.json", '[{"q": "x", "a": "y", "d": [["内科"]]}]')
    with pytest.raises(DataError, match=r"f\.json, row 1, column 'd': a list of texts is needed"):
        read_documents([path], ColumnMapping(("q",), ("a",), ("d",)))


def test_personal_data_is_masked_in_question_answers_and_metadata_when_asked(write: Writer) -> None:
    path = write("f.csv", "q,a,b,who,d\n打13812345678,写a@b.cn,写a@c.cn,13912345678,13712345678\n")
    mapping = ColumnMapping(("q",), ("a", "b"), ("d",), metadata=("who",))
    documents, report = read_documents([path], mapping, options=ReadOptions(mask=True))
    # Both answers become the same text and are one; labels are names and stay.
    assert documents == [Document("f-0000002", "打[电话]", ("写[邮箱]",), ("13712345678",), {"who": "[电话]"})]
    assert report.masked == {"email": 2, "identity_number": 0, "bank_card": 0, "phone": 2}
    assert read_documents([path], mapping)[1].masked is None
    assert read_documents([path], mapping)[0][0].question == "打13812345678"


def test_lone_surrogates_from_json_are_replaced_and_counted(write: Writer) -> None:
    path = write("f.jsonl", '{"q": "x\\ud800", "a": "y\\u0000"}\n')
    documents, report = read_documents([path], QA)
    assert (documents[0].question, documents[0].answers) == ("x\ufffd", ("y",))
    assert (report.lone_surrogates, report.control_characters) == (1, 1)


def test_cell_of_a_megabyte_is_read_whole(write: Writer) -> None:
    path = write("f.csv", 'q,a\nx,"' + "长" * 1_000_000 + '"\n')
    assert len(read_documents([path], QA)[0][0].answers[0]) == 1_000_000


def test_folder_is_read_whole_and_what_is_passed_over_is_reported(write: Writer) -> None:
    folder = write("d/b.csv", "q,a\nx,y\n").parent
    write("d/in/a.jsonl", '{"q": "x", "a": "y"}\n')
    for name in ("~$b.xlsx", ".hidden.csv", "readme.md"):
        write(f"d/{name}", "x")
    documents, report = read_documents([folder], QA)
    assert [d.doc_id for d in documents] == ["b-0000002", "a-0000001"]
    assert {Path(p).name: why for p, why in report.skipped_files.items()} == {
        "~$b.xlsx": "lock file",
        ".hidden.csv": "hidden",
        "readme.md": "not a known ending",
    }


def test_domain_separators_can_be_given(write: Writer) -> None:
    path = write("f.csv", "q,a,d\nx,y,a+b/c\n")
    mapping = ColumnMapping(("q",), ("a",), ("d",))
    documents, _ = read_documents([path], mapping, options=ReadOptions(domain_separators="+"))
    assert documents[0].domain == ("a", "b/c")


def test_medical_file_in_gb18030_reads_whole_without_naming_an_encoding(shared: Path) -> None:
    path = shared / "data" / "medical_im_gb18030.csv"
    documents, report = read_documents([path], ColumnMapping(("title", "ask"), ("answer",), ("department",)))
    assert (len(documents), report.rows_read, report.files[0].facts["encoding"]) == (6116, 6116, "gb18030")
    assert len(report.labels) == 11


def test_legal_file_drops_its_one_row_without_answer(shared: Path) -> None:
    path = shared / "data" / "legal_casetypes.jsonl"
    documents, report = read_documents([path], ColumnMapping(("question",), ("answers",), ("domain",), "id"))
    assert len(documents) == 1542
    assert [(d.reason, len(d.rows)) for d in report.dropped] == [("no answer", 1)]
    assert "物权（含房产）" in report.labels
