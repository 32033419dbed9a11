"""Embedded BM25: scores eq. 2 over memory-mapped segments, exactly, for plain and joint retrieval.

Statistics (N, n, avgdl) are those of the live documents, so adding and removing documents scores as
one build of what remains. A domain filter restricts the hits, not the statistics: the same document
has the same score with and without it. Knows no files but its segments.
To add another BM25 backend, fulfil `SparseIndex` and pass `dmnrag.testing.sparse_contract`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmnrag.errors import IndexDamagedError
from dmnrag.protocols import Segmenter
from dmnrag.retrieval.sparse import formulas
from dmnrag.retrieval.sparse.query import check_request, searches_labels, select_terms, weigh_queries
from dmnrag.retrieval.sparse.scoring import ScoredTerm, best_documents
from dmnrag.retrieval.sparse.segment import Lists, Segment
from dmnrag.retrieval.sparse.settings import Bm25Settings
from dmnrag.retrieval.table import DocumentTable, Mask, Ordinals, best_hits
from dmnrag.types import JOINT, Domain, DomainUse, Hit, Query


@dataclass(frozen=True, slots=True)
class _Part:
    """A segment and where its documents stand among all."""

    segment: Segment
    span: slice
    """Global ordinals of its documents."""


class _QueryTerm(NamedTuple):
    """A term of a query that some live document has."""

    weight: float
    """Its count in the query times its IDF."""
    lists: list[Lists | None]
    """Its postings in each segment."""


class EmbeddedSparseIndex:
    """BM25 over segments on this machine's disk. Read only; safe to use from several threads."""

    def __init__(
        self, segments: Sequence[Path], table: DocumentTable, segmenter: Segmenter, settings: Bm25Settings
    ) -> None:
        """Map the segments; their documents, one segment after the other, are those of `table`.

        Raises:
            IndexDamagedError: a segment is damaged, or they do not hold as many documents as the table.
        """
        self._table = table
        self._segmenter = segmenter
        self._settings = settings
        self._parts: list[_Part] = []
        n_documents = 0
        for segment in map(Segment.open, segments):
            self._parts.append(_Part(segment, slice(n_documents, n_documents + len(segment))))
            n_documents += len(segment)
        if n_documents != len(table):
            folders = ", ".join(map(str, segments)) or "no segment"
            raise IndexDamagedError(
                f"{folders}: {n_documents} documents where the index has {len(table)}; restore it or rebuild"
            )
        self._live = table.allowed(None)
        self._factors: dict[bool, list[formulas.Floats]] = {}

    def search(
        self,
        queries: Sequence[Query],
        k: int,
        *,
        use: DomainUse = JOINT,
        allowed: Sequence[Domain | None] | None = None,
    ) -> list[list[Hit]]:
        """The k best documents of each query by eq. 2, best first, ties by doc_id.

        Args:
            queries: a query without a term that the documents have gets no hits.
            k: fewer hits come where fewer documents score above 0.
            use: how the domain takes part; a weight of 0 is plain retrieval.
            allowed: for each query the labels of which a hit must carry one; None for any document,
                an empty tuple for none. Applied before scoring; N, n and avgdl stay those of the collection.

        Returns:
            Hits of each query. Cost: linear in the postings of the query's terms and in the documents.

        Raises:
            QueryError: k below 1, or not one filter for each query.
        """
        check_request(queries, k, allowed)
        joint = searches_labels(use)
        rankings = []
        for number, counts in enumerate(weigh_queries(queries, self._segmenter, use)):
            mask = self._table.allowed(None if allowed is None else allowed[number])
            rankings.append(self._rank(counts, k, joint, mask))
        return rankings

    def _rank(self, counts: Mapping[str, float], k: int, joint: bool, mask: Mask | None) -> list[Hit]:
        terms = self._find(counts, joint)
        found = [self._score(number, terms, k, joint, mask) for number in range(len(self._parts))]
        if not terms or not found:
            return []
        ordinals, scores = (np.concatenate(column) for column in zip(*found, strict=True))
        return best_hits(ordinals, scores, k, self._table)

    def _find(self, counts: Mapping[str, float], joint: bool) -> list[_QueryTerm]:
        """The query's most informative terms with their postings, by falling weight, ties by term."""
        encoded = [term.encode("utf-8", "surrogatepass") for term in counts]
        found = [part.segment.find_all(encoded, joint=joint) for part in self._parts]
        lists = {term: [of_part[i] for of_part in found] for i, term in enumerate(counts)}
        frequencies = {term: self._document_frequency(of_term) for term, of_term in lists.items()}
        idf = {t: formulas.idf(self._table.n_live, n) for t, n in frequencies.items() if n}
        selected = [_QueryTerm(counts[t] * idf[t], lists[t]) for t in select_terms(counts, idf)]
        return sorted(selected, key=lambda term: -term.weight)

    def _document_frequency(self, lists: Sequence[Lists | None]) -> int:
        """Live documents that have a term."""
        if self._live is None:
            return sum([len(found[0]) for found in lists if found is not None])
        return sum(
            int(np.count_nonzero(self._live[part.span][found[0]]))
            for part, found in zip(self._parts, lists, strict=True)
            if found is not None
        )

    def _score(
        self, number: int, terms: Sequence[_QueryTerm], k: int, joint: bool, mask: Mask | None
    ) -> tuple[Ordinals, formulas.Floats]:
        """Global ordinals and scores of one segment's best documents."""
        lists = [(term.weight, term.lists[number]) for term in terms]
        here = [ScoredTerm(weight, *found) for weight, found in lists if found is not None]
        if not here:
            return np.zeros(0, np.int64), np.zeros(0)
        span = self._parts[number].span
        factors = self._length_factors(joint)[number]
        documents, scores = best_documents(here, factors, self._settings.k1, k, None if mask is None else mask[span])
        return documents + span.start, scores

    def _length_factors(self, joint: bool) -> list[formulas.Floats]:
        """The length part of eq. 2 for each document of each segment, computed at the first search."""
        if joint not in self._factors:
            lengths = [part.segment.lengths(joint=joint) for part in self._parts]
            rounded = [formulas.lucene_length(of) for of in lengths] if self._settings.lucene_lengths else lengths
            average = self._average_length(lengths)
            self._factors[joint] = [
                formulas.length_factor(of, average, self._settings.k1, self._settings.b) for of in rounded
            ]
        return self._factors[joint]

    def _average_length(self, lengths: Sequence[npt.NDArray[np.int32]]) -> float:
        """avgdl of the live documents, from exact lengths."""
        total = 0
        for part, of_part in zip(self._parts, lengths, strict=True):
            live = of_part if self._live is None else of_part[self._live[part.span]]
            total += int(live.sum(dtype=np.int64))
        return total / self._table.n_live
