"""BEIR folders: `corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv`.

A document's question is BEIR's title and its answer BEIR's text. What BEIR has no place for stands in the
row's `metadata`, where its readers pass over it: domain labels under `domain`, several answers under
`answers` (the text then holds them one below the other), further columns under their own names.
Source: Thakur et al., "BEIR: a heterogeneous benchmark for zero-shot evaluation of retrieval models", 2021.
"""

import csv
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmnrag.data.exchange.lines import (
    id_at,
    json_line,
    json_objects,
    numbered_lines,
    text_at,
    texts_at,
    written_atomically,
)
from dmnrag.data.exchange.trec import Qrels, read_qrels, whole_number
from dmnrag.errors import DataError
from dmnrag.types import Document, Domain, Query

CORPUS_FILE = "corpus.jsonl"
"""A folder that holds a file of this name is a BEIR folder."""

_HEADER = ("query-id", "corpus-id", "score")
_SEPARATOR = "\n"
_UNUSABLE_IN_ID = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ufeff\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class BeirCollection:
    """A test collection: what is searched, what is asked, and what is right."""

    documents: list[Document]
    queries: list[Query]
    """Those that the split judges, in the order of the file."""
    qrels: dict[str, dict[str, int]]
    absent_doc_ids: tuple[str, ...] = ()
    """Judged documents that the corpus lacks. They stay in `qrels` and count as never found, as in the
    figures that others publish."""


def read_beir(folder: Path, split: str = "test") -> BeirCollection:
    """Read a folder. Queries of other splits are left out, as BEIR's own loader does.

    Raises:
        DataError: a file is missing or has a wrong line, an id stands twice, or a judged query has no text.
    """
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        splits = ", ".join(sorted(p.stem for p in (folder / "qrels").glob("*.tsv"))) or "none"
        raise DataError(f"{folder} has no qrels/{split}.tsv; splits there are: {splits}")
    qrels = _read_tsv(path)
    documents = read_beir_corpus(folder / CORPUS_FILE)
    known = {document.doc_id for document in documents}
    queries = read_beir_queries(folder / "queries.jsonl")
    refuse_unasked(qrels, {query.query_id for query in queries})
    judged = dict.fromkeys(doc_id for relevance_of in qrels.values() for doc_id in relevance_of)
    absent = tuple(doc_id for doc_id in judged if doc_id not in known)
    return BeirCollection(documents, [q for q in queries if q.query_id in qrels], qrels, absent)


def read_beir_corpus(path: Path) -> list[Document]:
    """The documents of a `corpus.jsonl`.

    Raises:
        DataError: a wrong line, an id that stands twice, or no line.
    """
    return list(_unique((_document(where, row) for where, row in json_objects(path)), path.name).values())


def read_beir_queries(path: Path) -> list[Query]:
    """The queries of a `queries.jsonl`, judged or not.

    Raises:
        DataError: a wrong line, an id that stands twice, or no line.
    """
    return list(_unique((_query(where, row) for where, row in json_objects(path)), path.name).values())


def write_beir(
    folder: Path, documents: Iterable[Document], queries: Iterable[Query], qrels: Qrels, split: str = "test"
) -> None:
    """Write the three files, each atomically; documents are streamed.

    Judgements of held-out questions come from `gold_qrels`.

    Raises:
        DataError: an id that is empty, stands twice or holds a control character; a judged query that is not
            given; further columns named `domain`, or `answers` beside several answers.
    """
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    _write_rows(folder / CORPUS_FILE, ((d.doc_id, _document_row(d)) for d in documents))
    asked = _write_rows(folder / "queries.jsonl", ((q.query_id, _query_row(q)) for q in queries))
    refuse_unasked(qrels, asked)
    with written_atomically(folder / "qrels" / f"{split}.tsv") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(_HEADER)
        for query_id, relevance_of in qrels.items():
            for doc_id, relevance in relevance_of.items():
                _check_id(doc_id, "qrels")
                writer.writerow((query_id, doc_id, f"{relevance:d}"))


def read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """Judgements from a TREC qrels file or a BEIR `qrels/SPLIT.tsv`, told apart by their columns.

    Raises:
        DataError: as the two formats; names the line.
    """
    first = next((line for _, line in numbered_lines(path)), "")
    return _read_tsv(path) if len(first.split("\t")) == 3 else read_qrels(path)


def _read_tsv(path: Path) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    header_seen = False
    for number, line in numbered_lines(path):
        where = f"{path}, line {number:,}"
        query_id, doc_id, score = _three_cells(line, where)
        if not header_seen:
            header_seen = True
            if re.fullmatch(r"[+-]?[0-9]+", score):
                raise DataError(f"{where}: a header is needed ({', '.join(_HEADER)}), found a judgement")
            continue
        if doc_id in qrels.setdefault(query_id, {}):
            raise DataError(f"{where}: document {doc_id!r} is judged for query {query_id!r} already")
        qrels[query_id][doc_id] = whole_number(score, where)
    if not qrels:
        raise DataError(f"{path} holds no judgement")
    return qrels


def _three_cells(line: str, where: str) -> list[str]:
    try:
        cells = next(csv.reader([line], delimiter="\t", strict=True))
    except csv.Error as error:
        raise DataError(f"{where}: {error}") from error
    if len(cells) != 3 or not all(cell.strip() for cell in cells):
        raise DataError(f"{where}: found {cells!r:.80}; 3 cells with a tab between are needed: {', '.join(_HEADER)}")
    return cells


def _unique(items: Iterable[tuple[str, str, Any]], file: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for where, item_id, item in items:
        if item_id in found:
            raise DataError(f"{where}: _id {item_id!r} stands in the file already")
        found[item_id] = item
    if not found:
        raise DataError(f"{file} holds no line")
    return found


def _document(where: str, row: Mapping[str, Any]) -> tuple[str, str, Document]:
    doc_id = id_at(row, "_id", where)
    text = text_at(row, "text", where, empty=True)
    title = text_at({"title": "", **row}, "title", where, empty=True)
    metadata = _metadata(row, where)
    domain = _take_domain(metadata, where)
    answers: tuple[str, ...] = (text,) if text else ()
    listed = metadata.get("answers")
    if isinstance(listed, list) and all(isinstance(a, str) for a in listed) and _SEPARATOR.join(listed) == text:
        answers = tuple(metadata.pop("answers"))
    columns = {key: _as_text(value) for key, value in metadata.items() if value is not None}
    return where, doc_id, Document(doc_id, title, answers, domain, columns)


def _query(where: str, row: Mapping[str, Any]) -> tuple[str, str, Query]:
    query_id = id_at(row, "_id", where)
    return (
        where,
        query_id,
        Query(query_id, text_at(row, "text", where), _take_domain(_metadata(row, where), where)),
    )


def _metadata(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    value = row.get("metadata")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"{where}: 'metadata' is {value!r}; an object is needed")
    return dict(value)


def _take_domain(metadata: dict[str, Any], where: str) -> Domain:
    value = metadata.pop("domain", None) or []
    labels = texts_at({"domain": [value] if isinstance(value, str) else value}, "domain", f"{where}, metadata")
    return tuple(dict.fromkeys(labels))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _document_row(document: Document) -> dict[str, Any]:
    metadata: dict[str, Any] = dict(document.metadata)
    own: dict[str, Any] = {"domain": list(document.domain)}
    if len(document.answers) > 1:
        own["answers"] = list(document.answers)
    clash = sorted(own.keys() & metadata.keys())
    if clash:
        raise DataError(
            f"document {document.doc_id!r}: its further column {clash[0]!r} has a name that BEIR folders"
            " written here use for something else; index the file without that column, or rename it"
        )
    return {
        "_id": document.doc_id,
        "title": document.question,
        "text": _SEPARATOR.join(document.answers),
        "metadata": {key: value for key, value in own.items() if value} | metadata,
    }


def _query_row(query: Query) -> dict[str, Any]:
    metadata = {"domain": list(query.domain)} if query.domain else {}
    return {"_id": query.query_id, "text": query.text, "metadata": metadata}


def _write_rows(path: Path, rows: Iterable[tuple[str, dict[str, Any]]]) -> set[str]:
    seen: set[str] = set()
    with written_atomically(path) as file:
        for row_id, row in rows:
            _check_id(row_id, path.name)
            if row_id in seen:
                raise DataError(f"id {row_id!r} would stand in {path.name} twice; ids must be unique")
            seen.add(row_id)
            file.write(json_line(row, f"{path.name}, {row_id!r}"))
    return seen


def refuse_unasked(qrels: Qrels, asked: Collection[str]) -> None:
    """Refuse judgements of queries without text.

    Raises:
        DataError: names the first few.
    """
    unasked: Sequence[str] = [query_id for query_id in qrels if query_id not in asked]
    if unasked:
        raise DataError(
            f"{len(unasked):,} queries are judged but have no text: {', '.join(unasked[:5])}"
            f"{', ...' if len(unasked) > 5 else ''}; add them to the queries or drop their judgements"
        )


def _check_id(text: str, file: str) -> None:
    if not text.strip() or _UNUSABLE_IN_ID.search(text):
        raise DataError(f"id {text!r} cannot stand in {file}: it is empty or holds a control character")
