"""Query files: strict, with line numbers."""

from pathlib import Path

import pytest

from dmnrag.data import read_queries
from dmnrag.errors import DataError
from dmnrag.types import Query


def test_queries_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(
        '{"query_id": "a", "text": "头痛？", "domain": ["内科", "神经内科"]}\n\n'
        '{"query_id": 2, "text": "x", "domain": "外科"}\n{"query_id": "c", "text": "y"}\n',
        encoding="utf-8",
    )
    assert read_queries(path) == [
        Query("a", "头痛？", ("内科", "神经内科")),
        Query("2", "x", ("外科",)),
        Query("c", "y"),
    ]


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('{"query_id": "b"}', "line 2: no text"),
        ('{"text": "b"}', "line 2: no query_id"),
        ('{"query_id": "b", "text": " "}', "line 2: text is ' '"),
        ('{"query_id": "b", "text": 5}', "line 2: text is 5"),
        ('{"query_id": "", "text": "x"}', "line 2: query_id is ''"),
        ('{"query_id": true, "text": "x"}', "line 2: query_id is True"),
        ('{"query_id": "a", "text": "x"}', "line 2: query_id 'a' stands in 1 already"),
        (
            '{"query_id": "b", "text": "x", "domian": []}',
            "line 2: unknown key 'domian'; did you mean 'domain'",
        ),
        ('{"query_id": "b", "text": "x", "domain": [1]}', r"line 2: domain is \[1\]"),
        ("[1]", "line 2: not a JSON object"),
        ('{"query_id": "b", ', "line 2: not JSON"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, line: str, match: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(f'{{"query_id": "a", "text": "x"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(DataError, match=match):
        read_queries(path)


def test_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text("query_id,text\na,b\n")
    with pytest.raises(DataError, match="a query file holds JSON lines"):
        read_queries(path)
