"""A domain model on disk: JSON and plain arrays, nothing that executes on load.

`model.json` settings, labels, intercepts, calibration and figures; `terms.json` the weighed terms in order; `idf.npy`
(n_terms,) float32; `weights.npy` (n_terms, n_labels) float16, mapped into memory when read.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from dmnrag._io import write_bytes_atomic, write_json_atomic
from dmnrag.domain.labels import LabelTree
from dmnrag.domain.settings import DomainSettings
from dmnrag.domain.terms import TermWeights, term_segmenter
from dmnrag.domain.training import HeldOut, Learnt
from dmnrag.errors import IndexDamagedError, IndexVersionError
from dmnrag.retrieval.arrays import map_array, save_array

FORMAT_VERSION = 1
"""Raised by every change that an older release could not read."""

_MODEL, _TERMS, _IDF, _WEIGHTS = "model.json", "terms.json", "idf.npy", "weights.npy"


_Parameters = tuple[float, float, float]


class _Stored(BaseModel):
    """`model.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    format_version: int
    settings: DomainSettings
    labels: list[tuple[str, ...]]
    """Paths, in the order of the columns."""
    intercepts: list[float]
    calibration: list[tuple[_Parameters, _Parameters]]
    """Of each depth: a, b and c with the rival and without."""
    unknown_idf: float
    held_out: HeldOut
    n_documents: int


def write_model(folder: Path, learnt: Learnt, settings: DomainSettings) -> None:
    """Write into a folder, made where it is missing; `model.json` last."""
    folder.mkdir(parents=True, exist_ok=True)
    save_array(folder / _IDF, learnt.terms.idf)
    save_array(folder / _WEIGHTS, learnt.weights)
    write_bytes_atomic(folder / _TERMS, json.dumps(list(learnt.terms.numbers), ensure_ascii=False).encode())
    stored = _Stored(
        format_version=FORMAT_VERSION,
        settings=settings,
        labels=list(learnt.tree.paths),
        intercepts=learnt.intercepts.tolist(),
        calibration=learnt.calibration.tolist(),
        unknown_idf=learnt.terms.unknown_idf,
        held_out=learnt.held_out,
        n_documents=learnt.n_documents,
    )
    write_json_atomic(folder / _MODEL, stored.model_dump())


def read_model(folder: Path) -> tuple[Learnt, DomainSettings]:
    """What `write_model` wrote.

    Raises:
        IndexDamagedError: a file is missing, cut short, or does not fit the others.
        IndexVersionError: written by a newer release.
    """
    stored = _read_stored(folder / _MODEL)
    try:
        terms = TypeAdapter(list[str]).validate_json((folder / _TERMS).read_bytes())
        idf, weights = map_array(folder / _IDF), map_array(folder / _WEIGHTS)
    except (OSError, ValueError) as error:
        raise _damaged(folder, error) from error
    tree = LabelTree(stored.settings.kind, tuple(stored.labels))
    n_labels = len(tree)
    _check(folder, "labels", _is_tree(tree))
    _check(folder, "intercepts", len(stored.intercepts) == n_labels)
    _check(folder, "calibration", len(stored.calibration) == len(tree.depths))
    _check(folder, "terms", idf.shape == (len(terms),) == (len(set(terms)),) and idf.dtype == np.float32)
    _check(folder, "weights", weights.shape == (len(terms), n_labels) and weights.dtype == np.float16)
    segmenter = term_segmenter(simplify=stored.settings.simplify)
    numbers = {term: number for number, term in enumerate(terms)}
    learnt = Learnt(
        tree,
        TermWeights(segmenter, numbers, np.asarray(idf), stored.unknown_idf),
        weights,
        np.array(stored.intercepts),
        np.array(stored.calibration),
        stored.held_out,
        stored.n_documents,
    )
    return learnt, stored.settings


def _read_stored(path: Path) -> _Stored:
    try:
        content: Any = json.loads(path.read_bytes())
        version = content["format_version"]
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise IndexVersionError(
                f"{path} has format {version}, this release reads up to {FORMAT_VERSION}; use a newer release of dmnrag"
            )
        return _Stored.model_validate(content)
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise _damaged(path, error) from error


def _is_tree(tree: LabelTree) -> bool:
    """Labels in order, each once, and none without those above it."""
    ordered = sorted(tree.number_of, key=lambda path: (len(path), path))
    rooted = all(len(path) == 1 or (path and path[:-1] in tree.number_of) for path in ordered)
    return bool(ordered) and rooted and list(tree.paths) == ordered


def _check(folder: Path, what: str, fits: bool) -> None:
    if not fits:
        raise _damaged(folder, ValueError(f"its {what} do not fit the rest"))


def _damaged(path: Path, error: Exception) -> IndexDamagedError:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        why = f"{'.'.join(str(part) for part in first['loc'])} {first['msg']}"
    else:
        why = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
    return IndexDamagedError(f"{path} is not a usable domain model ({why}); restore it or build the index again")
