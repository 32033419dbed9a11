"""A results folder: what an experiment writes, and all that tables and reports read.

    spec.json                       the resolved spec, and the ids of its cells in order
    env.json                        versions and machine of each run, written before its work
    corpora/NAME/card.json          what the corpus is
    corpora/NAME/questions.jsonl    the questions asked; their order is the order everywhere
    corpora/NAME/retrieval.json     the retrieval-only table, on all held-out questions
    cells/ID/cell.json              what the cell is
    cells/ID/run.trec               the documents it was given
    cells/ID/evidence.jsonl         the same with their texts: the paper's knowledge-intensive data set
    cells/ID/predictions.jsonl      prompts and answers, appended as they come
    cells/ID/metrics.json           written when the cell is finished
    cost.json                       time, tokens, answers shared by cells
    answers.jsonl                   every answer by the hash of what was asked (`dmnrag.experiments.matrix.cache`)

Cells of an earlier form of the spec may lie in the folder; those of the present one are in `spec.json`.
Every file but the two that are appended to is written atomically. Knows no index and no LLM.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dmnrag._io import link_or_copy, read_jsonl, rename, write_bytes_atomic, write_json_atomic
from dmnrag.data.exchange import read_run, write_run
from dmnrag.errors import ConfigError, DataError
from dmnrag.experiments.records import (
    Cell,
    CellCost,
    CellMetrics,
    CorpusCard,
    Cost,
    Evidence,
    EvidenceDocument,
    Prediction,
    Retrieval,
    json_line,
    read_value,
    read_values,
    to_json,
)
from dmnrag.index.held_out import example_from_dict, example_to_dict
from dmnrag.types import Example, Hit

__all__ = [
    "Cell",
    "CellCost",
    "CellMetrics",
    "CorpusCard",
    "Cost",
    "Evidence",
    "EvidenceDocument",
    "Prediction",
    "ResultsFolder",
    "Retrieval",
]

_Value = TypeVar("_Value")

FORMAT = 1
"""Raised by every change that an older release could not read."""

_SPEC, _ENV, _COST = "spec.json", "env.json", "cost.json"
_CARD, _QUESTIONS, _RETRIEVAL = "card.json", "questions.jsonl", "retrieval.json"
_CELL, _RUN, _EVIDENCE, _PREDICTIONS, _METRICS = (
    "cell.json",
    "run.trec",
    "evidence.jsonl",
    "predictions.jsonl",
    "metrics.json",
)


class ResultsFolder:
    """The files of one experiment. Reading never changes anything."""

    def __init__(self, path: Path) -> None:
        """Use `open` or `create`."""
        self.path = path

    @classmethod
    def open(cls, path: str | Path) -> "ResultsFolder":
        """An experiment's folder.

        Raises:
            DataError: it holds no experiment, or one of another format.
        """
        folder = cls(Path(path))
        if not (folder.path / _SPEC).is_file():
            raise DataError(f"{folder.path} is not a results folder: it has no {_SPEC}; `dmnrag experiment` writes one")
        found = folder.spec.get("format")
        if found != FORMAT:
            raise DataError(f"{folder.path / _SPEC} has format {found!r}, and this release reads {FORMAT}")
        return folder

    @classmethod
    def create(cls, path: str | Path) -> "ResultsFolder":
        """A new or empty folder, or an experiment's, to write to.

        Raises:
            ConfigError: it holds something else.
            DataError: an experiment of another format.
        """
        path = Path(path)
        if (path / _SPEC).is_file():
            return cls.open(path)
        if path.exists() and (
            not path.is_dir() or any(not _BEFORE_SPEC.fullmatch(entry.name) for entry in path.iterdir())
        ):
            raise ConfigError(f"{path} is there and is not a results folder: name an empty or a new one with --out")
        path.mkdir(parents=True, exist_ok=True)
        return cls(path)

    @property
    def spec(self) -> dict[str, Any]:
        """The resolved spec, with `format` and `cells`."""
        return _read_object(self.path / _SPEC)

    @property
    def env(self) -> dict[str, Any]:
        """`{"runs": [{"started", "versions", "machine", ..}]}`, the first one first."""
        return _read_object(self.path / _ENV)

    def corpora(self) -> list[str]:
        """Names of the corpora, in the spec's order."""
        return [corpus["name"] for corpus in self.spec["corpus"]]

    def card(self, corpus: str) -> CorpusCard:
        """What a corpus is."""
        return read_value(CorpusCard, self.corpus_folder(corpus) / _CARD)

    def questions(self, corpus: str) -> list[Example]:
        """The questions asked, with their right answers; the order of every list of values.

        Raises:
            DataError: the file is missing or a row cannot be used.
        """
        path = self.corpus_folder(corpus) / _QUESTIONS
        try:
            return [example_from_dict(row) for row in read_jsonl(path)]
        except (OSError, KeyError, TypeError, UnicodeDecodeError) as error:
            raise DataError(f"{path} does not hold the questions ({error}): run the experiment again") from error

    def retrieval(self, corpus: str) -> Retrieval | None:
        """The retrieval-only table; None where the spec does not ask for one, or it is not there yet."""
        return _optional(Retrieval, self.corpus_folder(corpus) / _RETRIEVAL)

    def cells(self) -> list[Cell]:
        """The cells of the present spec, in its order."""
        return [read_value(Cell, self.cell_folder(cell_id) / _CELL) for cell_id in self.spec["cells"]]

    def run(self, cell: Cell) -> dict[str, list[Hit]]:
        """query_id -> the documents that were given; a question without any is missing."""
        path = self.cell_folder(cell.id) / _RUN
        return read_run(path) if path.is_file() and path.stat().st_size else {}

    def evidence(self, cell: Cell) -> list[Evidence]:
        """The documents with their texts, a row per question; empty where the cell has not got so far."""
        return _rows(Evidence, self.cell_folder(cell.id) / _EVIDENCE)

    def predictions(self, cell: Cell) -> list[Prediction]:
        """Prompts and answers in the order of the questions; of several tries of a question the last one.

        Questions that were not asked yet are missing.
        """
        found = {row.query_id: row for row in _rows(Prediction, self.cell_folder(cell.id) / _PREDICTIONS)}
        if not found:
            return []
        return [found[e.query.query_id] for e in self.questions(cell.corpus) if e.query.query_id in found]

    def metrics(self, cell: Cell) -> CellMetrics | None:
        """The figures; None where the cell is not finished."""
        return _optional(CellMetrics, self.cell_folder(cell.id) / _METRICS)

    def cost(self) -> Cost:
        """Time and tokens; empty where there is nothing yet."""
        return _optional(Cost, self.path / _COST) or Cost({}, {})

    def corpus_folder(self, corpus: str) -> Path:
        """Where a corpus is described."""
        return self.path / "corpora" / corpus

    def cell_folder(self, cell_id: str) -> Path:
        """Where a cell is."""
        return self.path / "cells" / cell_id

    def predictions_file(self, cell_id: str) -> Path:
        """The file that answers are appended to."""
        return self.cell_folder(cell_id) / _PREDICTIONS

    def write_spec(self, spec: Mapping[str, Any], cells: Sequence[Cell]) -> None:
        """The spec and what its cells are; the spec last, so that all its cells are there."""
        for cell in cells:
            _write_if_other(self.cell_folder(cell.id) / _CELL, _json_bytes(to_json(cell)))
        ids = [cell.id for cell in cells]
        _write_if_other(self.path / _SPEC, _json_bytes({"format": FORMAT, **spec, "cells": ids}))

    def add_env(self, run: Mapping[str, Any]) -> None:
        """What a further run of the experiment works on."""
        former = self.env["runs"] if (self.path / _ENV).is_file() else []
        write_json_atomic(self.path / _ENV, {"runs": [*former, run]})

    def write_corpus(self, card: CorpusCard, examples: Iterable[Example]) -> None:
        """What a corpus is and which of its questions are asked."""
        folder = self.corpus_folder(card.name)
        lines = [json.dumps(example_to_dict(example), ensure_ascii=False) + "\n" for example in examples]
        _write_if_other(folder / _QUESTIONS, "".join(lines).encode())
        _write_if_other(folder / _CARD, _json_bytes(to_json(card)))

    def write_retrieval(self, corpus: str, retrieval: Retrieval) -> None:
        """The retrieval-only table."""
        write_json_atomic(self.corpus_folder(corpus) / _RETRIEVAL, to_json(retrieval))

    def write_evidence(self, cell: Cell, rows: Sequence[Evidence], source: Path) -> None:
        """The documents that a cell is given; `source` holds the rows, and gets a second name here."""
        folder = self.cell_folder(cell.id)
        rankings = {
            row.query_id: [Hit(d.doc_id, d.score, rank) for rank, d in enumerate(row.documents, start=1)]
            for row in rows
        }
        write_run(folder / _RUN, rankings, cell.layer or cell.row)
        temporary = folder / f".{_EVIDENCE}.{os.getpid()}.tmp"
        temporary.unlink(missing_ok=True)
        try:
            link_or_copy(source, temporary)
            rename(temporary, folder / _EVIDENCE)
        finally:
            temporary.unlink(missing_ok=True)  # it stays where both are names of the same file already

    def write_predictions(self, cell_id: str, rows: Iterable[Prediction]) -> None:
        """All that is known of a cell's answers, in place of the file as it is."""
        write_bytes_atomic(self.predictions_file(cell_id), b"".join(map(json_line, rows)))

    def write_metrics(self, cell_id: str, metrics: CellMetrics) -> None:
        """A finished cell's figures."""
        write_json_atomic(self.cell_folder(cell_id) / _METRICS, to_json(metrics))

    def write_cost(self, cost: Cost) -> None:
        """What it cost so far."""
        _write_if_other(self.path / _COST, _json_bytes(to_json(cost)))


_BEFORE_SPEC = re.compile(r"lock|cells|corpora|env\.json|\.(env|spec)\.json\.\d+\.tmp")
"""What a run that was killed before it wrote the spec may have left."""


def _optional(kind: type[_Value], path: Path) -> _Value | None:
    return read_value(kind, path) if path.is_file() else None


def _rows(kind: type[_Value], path: Path) -> list[_Value]:
    return list(read_values(kind, path)) if path.is_file() else []


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}): restore it, or run the experiment again") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} holds {type(value).__name__}, a JSON object is needed: restore it")
    return value


def _json_bytes(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def _write_if_other(path: Path, content: bytes) -> None:
    """A second run of a finished experiment changes no file."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomic(path, content)
