"""Answers made elsewhere as a results folder, so that reports treat them as an experiment's own.

One corpus, the gold file; a cell per system. What is not known of the answers (method, LLM, documents) stands as
nothing: `k` is 0, there is no evidence and no LLM.
"""

import hashlib
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from dmnrag import __version__
from dmnrag.errors import ConfigError
from dmnrag.experiments.records import Cell, CellMetrics, CorpusCard, Prediction
from dmnrag.experiments.results import ResultsFolder
from dmnrag.experiments.score import answer_columns, check_systems, question_clusters
from dmnrag.methods import BASELINE
from dmnrag.types import Example, GenerationSettings

ANSWERS = "answers"
"""Key of the spec that says what was scored; a folder of an experiment has none."""
_CORPUS = "gold"
_LONGEST_NAME = 60
"""Of a cell's folder; file systems allow 255 bytes."""


def write_answers_folder(
    path: Path,
    answers: Mapping[str, Mapping[str, str]],
    gold: Sequence[Example],
    files: Mapping[str, str],
    gold_file: str,
) -> ResultsFolder:
    """Score each system and write everything that reports read.

    A question without an answer scores 0, as in `score_systems`; the cell is complete all the same, because what was
    to be scored is there.

    Args:
        path: a new folder, or one that this function wrote before.
        answers: system -> query_id -> text.
        gold: the questions with their right answers.
        files: system -> the file its answers came from; for the record.
        gold_file: for the record.

    Raises:
        ConfigError: the folder holds something else, or there is no system.
        DataError: as `score_systems`.
    """
    check_systems(answers, gold)
    folder = ResultsFolder.create(path)
    if (path / "spec.json").is_file() and ANSWERS not in folder.spec:
        raise ConfigError(f"{path} holds an experiment: name another folder with --out")
    clusters = question_clusters(gold)
    examples = [replace(example, cluster=cluster) for example, cluster in zip(gold, clusters, strict=True)]
    cells = [_cell(number, name) for number, name in enumerate(answers, start=1)]
    folder.add_env(_environment())
    folder.write_corpus(_card(examples), examples)
    spec = {
        "corpus": [{"name": _CORPUS}],
        ANSWERS: {"files": dict(files), "gold": gold_file},
    }
    # Cells and spec first: a folder without the figures of a cell is one that is not finished.
    folder.write_spec(spec, cells)
    for cell in cells:
        texts = [answers[cell.row].get(example.query.query_id, "").strip() for example in examples]
        rows = zip(examples, texts, strict=True)
        folder.write_predictions(cell.id, [Prediction(e.query.query_id, None, text, None, None) for e, text in rows])
        folder.write_metrics(cell.id, _metrics(texts, examples))
    return folder


def _cell(number: int, name: str) -> Cell:
    readable = re.sub(r"[^\w.-]+", "-", name)[:_LONGEST_NAME].strip("-.")
    return Cell(
        id=f"{number:02d}-{readable}",
        corpus=_CORPUS,
        row=name,
        method=BASELINE.name,
        layer=None,
        retriever=None,
        llm=None,
        generation="zero-shot",
        domain="none",
        domain_noise=0.0,
        k=0,
        parameters=GenerationSettings(),
        repeat=0,
        control=None,
    )


def _card(examples: Sequence[Example]) -> CorpusCard:
    digest = hashlib.sha256(
        "\n".join(repr((e.query.query_id, e.query.text, e.references)) for e in examples).encode("utf-8", "replace")
    )
    n = len(examples)
    return CorpusCard(
        name=_CORPUS,
        documents=0,
        held_out=n,
        sampled=n,
        unusable=0,
        labels=(),
        domain_kind="path",
        generation=0,
        fingerprint=digest.hexdigest(),
        retrievers=(),
        source={},
    )


def _metrics(texts: Sequence[str], examples: Sequence[Example]) -> CellMetrics:
    columns = answer_columns(texts, examples)
    digest = hashlib.sha256("\n".join(map(repr, texts)).encode("utf-8", "replace"))
    n = len(texts)
    return CellMetrics(
        n=n,
        answered=n,
        failed=0,
        complete=True,
        values={metric: tuple(column) for metric, column in columns.items()},
        inputs=digest.hexdigest(),
    )


def _environment() -> dict[str, object]:
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"dmnrag": __version__, "python": platform.python_version()},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }
