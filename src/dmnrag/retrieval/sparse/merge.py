"""Join segments into one without segmenting again, dropping removed documents on the way.

The result scores as one build from the remaining documents would. Memory stays
bounded by a block of postings: terms are worked through in order, block by block.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dmnrag._io import fsync_path
from dmnrag.errors import ConfigError
from dmnrag.retrieval.arrays import Array, ArrayWriter
from dmnrag.retrieval.sparse.segment import (
    JOINT,
    TEXT,
    Lists,
    Postings,
    Segment,
    TermList,
    save_lengths,
    save_vocabulary,
)

BLOCK_POSTINGS = 2**22
"""Postings merged at once: 150 MB with their working copies. One term with more is a block of its own."""

_REMOVED = -1

Numbers = npt.NDArray[np.int32]
Positions = npt.NDArray[np.int64]


def merge_segments(
    folder: Path,
    segments: Sequence[Path],
    live_masks: Sequence[npt.NDArray[np.bool_] | None],
    *,
    block_postings: int = BLOCK_POSTINGS,
) -> int:
    """Write one segment with the live documents of all given ones, in order.

    Args:
        folder: created where it is missing.
        segments: folders to join; left as they are.
        live_masks: for each segment (n_documents,) False where removed; None where all live.
        block_postings: postings merged at once; bounds the memory, does not change the result.

    Returns:
        The number of documents in the new segment.

    Raises:
        ConfigError: no segments, or masks that do not fit them.
        IndexDamagedError: a segment is damaged.
    """
    opened = [Segment.open(path) for path in segments]
    renumber = _renumber(opened, live_masks)
    folder.mkdir(parents=True, exist_ok=True)
    _merge_field([s.text for s in opened], renumber, folder, TEXT, block_postings)
    _merge_field(_joint_parts(opened), renumber, folder, JOINT, block_postings)
    kept = [numbers != _REMOVED for numbers in renumber]
    text_lengths = np.concatenate([s.text_lengths[k] for s, k in zip(opened, kept, strict=True)])
    joint_lengths = np.concatenate([s.joint_lengths[k] for s, k in zip(opened, kept, strict=True)])
    save_lengths(folder, text_lengths, joint_lengths)
    fsync_path(folder)
    return len(text_lengths)


def _renumber(segments: Sequence[Segment], masks: Sequence[npt.NDArray[np.bool_] | None]) -> list[Numbers]:
    """For each segment the new ordinal of each of its documents, or _REMOVED."""
    if not segments or len(masks) != len(segments):
        raise ConfigError(f"{len(masks)} masks for {len(segments)} segments: give at least one segment, a mask each")
    renumber, n_before = [], 0
    for segment, mask in zip(segments, masks, strict=True):
        live = np.ones(len(segment), np.bool_) if mask is None else mask
        if len(live) != len(segment):
            raise ConfigError(f"a mask of {len(live)} entries for a segment of {len(segment)} documents")
        numbers = np.cumsum(live, dtype=np.int32) + np.int32(n_before - 1)
        renumber.append(np.where(live, numbers, np.int32(_REMOVED)))
        n_before += int(live.sum())
    return renumber


def _joint_parts(segments: Sequence[Segment]) -> list[Postings]:
    """Joint postings of each segment for the label terms of all segments.

    A segment of which no label has such a term gives its text postings.
    """
    vocabulary = _union([s.joint.terms.to_arrow() for s in segments])
    terms: list[bytes] = vocabulary.to_pylist()
    parts = []
    for segment in segments:
        nothing: Lists = (segment.text.docs[:0], segment.text.counts[:0])
        lists = [found or nothing for found in segment.find_all(terms, joint=True)]
        sizes = [len(docs) for docs, _ in lists]
        docs, counts = zip(*lists, strict=True) if lists else ((nothing[0],), (nothing[1],))
        starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        parts.append(Postings(TermList.from_arrow(vocabulary), starts, np.concatenate(docs), np.concatenate(counts)))
    return parts


def _union(term_arrays: Sequence[pa.Array]) -> pa.Array:
    """All distinct terms, sorted (bytes, which is the order of code points)."""
    distinct = pc.unique(pa.chunked_array(term_arrays, pa.large_binary()))
    return distinct.take(pc.sort_indices(distinct))


def _merge_field(
    parts: Sequence[Postings], renumber: Sequence[Numbers], folder: Path, field: str, block_postings: int
) -> None:
    vocabulary = _union([part.terms.to_arrow() for part in parts])
    numbers = [pc.index_in(part.terms.to_arrow(), value_set=vocabulary).to_numpy() for part in parts]
    sizes = np.zeros(len(vocabulary), np.int64)
    for part, own in zip(parts, numbers, strict=True):
        sizes[own] += np.diff(part.starts)
    kept = np.zeros(len(vocabulary), np.int64)
    counts_dtype = np.result_type(*[part.counts.dtype for part in parts])
    with (
        ArrayWriter(folder / f"{field}_docs.npy", np.int32) as all_docs,
        ArrayWriter(folder / f"{field}_counts.npy", counts_dtype) as all_counts,
    ):
        for first, last in _blocks(sizes, block_postings):
            terms, docs, counts = _merge_block(parts, numbers, renumber, first, last)
            kept[first:last] = np.bincount(terms - first, minlength=last - first)
            all_docs.append(docs)
            all_counts.append(counts)
    present = kept > 0
    starts = np.concatenate([[0], np.cumsum(kept[present], dtype=np.int64)])
    save_vocabulary(folder, field, TermList.from_arrow(vocabulary.filter(pa.array(present))), starts)


def _blocks(sizes: Positions, block_postings: int) -> Iterator[tuple[int, int]]:
    """Ranges of terms, each with about `block_postings` postings and at least one term."""
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + block_postings, side="right")))
        yield first, last
        first = last


def _merge_block(
    parts: Sequence[Postings], numbers: Sequence[Numbers], renumber: Sequence[Numbers], first: int, last: int
) -> tuple[Numbers, Numbers, Array]:
    """Postings of the terms numbered first to last - 1: (term numbers, documents, counts), sorted."""
    pieces = []
    for part, own, new_ordinal in zip(parts, numbers, renumber, strict=True):
        low, high = np.searchsorted(own, [first, last])
        span = slice(part.starts[low], part.starts[high])
        docs = new_ordinal[part.docs[span]]
        live = docs != _REMOVED
        terms = np.repeat(own[low:high], np.diff(part.starts[low : high + 1]))
        pieces.append((terms[live], docs[live], part.counts[span][live]))
    terms, docs, counts = (np.concatenate(column) for column in zip(*pieces, strict=True))
    # Stable: within a term the segments keep their order, so documents ascend. Few sorted runs: near linear.
    order = np.argsort(terms, kind="stable")
    return terms[order], docs[order], counts[order]
