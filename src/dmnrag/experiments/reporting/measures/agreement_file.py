"""Domain agreement of every cell, kept in the results folder: `corpora/NAME/agreement.json`.

Reports read folders alone, and the classifier needs the index. So the experiment measures it once its cells are
answered, and again only for cells whose answers changed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict

from dmnrag._io import write_json_atomic
from dmnrag.experiments.records import Cell, read_value, to_json
from dmnrag.experiments.reporting.measures.agreement import DomainReader
from dmnrag.experiments.results import ResultsFolder
from dmnrag.types import Document

_FILE = "agreement.json"


@dataclass(frozen=True, slots=True)
class CellAgreement:
    """One cell's values."""

    inputs: str
    """Of the cell's metrics: other answers have others."""
    values: tuple[float | None, ...]
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a classifier trained on the answers of one index sees in the cells' answers."""

    fingerprint: str
    """Of the corpus it was trained on."""
    references: tuple[float | None, ...]
    """The same for the first right answer of each question: the most that answers can be expected to reach."""
    cells: Mapping[str, CellAgreement]
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


def read_agreement(folder: ResultsFolder, corpus: str) -> Agreement | None:
    """What was measured; None where nothing was."""
    path = _path(folder, corpus)
    return read_value(Agreement, path) if path.is_file() else None


def measure_agreement(folder: ResultsFolder, corpus: str, documents: Callable[[], Iterable[Document]]) -> bool:
    """Measure the finished cells of a corpus that have no values yet, or have other answers now.

    Args:
        folder: of the experiment.
        corpus: its name.
        documents: of the index; called only where a classifier must be trained.

    Returns:
        Whether anything was measured. Nothing is with fewer than two domains, which cannot be told apart.

    Raises:
        DataError: the index's answers cannot be learnt from, or a file of the folder is damaged.
        MissingDependencyError: the extra `report` is not installed.
    """
    card = folder.card(corpus)
    labels = {label for domain, _ in card.labels for label in (domain if card.domain_kind == "set" else domain[-1:])}
    known = read_agreement(folder, corpus)
    kept = known.cells if known is not None and known.fingerprint == card.fingerprint else {}
    finished = _finished(folder, corpus)
    missing = {cell: inputs for cell, inputs in finished.items() if _inputs(kept.get(cell.id)) != inputs}
    if len(labels) < 2 or not missing:
        return False
    reader = DomainReader.train(documents(), card.domain_kind)
    questions = folder.questions(corpus)
    domains = [example.query.domain for example in questions]
    cells = {cell.id: kept[cell.id] for cell in finished if cell not in missing}
    for cell, inputs in missing.items():
        given = {row.query_id: None if row.error else row.answer for row in folder.predictions(cell)}
        texts = [given.get(example.query.query_id) for example in questions]
        cells[cell.id] = CellAgreement(inputs, reader.agreement(texts, domains))
    references = reader.agreement([example.references[0] for example in questions], domains)
    write_json_atomic(_path(folder, corpus), to_json(Agreement(card.fingerprint, references, cells)))
    return True


def _path(folder: ResultsFolder, corpus: str) -> Path:
    return folder.corpus_folder(corpus) / _FILE


def _finished(folder: ResultsFolder, corpus: str) -> dict[Cell, str]:
    """Cells of the corpus whose figures are whole, and what these rest on."""
    found = {}
    for cell in folder.cells():
        metrics = folder.metrics(cell) if cell.corpus == corpus else None
        if metrics is not None and metrics.complete:
            found[cell] = metrics.inputs
    return found


def _inputs(known: CellAgreement | None) -> str | None:
    return None if known is None else known.inputs
