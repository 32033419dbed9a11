"""TREC runs and qrels, the files that trec_eval, pytrec_eval and ir_measures read.

A run has lines `query_id Q0 doc_id rank score tag`, qrels have lines `query_id 0 doc_id relevance`.
Evaluators never look at the rank: they sort by score, in single precision, and equal scores by doc_id from
the last to the first. So runs are written with scores that fall strictly even in single precision, and read
in that order.

Neither format can hold a query without lines: evaluators that average over the queries of the run leave such
a query out, where this package counts 0 (`trec_eval -c` does as well).
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from dmnrag.data.exchange.lines import numbered_lines, written_atomically
from dmnrag.errors import ConfigError, DataError
from dmnrag.types import Example, Hit

Qrels = Mapping[str, Mapping[str, int]]
"""query_id -> doc_id -> relevance; above 0 is relevant."""

_T = TypeVar("_T")
_UNUSABLE_IN_ID = re.compile(r"[\s\x00\ufeff\ud800-\udfff]")
"""White space parts the columns; NUL ends a text in C; a BOM is lost; half a surrogate pair is not UTF-8."""
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LARGEST = 1e38
"""Near the end of single precision (3.4e38), with room for the steps that part equal scores."""


def write_run(path: Path, rankings: Mapping[str, Sequence[Hit]], tag: str) -> None:
    """Write the rankings of many queries, atomically; evaluators get the ranks that stand in the hits.

    A score is written exactly as it is, except where it does not lie below the one before in single
    precision: then it is the next lower single-precision number. A query without hits has no line.

    Raises:
        DataError: an id that is empty or holds white space, a document twice in a ranking, ranks other than
            1, 2, 3, ..., or a score that single precision cannot hold.
        ConfigError: `tag` is empty or holds white space.
    """
    if not tag or _UNUSABLE_IN_ID.search(tag):
        raise ConfigError(f"run tag {tag!r} cannot be used: a TREC run needs one word without white space")
    with written_atomically(path) as file:
        for query_id, hits in rankings.items():
            where = f"query {query_id!r}"
            _check_id(query_id, "query_id", where)
            _check_ranking(hits, where)
            for hit, score in zip(hits, falling_scores([hit.score for hit in hits], where), strict=True):
                file.write(f"{query_id} Q0 {hit.doc_id} {hit.rank} {score!r} {tag}\n")


def read_run(path: Path) -> dict[str, list[Hit]]:
    """The rankings of a run, ordered and ranked as evaluators do it: the rank column decides nothing.

    Raises:
        DataError: no line, a line without six columns, a rank or score that is no number, or a document twice
            for a query; names the line.
    """
    found = _Lines[float](path)
    for number, line in numbered_lines(path):
        columns = line.split()
        where = f"{path}, line {number:,}"
        if len(columns) != 6:
            raise DataError(f"{where}: {len(columns)} columns; a run has 6: query_id Q0 doc_id rank score tag")
        query_id, _, doc_id, rank, score, _ = columns
        if not _WHOLE_NUMBER.fullmatch(rank):
            raise DataError(f"{where}: rank {rank!r} is no whole number")
        if not _NUMBER.fullmatch(score) or math.isinf(float(score)):
            raise DataError(f"{where}: score {score!r} is no finite number")
        found.add(number, query_id, doc_id, float(score))
    return {query_id: _ranked(scores) for query_id, scores in found.by_query().items()}


def write_qrels(path: Path, qrels: Qrels) -> None:
    """Write judgements, atomically. A query without judgements has no line.

    Raises:
        DataError: an id that is empty or holds white space.
    """
    with written_atomically(path) as file:
        for query_id, relevance_of in qrels.items():
            _check_id(query_id, "query_id", f"query {query_id!r}")
            for doc_id, relevance in relevance_of.items():
                _check_id(doc_id, "doc_id", f"query {query_id!r}")
                file.write(f"{query_id} 0 {doc_id} {relevance:d}\n")


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """The judgements of a TREC qrels file.

    Raises:
        DataError: no line, a line without four columns, a relevance that is no whole number, or a document
            twice for a query; names the line.
    """
    found = _Lines[int](path)
    for number, line in numbered_lines(path):
        columns = line.split()
        where = f"{path}, line {number:,}"
        if len(columns) != 4:
            raise DataError(f"{where}: {len(columns)} columns; qrels have 4: query_id 0 doc_id relevance")
        query_id, _, doc_id, relevance = columns
        found.add(number, query_id, doc_id, whole_number(relevance, where))
    return found.by_query()


def gold_qrels(examples: Iterable[Example]) -> dict[str, dict[str, int]]:
    """Judgements from held-out questions: each gold document has relevance 1; without gold no entry."""
    return {e.query.query_id: dict.fromkeys(e.gold_doc_ids, 1) for e in examples if e.gold_doc_ids}


def whole_number(text: str, where: str) -> int:
    """A relevance.

    Raises:
        DataError: no whole number.
    """
    if not _WHOLE_NUMBER.fullmatch(text):
        raise DataError(f"{where}: relevance {text!r} is no whole number")
    return int(text)


def falling_scores(scores: Sequence[float], where: str) -> list[float]:
    """The scores, each below the one before in single precision; one that is there already stays as it is.

    Raises:
        DataError: not finite, or too large for single precision.
    """
    for score in scores:
        if not abs(score) <= _LARGEST:
            raise DataError(f"{where}: score {score!r} cannot be written; a run holds numbers up to 1e38")
    singles = np.asarray(scores, dtype=np.float32)
    falling = [float(score) for score in scores]
    if (singles[1:] < singles[:-1]).all():
        return falling
    lowest = np.float32(-np.inf)
    for i in range(1, len(singles)):
        if not singles[i] < singles[i - 1]:
            singles[i] = np.nextafter(singles[i - 1], lowest)
            falling[i] = float(singles[i])
    return falling


class _Lines(dict[str, dict[str, tuple[int, _T]]]):
    """query_id -> doc_id -> (line, value); refuses a document that stands twice for a query."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def add(self, number: int, query_id: str, doc_id: str, value: _T) -> None:
        where = f"{self._path}, line {number:,}"
        _check_id(query_id, "query_id", where)
        _check_id(doc_id, "doc_id", where)
        of_query = self.setdefault(query_id, {})
        if doc_id in of_query:
            raise DataError(
                f"{where}: document {doc_id!r} stands in line {of_query[doc_id][0]:,} for query {query_id!r} already"
            )
        of_query[doc_id] = (number, value)

    def by_query(self) -> dict[str, dict[str, _T]]:
        if not self:
            raise DataError(f"{self._path} holds no line")
        return {q: {d: value for d, (_, value) in of_query.items()} for q, of_query in self.items()}


def _ranked(scores: Mapping[str, float]) -> list[Hit]:
    with np.errstate(over="ignore"):  # what single precision cannot hold is infinite for evaluators
        singles = np.array(list(scores.values()), dtype=np.float64).astype(np.float32).tolist()
    ordered = sorted(zip(singles, scores, strict=True), reverse=True)
    return [Hit(doc_id, scores[doc_id], rank) for rank, (_, doc_id) in enumerate(ordered, start=1)]


def _check_id(text: str, name: str, where: str) -> None:
    if not text or _UNUSABLE_IN_ID.search(text):
        raise DataError(f"{where}: {name} {text!r} cannot stand in a TREC file, where an id is one word without spaces")


def _check_ranking(hits: Sequence[Hit], where: str) -> None:
    seen = set()
    for position, hit in enumerate(hits, start=1):
        _check_id(hit.doc_id, "doc_id", where)
        if hit.rank != position:
            raise DataError(f"{where}: the hit at place {position} has rank {hit.rank}; ranks are 1, 2, 3, ...")
        if hit.doc_id in seen:
            raise DataError(f"{where}: document {hit.doc_id!r} stands in the ranking twice")
        seen.add(hit.doc_id)
