"""HNSW graphs by FAISS (Malkov and Yashunin 2016): approximate nearest vectors by inner product.

One file per segment, memory-mapped when read. Knows rows of a matrix, nothing of documents.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmnrag._io import fault_point, fsync_path
from dmnrag._optional import require
from dmnrag.errors import IndexDamagedError
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.dense.settings import DenseSettings

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

_ADDED_AT_ONCE = 16_384
"""Rows handed to FAISS at once, so that a mapped matrix is not copied whole."""


def write_graph(path: Path, vectors: FloatMatrix, settings: DenseSettings) -> None:
    """Build and store the graph of the rows of `vectors`. In one thread: the same graph each time."""
    faiss = require("faiss", "dense")
    graph = faiss.IndexHNSWFlat(vectors.shape[1], settings.hnsw_m, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = settings.hnsw_ef_construction
    with _one_thread(faiss):
        for start in range(0, len(vectors), _ADDED_AT_ONCE):
            graph.add(np.ascontiguousarray(vectors[start : start + _ADDED_AT_ONCE]))
    fault_point("write", path)
    try:
        faiss.write_index(graph, str(path))
    except RuntimeError as error:  # what FAISS makes of a full disk
        raise OSError(errno.EIO, f"the graph cannot be written ({error})", str(path)) from error
    fsync_path(path)


class Graph:
    """A stored graph, open for searching."""

    def __init__(self, path: Path, shape: tuple[int, int]) -> None:
        """`shape` (n_rows, dimension) is what the graph should hold.

        Raises:
            IndexDamagedError: missing, cut short, or of another shape.
        """
        faiss = require("faiss", "dense")
        try:
            self._graph: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise IndexDamagedError(f"{path} cannot be read ({error}); build the index again") from error
        if not isinstance(self._graph, faiss.IndexHNSWFlat) or (self._graph.ntotal, self._graph.d) != shape:
            raise IndexDamagedError(f"{path} is no graph of {shape[0]} vectors; build the index again")

    def nearest(self, queries: FloatMatrix, depth: int, ef: int, kept: Mask | None) -> tuple[Scores, Rows]:
        """Inner products and rows of about the `depth` nearest (n_queries, depth), best first.

        Where it finds fewer, the rows are -1 and the products below any other.
        """
        faiss = require("faiss", "dense")
        depth = min(depth, self._graph.ntotal)
        bits = None if kept is None else np.packbits(kept, bitorder="little")
        parameters = faiss.SearchParametersHNSW(
            efSearch=max(ef, depth), sel=None if bits is None else faiss.IDSelectorBitmap(bits)
        )
        scores, rows = self._graph.search(queries, depth, params=parameters)
        return scores, rows


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    former = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(former)
