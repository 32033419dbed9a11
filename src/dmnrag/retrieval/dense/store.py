"""Second layer, embedded: vectors in mapped files, searched by FAISS; a document counts with its best part.

`exact` compares every passage. `hnsw` walks a graph per segment; where few passages are asked for (a small
index, a narrow filter) or the graph finds too few, everything is compared all the same. Scores are inner
products, exact either way; any score is a hit, 0 and below included, because only their order means
something. Ties by doc_id.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dmnrag.errors import ConfigError, IndexDamagedError, QueryError
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.dense.graph import Graph
from dmnrag.retrieval.dense.nearest import Candidates, inner_products, join, nearest_rows
from dmnrag.retrieval.dense.settings import DenseSettings
from dmnrag.retrieval.dense.vectors import GRAPH_FILE, VectorSegment, open_vectors
from dmnrag.retrieval.table import DocumentTable, best_hits
from dmnrag.types import Domain, Hit

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

_SPARE = 16
"""Candidates beyond k in the first pass, so that a tie at rank k is usually seen whole."""

_ROUNDING = 1e-5
"""FAISS's float32 inner product of vectors of length 1 is within this of the exact one."""

_FEW_ROWS = 20_000
"""Where there are no more rows than this, or a filter keeps no more, comparing them is fast and exact."""

_QUERIES_AT_ONCE = 1024
"""Bounds the memory of candidates."""


class FaissDenseIndex:
    """Nearest documents by inner product."""

    def __init__(self, segments: Sequence[Path], table: DocumentTable, settings: DenseSettings) -> None:
        """Open the segments' folders, in the order in which `table` numbers their documents.

        Raises:
            IndexDamagedError: a file is missing, cut short or does not fit the others.
        """
        self._segments = [open_vectors(folder) for folder in segments]
        self._table = table
        self._settings = settings
        n_documents = sum(segment.n_documents for segment in self._segments)
        dimensions = {segment.vectors.shape[1] for segment in self._segments}
        if n_documents != len(table) or len(dimensions) != 1:
            where = segments[0].parent if segments else "the index"
            raise IndexDamagedError(
                f"the vectors in {where} are of {n_documents} documents and dimensions {sorted(dimensions)}; "
                f"the index has {len(table)} documents and needs one dimension: build it again"
            )
        self.dimension: int = dimensions.pop()
        first_documents = np.cumsum([0, *(s.n_documents for s in self._segments)])
        self._first_rows = np.cumsum([0, *(len(s.owners) for s in self._segments)])  # (n_segments + 1,)
        self._owners: Rows = np.concatenate(
            [segment.owners + first for segment, first in zip(self._segments, first_documents, strict=False)]
        )  # (n_parts,) ordinals, never falling
        self._graphs = [
            Graph(s.folder / GRAPH_FILE, s.vectors.shape) for s in self._segments if settings.kind == "hnsw"
        ]

    def search(
        self, vectors: FloatMatrix, k: int, *, allowed: Sequence[Domain | None] | None = None
    ) -> list[list[Hit]]:
        """The k documents with the highest inner product, best first, ties by doc_id.

        Args:
            vectors: (n_queries, dimension), from the encoder that the index was built with.
            k: hits wanted; fewer only where fewer documents are allowed.
            allowed: for each query labels of which a document must carry one, or None for no filter.

        Raises:
            QueryError: k below 1, not one filter per query, or numbers that are not finite.
            ConfigError: vectors of another dimension than the index's.
        """
        queries = self._check(vectors, k)
        filters = [None] * len(queries) if allowed is None else list(allowed)
        if len(filters) != len(queries):
            raise QueryError(f"{len(filters)} filters for {len(queries)} queries: give one for each, or none at all")
        hits: list[list[Hit]] = [[] for _ in queries]
        for labels in dict.fromkeys(filters):
            asking = [i for i, wanted in enumerate(filters) if wanted == labels]
            mask = self._table.allowed(labels)
            for start in range(0, len(asking), _QUERIES_AT_ONCE):
                chosen = asking[start : start + _QUERIES_AT_ONCE]
                for i, found in zip(chosen, self._search(queries[chosen], k, mask), strict=True):
                    hits[i] = found
        return hits

    def rescore(self, vectors: FloatMatrix, candidates: Sequence[Sequence[str]], k: int) -> list[list[Hit]]:
        """The k best of each query's candidates, scored exactly; ids that are not there are passed over.

        Raises:
            QueryError: k below 1, not one list per query, or numbers that are not finite.
            ConfigError: vectors of another dimension than the index's.
        """
        queries = self._check(vectors, k)
        if len(candidates) != len(queries):
            raise QueryError(f"{len(candidates)} lists of candidates for {len(queries)} queries: give one for each")
        hits = []
        for query, doc_ids in zip(queries, candidates, strict=True):
            known = {o for o in self._table.ordinals(doc_ids) if o is not None}
            rows = self._rows_of(np.array(sorted(known), np.int64))
            hits.append(self._rank(query, rows, k)[0])
        return hits

    def _check(self, vectors: FloatMatrix, k: int) -> FloatMatrix:
        if k < 1:
            raise QueryError(f"k is {k}: allowed are whole numbers from 1")
        queries = np.ascontiguousarray(vectors, np.float32)
        if queries.ndim != 2 or (len(queries) and queries.shape[1] != self.dimension):
            raise ConfigError(
                f"query vectors of shape {queries.shape} for an index of dimension {self.dimension}: search "
                f"with the encoder it was built with, {self._settings.encoder!r}"
            )
        if not np.isfinite(queries).all():
            raise QueryError("a query vector holds numbers that are not finite: its encoder is damaged")
        return queries

    def _search(self, queries: FloatMatrix, k: int, mask: Mask | None) -> list[list[Hit]]:
        """Widen the candidates until none outside them can be among the k best."""
        hits: list[list[Hit]] = [[] for _ in queries]
        n_allowed = len(self._table) if mask is None else int(mask.sum())
        wanted = min(k, n_allowed)
        kept = None if mask is None else mask[self._owners]
        n_rows = len(self._owners) if kept is None else int(kept.sum())
        by_graph = bool(self._graphs) and n_rows > _FEW_ROWS
        open_queries = np.arange(len(queries)) if wanted else np.arange(0)
        depth = wanted + _SPARE
        while len(open_queries):
            find = self._by_graph if by_graph else self._by_comparing
            found = find(queries[open_queries], depth, kept)
            still_open = []
            for i, rows, floor in zip(open_queries, found.rows, found.floor, strict=True):
                hits[i], slack = self._rank(queries[i], rows[rows >= 0], wanted)
                if len(hits[i]) < wanted or hits[i][-1].score - slack <= floor:
                    still_open.append(i)
            open_queries = np.array(still_open, np.int64)
            # Where a graph found too few documents or a tie at rank k, comparing everything settles it.
            depth, by_graph = depth if by_graph else 2 * depth, False
        return hits

    def _rank(self, query: npt.NDArray[np.float32], rows: Rows, k: int) -> tuple[list[Hit], float]:
        """The best documents among some rows, and how far FAISS's scores of such rows may be off."""
        if not len(rows):
            return [], 0.0
        rows = np.sort(rows)
        vectors = self._take(rows)
        scores = inner_products(query, vectors)
        owners = self._owners[rows]
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        best = np.maximum.reduceat(scores, starts)
        lengths = float(np.linalg.norm(query)) * float(np.sqrt((vectors * vectors).sum(axis=1).max()))
        return best_hits(owners[starts], best, k, self._table), _ROUNDING * lengths

    def _by_comparing(self, queries: FloatMatrix, depth: int, kept: Mask | None) -> Candidates:
        return join(
            [
                nearest_rows(queries, segment.vectors, depth, None if kept is None else kept[first:end], first)
                for segment, first, end in self._placed()
            ]
        )

    def _by_graph(self, queries: FloatMatrix, depth: int, kept: Mask | None) -> Candidates:
        # A filter hides most of what the walk meets, so the walk keeps as many more.
        share = 1.0 if kept is None else float(kept.mean())
        ef = int(self._settings.hnsw_ef_search / share)
        found = []
        for graph, (_, first, end) in zip(self._graphs, self._placed(), strict=True):
            scores, rows = graph.nearest(queries, depth, ef, None if kept is None else kept[first:end])
            # What is below the last one found is taken to be known: that is the approximation.
            floor = np.where(rows[:, -1] >= 0, scores[:, -1], np.float32(-np.inf))
            found.append(Candidates(np.where(rows >= 0, rows + first, -1), floor))
        return join(found)

    def _placed(self) -> Iterator[tuple[VectorSegment, int, int]]:
        """Each segment with its first row and the row behind its last one."""
        return zip(self._segments, self._first_rows[:-1].tolist(), self._first_rows[1:].tolist(), strict=True)

    def _rows_of(self, ordinals: Rows) -> Rows:
        """All rows of the given documents (ordinals rising)."""
        starts = np.searchsorted(self._owners, ordinals)
        counts = np.searchsorted(self._owners, ordinals, side="right") - starts
        ends = np.cumsum(counts)
        return np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)

    def _take(self, rows: Rows) -> FloatMatrix:
        """Vectors of rising row numbers (n_rows, dimension)."""
        bounds = np.searchsorted(rows, self._first_rows)
        spans = zip(bounds[:-1], bounds[1:], self._placed(), strict=True)
        return np.concatenate([segment.vectors[rows[a:b] - first] for a, b, (segment, first, _) in spans if b > a])
