"""Build a segment from texts and labels, in a stream and in bounded memory.

Documents are segmented and counted in chunks. A corpus of one chunk is written straight away; of
more, each chunk becomes a segment of its own in a hidden folder and `merge_segments` joins them.
"""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dmnrag._io import delete_folder, fault_point, fsync_path
from dmnrag.errors import IndexFolderError
from dmnrag.protocols import Segmenter
from dmnrag.retrieval.sparse.encode import Ids, TermEncoder, encoder_for
from dmnrag.retrieval.sparse.merge import merge_segments
from dmnrag.retrieval.sparse.segment import Postings, Segment, TermList
from dmnrag.types import Domain

CHUNK_TOKENS = 2**24
"""Terms counted at once: some 100,000 documents of 170 characters, 24 bytes each while counting, 400 MB."""

_NOTHING = np.zeros(0, np.int32)


def write_segment(
    folder: Path,
    documents: Iterable[tuple[str, Domain]],
    segmenter: Segmenter,
    *,
    on_progress: Callable[[int], None] | None = None,
    chunk_tokens: int = CHUNK_TOKENS,
) -> int:
    """Index documents into a new segment, durable when this returns.

    Args:
        folder: created; must not hold anything yet.
        documents: (searched text, labels) of each document, read once; local ordinals follow their order.
        segmenter: the one that will segment the queries.
        on_progress: called with the number of documents done since the last call.
        chunk_tokens: terms counted at once; bounds the memory, does not change the result.

    Returns:
        The number of documents. Cost: linear, mostly segmentation.

    Raises:
        IndexFolderError: `folder` is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise IndexFolderError(f"{folder} is not empty: a segment is never written over; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    chunks = _count_chunks(iter(documents), segmenter, chunk_tokens, on_progress or (lambda _: None))
    first = next(chunks)
    second = next(chunks, None)
    if second is None:
        first.save(folder)
        fsync_path(folder)
        return len(first)
    return _merge_chunks(folder, chain([first, second], chunks))


def _merge_chunks(folder: Path, chunks: Iterable[Segment]) -> int:
    parts: list[Path] = []
    hidden = folder / ".chunks"
    try:
        for chunk in chunks:
            parts.append(hidden / f"{len(parts):06d}")
            parts[-1].mkdir(parents=True)
            chunk.save(parts[-1])
        n_documents = merge_segments(folder, parts, [None] * len(parts))
    except BaseException:
        delete_folder(hidden)
        raise
    fault_point("delete", hidden)
    shutil.rmtree(hidden)  # left behind it would count as a part of the index, so a failure is an error
    return n_documents


def _count_chunks(
    documents: Iterator[tuple[str, Domain]],
    segmenter: Segmenter,
    chunk_tokens: int,
    on_progress: Callable[[int], None],
) -> Iterator[Segment]:
    """Segments of about `chunk_tokens` terms each; at least one, maybe empty."""
    encoder = encoder_for(segmenter)
    counter = _Counter(segmenter, encoder)
    while batch := list(islice(documents, encoder.batch)):
        if counter.n_tokens >= chunk_tokens:
            yield counter.segment()
            counter = _Counter(segmenter, encoder)
        counter.add(batch)
        on_progress(len(batch))
    yield counter.segment()


class _Counter:
    """Terms of one chunk as numbers, in order of first sight, until they are counted."""

    def __init__(self, segmenter: Segmenter, encoder: TermEncoder) -> None:
        self._segmenter = segmenter
        self._encoder = encoder
        self._number_of: defaultdict[str, int] = defaultdict()
        self._number_of.default_factory = self._number_of.__len__
        self._label_ids: dict[str, Ids] = {}
        self._text = _Tokens()
        self._labels = _Tokens()

    @property
    def n_tokens(self) -> int:
        return self._text.n_tokens + self._labels.n_tokens

    def add(self, batch: Sequence[tuple[str, Domain]]) -> None:
        encoded = self._encoder.encode([text for text, _ in batch])
        self._text.append(self._numbers(encoded.terms)[encoded.numbers], encoded.owners, len(batch))
        labels = [np.concatenate([_NOTHING, *map(self._label, domain)]) for _, domain in batch]
        owners = np.repeat(np.arange(len(batch), dtype=np.int32), [len(ids) for ids in labels])
        self._labels.append(np.concatenate(labels), owners, len(batch))

    def _numbers(self, terms: Sequence[str]) -> Ids:
        return np.fromiter(map(self._number_of.__getitem__, terms), dtype=np.int32, count=len(terms))

    def _label(self, label: str) -> Ids:
        if label not in self._label_ids:
            self._label_ids[label] = self._numbers(self._segmenter.segment(label))
        return self._label_ids[label]

    def segment(self) -> Segment:
        """Count everything added so far."""
        # A lone surrogate, as broken JSON brings it, must not stop an index of a million documents.
        encoded = [term.encode("utf-8", "surrogatepass") for term in self._number_of]
        terms = pa.array(encoded, pa.large_binary())
        order = pc.sort_indices(terms)
        rank = np.empty(len(terms), np.int32)
        rank[order.to_numpy()] = np.arange(len(terms), dtype=np.int32)
        terms = terms.take(order)
        text, labels = self._text.matrix(rank), self._labels.matrix(rank)
        of_labels = np.flatnonzero(np.diff(labels.indptr))
        joint = (text[:, of_labels] + labels[:, of_labels]).tocsc()
        return Segment(
            text=_postings(terms, text),
            joint=_postings(terms.take(pa.array(of_labels)), joint),
            text_lengths=self._text.lengths(),
            joint_lengths=self._text.lengths() + self._labels.lengths(),
        )


class _Tokens:
    """Term number and document of every token."""

    def __init__(self) -> None:
        self.n_tokens = 0
        self._ids: list[Ids] = [_NOTHING]
        self._owners: list[Ids] = [_NOTHING]
        self._lengths: list[Ids] = [_NOTHING]
        self._n_documents = 0

    def append(self, ids: Ids, owners: Ids, n_documents: int) -> None:
        """Tokens of the next documents; `owners` counts from 0."""
        self.n_tokens += len(ids)
        self._ids.append(ids)
        self._owners.append(owners + np.int32(self._n_documents))
        self._lengths.append(np.bincount(owners, minlength=n_documents).astype(np.int32))
        self._n_documents += n_documents

    def lengths(self) -> npt.NDArray[np.int32]:
        """(n_documents,) terms of each document."""
        return np.concatenate(self._lengths)

    def matrix(self, rank: Ids) -> Any:
        """Counts (n_documents, n_terms), term `rank[number]` in the column, as a sparse matrix by column.

        scipy sorts pairs into columns by counting, in linear time; np.unique takes four times as long.
        """
        from scipy.sparse import coo_array

        ids, owners = rank[np.concatenate(self._ids)], np.concatenate(self._owners)
        ones = np.ones(len(ids), np.int32)
        columns = coo_array((ones, (owners, ids)), shape=(self._n_documents, len(rank))).tocsc()
        columns.sum_duplicates()
        return columns


def _postings(terms: pa.Array, counts: Any) -> Postings:
    """Postings of the terms that occur; `terms` names the columns of `counts`."""
    sizes = np.diff(counts.indptr)
    present = sizes > 0
    starts = np.concatenate([[0], np.cumsum(sizes[present], dtype=np.int64)])
    highest = int(counts.data.max()) if len(counts.data) else 0
    return Postings(
        terms=TermList.from_arrow(terms.filter(pa.array(present))),
        starts=starts,
        docs=counts.indices.astype(np.int32),
        counts=counts.data.astype(np.min_scalar_type(highest)),
    )
