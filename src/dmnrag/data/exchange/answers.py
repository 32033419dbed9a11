"""Answers made elsewhere, and the right answers to score them by.

Answers are rows `{"query_id", "answer"}`, one file a system; gold rows are
`{"query_id", "question", "domain", "references"}`. JSON lines or a JSON array, in any encoding that documents
may come in. Further keys are passed over: prediction files carry prompts, timings and the like.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dmnrag.data.exchange.lines import id_at, refuse_surrogates, text_at, texts_at
from dmnrag.data.formats import open_table
from dmnrag.data.options import ReadOptions
from dmnrag.data.tables import Malformed, Row
from dmnrag.errors import DataError
from dmnrag.types import Example, Query

_KEYS = ("query_id", "answer", "question", "domain", "references", "cluster")
_ANSWER_ROWS = '{"query_id": "..", "answer": ".."}'
_GOLD_ROWS = '{"query_id": "..", "question": "..", "domain": [..], "references": [..]}, domain may be left out'


def read_answers(path: Path) -> dict[str, str]:
    """The answer of each query_id, as it stands; an empty text is an answer that says nothing.

    Raises:
        DataError: a key missing, an answer that is no text, an id twice, or no row; names the line.
    """
    answers: dict[str, str] = {}
    for where, row in _rows(path, _ANSWER_ROWS):
        query_id = _new_id(row, where, answers)
        answers[query_id] = text_at(row, "answer", where, empty=True)
    return answers


def read_gold(path: Path) -> list[Example]:
    """Questions with their right answers, in order.

    A key `cluster`, where it is there, names the group of near-identical questions that a row belongs to.

    Raises:
        DataError: a key missing or of the wrong kind, no reference or an empty one, an id twice, or no row;
            names the line.
    """
    examples: dict[str, Example] = {}
    for where, row in _rows(path, _GOLD_ROWS):
        query_id = _new_id(row, where, examples)
        references = texts_at(row, "references", where)
        if not references or not all(text.strip() for text in references):
            raise DataError(f"{where}: 'references' is {list(references)!r}; at least one right answer is needed")
        domain = texts_at(row, "domain", where) if row.get("domain") is not None else ()
        cluster = id_at(row, "cluster", where) if row.get("cluster") is not None else ""
        question = text_at(row, "question", where)
        examples[query_id] = Example(Query(query_id, question, domain), references, cluster=cluster)
    return list(examples.values())


def _rows(path: Path, rows_are: str) -> Iterator[tuple[str, Row]]:
    try:
        table = open_table(path, ReadOptions())
    except DataError:
        raise
    except ValueError as error:  # a whole number of more digits than Python converts
        raise DataError(f"{path}: not usable JSON ({error})") from error
    if not table.format.startswith("JSON"):
        raise DataError(f"{path} is {table.format}; JSON lines are needed: {rows_are}")
    number = 0
    for number, row in table.rows:
        where = f"{path}, {'line' if table.format == 'JSON lines' else 'record'} {number:,}"
        if isinstance(row, Malformed):
            raise DataError(f"{where}: {row.reason}; needed is {rows_are}")
        used = {key: row[key] for key in _KEYS if key in row}
        refuse_surrogates(json.dumps(used, ensure_ascii=False), where)
        yield where, row
    if not number:
        raise DataError(f"{path} holds no row; needed are {rows_are}")


def _new_id(row: Row, where: str, known: dict[str, Any]) -> str:
    query_id = id_at(row, "query_id", where).strip()
    if query_id in known:
        raise DataError(f"{where}: query_id {query_id!r} stands in the file already")
    return query_id
