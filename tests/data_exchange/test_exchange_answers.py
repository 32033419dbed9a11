"""Answers made elsewhere and their gold."""

import json
from pathlib import Path

import pytest

from dmnrag.data.exchange import read_answers, read_gold
from dmnrag.errors import DataError
from dmnrag.types import Example, Query


def write(folder: Path, *lines: object) -> Path:
    path = folder / "rows.jsonl"
    text = "\n".join(line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    path.write_text(text, encoding="utf-8")
    return path


def test_answers_are_read_as_they_stand_and_further_keys_are_passed_over(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"query_id": "a", "answer": " 多行\n答案 ", "prompt": "x"},
        "",
        {"query_id": 7, "answer": ""},
    )
    assert read_answers(path) == {"a": " 多行\n答案 ", "7": ""}


def test_answers_in_gb18030_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes('{"query_id": "a", "answer": "您好，可以要求其停止侵害"}\n'.encode("gb18030"))
    assert read_answers(path) == {"a": "您好，可以要求其停止侵害"}


def test_gold_rows_become_examples(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"query_id": "a", "question": "问", "domain": ["内科", "心内科"], "references": ["一", "二"]},
        {"query_id": "b", "question": "问", "references": ["一"], "cluster": 3},
    )
    assert read_gold(path) == [
        Example(Query("a", "问", ("内科", "心内科")), ("一", "二")),
        Example(Query("b", "问"), ("一",), cluster="3"),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"query_id": "a"}, "line 2: no 'answer'; its keys are 'query_id'"),
        ({"answer": "x"}, "line 2: no 'query_id'"),
        ({"query_id": "a", "answer": None}, "line 2: 'answer' is None; a text is needed"),
        ({"query_id": True, "answer": "x"}, "line 2: 'query_id' is True"),
        ({"query_id": "first", "answer": "x"}, "line 2: query_id 'first' stands in the file already"),
        ("[1]", "line 2: not a JSON object"),
        ('{"query_id": "a", "answer": "\\udc00"}', "line 2: holds half a surrogate pair"),
        ("{broken", "line 2: not JSON"),
        ('{"query_id": ' + "9" * 5000 + "}", "rows.jsonl"),
    ],
)
def test_a_wrong_answer_row_is_an_error_that_names_the_line(tmp_path: Path, row: object, message: str) -> None:
    with pytest.raises(DataError) as error:
        read_answers(write(tmp_path, {"query_id": "first", "answer": "x"}, row))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"references": "一"}, "'references' is '一'; a list of texts is needed"),
        ({"references": []}, "at least one right answer"),
        ({"references": ["一", " "]}, "at least one right answer"),
        ({"references": [1]}, "'references' holds 1"),
        ({"question": ""}, "'question' is empty"),
        ({"domain": "内科"}, "'domain' is '内科'; a list of texts is needed"),
        ({"cluster": []}, "'cluster' is []"),
    ],
)
def test_a_wrong_gold_row_is_an_error_that_names_the_line(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    row = {"query_id": "a", "question": "问", "references": ["一"]}
    with pytest.raises(DataError) as error:
        read_gold(write(tmp_path, {**row, "query_id": "b"}, {**row, **change}))
    assert "line 2" in str(error.value)
    assert message in str(error.value)


def test_files_without_rows_or_of_another_kind_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is empty"):
        read_answers(write(tmp_path, ""))
    table = tmp_path / "answers.csv"
    table.write_text("query_id,answer\na,b\n", encoding="utf-8")
    with pytest.raises(DataError, match="JSON lines are needed"):
        read_answers(table)


def test_real_answers_and_gold_belong_together(shared: Path) -> None:
    folder = shared / "data" / "lecoqa_answers"
    gold = read_gold(folder / "gold.jsonl")
    assert len(gold) == 309
    assert read_answers(folder / "qwen7b-rag.jsonl").keys() == {example.query.query_id for example in gold}
