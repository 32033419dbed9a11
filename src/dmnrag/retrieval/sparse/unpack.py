"""The terms of each document, read back from a segment: what moves an index without segmenting again.

A segment keeps documents by term; this turns a block of documents at a time around. Memory is bounded by the
block, the cost is a look at all postings for each block.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dmnrag.retrieval.sparse.segment import Postings, Segment

BLOCK_DOCUMENTS = 50_000
"""Turned around at once: some 100 terms each, 24 bytes a term while they are sorted."""

Terms = list[str]


def segment_terms(folder: Path, *, block_documents: int = BLOCK_DOCUMENTS) -> Iterator[tuple[Terms, Terms]]:
    """The terms of each document's text and those of its labels, repeated as often as they occur, in any order.

    Raises:
        IndexDamagedError: a file is missing, cut short, or does not fit the others.
    """
    segment = Segment.open(folder)
    for first in range(0, len(segment), block_documents):
        end = min(first + block_documents, len(segment))
        texts, both = _block(segment.text, first, end), _block(segment.joint, first, end)
        for text, joint in zip(texts, both, strict=True):
            # Joint postings count text and labels together, for the terms that labels consist of.
            of_labels = {term: count - text.get(term, 0) for term, count in joint.items()}
            yield _repeat(text), _repeat(of_labels)


def _block(postings: Postings, first: int, end: int) -> Iterator[dict[bytes, int]]:
    """Counts of the terms of each document from `first` up to, but not including, `end`."""
    places = np.flatnonzero((postings.docs >= first) & (postings.docs < end))
    docs: npt.NDArray[np.int64] = postings.docs[places].astype(np.int64) - first
    order = np.argsort(docs, kind="stable")
    places, docs = places[order], docs[order]
    terms = np.searchsorted(postings.starts, places, side="right") - 1
    counts = postings.counts[places]
    bounds = np.searchsorted(docs, np.arange(end - first + 1))
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        numbers, of_document = terms[start:stop].tolist(), counts[start:stop].tolist()
        yield {postings.terms[number]: count for number, count in zip(numbers, of_document, strict=True)}


def _repeat(counts: dict[bytes, int]) -> Terms:
    return [term.decode("utf-8", "surrogatepass") for term, count in counts.items() for _ in range(count)]
