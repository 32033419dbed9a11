"""Files as people really have them: each reads with a mapping or gets its clear error."""

from pathlib import Path

import pytest

from dmnrag.data import ColumnMapping, ReadReport, read_documents
from dmnrag.errors import DataError
from dmnrag.types import Document


@pytest.fixture
def ugly(shared: Path) -> Path:
    return shared / "data" / "ugly"


def read(ugly: Path, name: str, *mapping: tuple[str, ...]) -> tuple[list[Document], ReadReport]:
    return read_documents([ugly / name], ColumnMapping(*mapping))  # type: ignore[arg-type]


def test_gb18030_with_a_chinese_file_name(ugly: Path) -> None:
    documents, report = read(ugly, "u01_内科_gb18030.csv", ("title", "ask"), ("answer",), ("department",))
    assert documents[0].doc_id == "u01_内科_gb18030-0000002"
    assert documents[0].domain == ("心血管科",)
    assert report.rows_read == len(documents)


def test_blocks_without_a_header_say_that_a_header_is_needed(ugly: Path) -> None:
    with pytest.raises(DataError, match="first row looks like data: a table needs a header row"):
        read(ugly, "u02_内科_blocks_gb18030.txt", ("question",), ("answer",))


def test_xls_named_xlsx(ugly: Path) -> None:
    documents, _ = read(ugly, "u05_really_xls.xlsx", ("QUESTION",), ("ANSWER",))
    assert len(documents) == 114
    assert documents[0].question == "定座"


def test_cells_of_several_lines(ugly: Path) -> None:
    documents, _ = read(ugly, "u07_multiline_cells.xlsx", ("question",), ("answer",))
    assert [d.answers[0] for d in documents] == [
        "I am fine\nthank you.",
        "h\naasaassa\n12".replace("aasa", "asa", 1),
    ]


def test_two_record_shapes_in_one_array(ugly: Path) -> None:
    documents, report = read(
        ugly,
        "u18_missing_labels_multiturn.json",
        ("instruction", "instruct"),
        ("output",),
        ("cate1", "cate2"),
    )
    # 61 records of one shape, one of them with empty labels, and 59 of the other, which has none.
    assert (report.rows_read, report.without_label) == (120, 60)
    assert len(documents) + sum(len(d.rows) for d in report.dropped) == 120


def test_bare_nan_is_an_empty_cell(ugly: Path) -> None:
    documents, report = read(ugly, "u28_nan_literal_multi_label.json", ("问题",), ("答案文本",), ("关键词",))
    text = (ugly / "u28_nan_literal_multi_label.json").read_text(encoding="utf-8")
    dropped = sum(len(d.rows) for d in report.dropped)
    assert dropped == text.count('"答案文本": NaN')
    assert len(documents) == 46 - dropped
    assert ("个体工商户", "夫妻债务") in [d.domain for d in documents]
