"""The vectors of one segment on disk: plain `.npy` files, memory-mapped when read.

`vectors.npy` (n_parts, dimension) float32, `owners.npy` (n_parts,) the document of each part within the
segment, `dense.json` their sizes, and with `kind="hnsw"` the graph. Knows nothing of ids or liveness.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmnrag._io import fsync_path, write_json_atomic
from dmnrag.errors import ConfigError, IndexDamagedError
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.arrays import ArrayWriter, map_array, save_array
from dmnrag.retrieval.dense.graph import write_graph
from dmnrag.retrieval.dense.passages import EncodedDocuments
from dmnrag.retrieval.dense.settings import DenseSettings

GRAPH_FILE = "graph.faiss"

_VECTORS_FILE, _OWNERS_FILE, _SIZES_FILE = "vectors.npy", "owners.npy", "dense.json"

_ROWS_AT_ONCE = 65_536
"""Rows copied at once when segments are joined: 100 MB of 384 numbers."""

Owners = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class VectorSegment:
    """An open segment."""

    folder: Path
    vectors: FloatMatrix
    """(n_parts, dimension), mapped."""
    owners: Owners
    """(n_parts,)."""
    n_documents: int


def write_vectors(folder: Path, encoded: EncodedDocuments, settings: DenseSettings) -> None:
    """Write a segment; it is on the disk when this returns.

    Raises:
        ConfigError: there is nothing to write.
    """
    _write(folder, [encoded.vectors], encoded.owners, settings)


def document_vectors(folder: Path) -> Iterator[FloatMatrix]:
    """The (n_parts, dimension) of each document of a segment in order, as views of the file.

    Raises:
        IndexDamagedError: a file is missing, cut short or does not fit the others.
    """
    segment = open_vectors(folder)
    bounds = np.searchsorted(segment.owners, np.arange(segment.n_documents + 1)).tolist()
    return (segment.vectors[start:stop] for start, stop in pairwise(bounds))


def merge_vectors(
    folder: Path, segments: Sequence[Path], live_masks: Sequence[Mask | None], settings: DenseSettings
) -> int:
    """Write one segment with the live documents of all given ones, in order; returns their number.

    Args:
        folder: created where it is missing.
        segments: folders to join; left as they are.
        live_masks: for each segment (n_documents,) False where removed; None where all live.
        settings: says whether the new segment gets a graph.

    Raises:
        ConfigError: masks that do not fit, encoders of different dimension, or nothing left.
        IndexDamagedError: a segment is damaged.
    """
    opened = [open_vectors(path) for path in segments]
    if len(live_masks) != len(opened):
        raise ConfigError(f"{len(live_masks)} masks for {len(opened)} segments: give one for each")
    if len({segment.vectors.shape[1] for segment in opened}) > 1:
        raise ConfigError("segments of different dimension cannot be joined: they come from different encoders")
    blocks, owners, n_before = [], [], 0
    for segment, mask in zip(opened, live_masks, strict=True):
        live = np.ones(segment.n_documents, np.bool_) if mask is None else mask
        if len(live) != segment.n_documents:
            raise ConfigError(f"a mask of {len(live)} entries for a segment of {segment.n_documents} documents")
        rows = np.flatnonzero(live[segment.owners])
        blocks.append((segment.vectors, rows))
        owners.append((np.cumsum(live, dtype=np.int64) - 1 + n_before)[segment.owners[rows]])
        n_before += int(live.sum())
    _write(folder, _pieces(blocks), np.concatenate(owners) if owners else np.empty(0, np.int64), settings)
    return n_before


def open_vectors(folder: Path) -> VectorSegment:
    """Map a segment into memory.

    Raises:
        IndexDamagedError: a file is missing, cut short or does not fit the others; names it.
    """
    sizes = _read_sizes(folder / _SIZES_FILE)
    vectors = _map(folder / _VECTORS_FILE, np.float32, (sizes["parts"], sizes["dimension"]))
    owners = _map(folder / _OWNERS_FILE, np.int64, (sizes["parts"],))
    steps = np.diff(owners, prepend=-1)
    # The first is 0, each document follows the one before it, and the last one has a part.
    if steps[0] != 1 or not np.isin(steps, (0, 1)).all() or owners[-1] != sizes["documents"] - 1:
        raise _damaged(folder / _OWNERS_FILE, "it does not list the documents in order")
    return VectorSegment(folder, vectors, owners, sizes["documents"])


def _write(
    folder: Path,
    blocks: Iterator[FloatMatrix] | Sequence[FloatMatrix],
    owners: Owners,
    settings: DenseSettings,
) -> None:
    if not len(owners):
        raise ConfigError(f"there is no document to write into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _VECTORS_FILE
    pieces = iter(blocks)
    first = next(pieces, None)
    if first is None:
        raise ConfigError(f"0 vectors for {len(owners)} parts: there must be one for each")
    shape = (len(owners), first.shape[1])
    done = 0
    with ArrayWriter(path, np.float32, shape[1:]) as writer:
        for block in chain([first], pieces):
            writer.append(block)
            done += len(block)
    if done != len(owners):
        raise ConfigError(f"{done} vectors for {len(owners)} parts: there must be one for each")
    save_array(folder / _OWNERS_FILE, owners.astype(np.int64))
    if settings.kind == "hnsw":
        write_graph(folder / GRAPH_FILE, _map(path, np.float32, shape), settings)
    sizes = {"documents": int(owners[-1]) + 1, "parts": len(owners), "dimension": shape[1]}
    write_json_atomic(folder / _SIZES_FILE, sizes)
    fsync_path(folder)


def _pieces(blocks: Sequence[tuple[FloatMatrix, Owners]]) -> Iterator[FloatMatrix]:
    for vectors, rows in blocks:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            yield vectors[rows[start : start + _ROWS_AT_ONCE]]


def _read_sizes(path: Path) -> dict[str, int]:
    try:
        sizes = json.loads(path.read_text(encoding="utf-8"))
        return {name: int(sizes[name]) for name in ("documents", "parts", "dimension")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, str(error)) from error


def _map(path: Path, dtype: type, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    try:
        mapped = map_array(path)
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if mapped.dtype != dtype or mapped.shape != shape:
        raise _damaged(path, f"it should hold {shape} numbers of kind {np.dtype(dtype).name}")
    return mapped


def _damaged(path: Path, why: str) -> IndexDamagedError:
    return IndexDamagedError(f"{path} cannot be used ({why}); restore it, or build the index again")
