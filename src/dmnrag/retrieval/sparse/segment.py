"""One immutable segment: which documents hold which terms how often, memory-mapped.

    text_*.npy    postings of the searched text
    joint_*.npy   postings of text and labels together, only for the terms that labels consist of
    {text,joint}_lengths.npy   |D| of each document without and with its labels

So one folder serves plain and joint retrieval: a joint search takes a term's joint postings where
there are some and its text postings elsewhere. Knows neither scores nor which documents were removed.
Opening checks that the shapes fit together; sizes and hashes of the files are the index's business.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dmnrag.errors import IndexDamagedError
from dmnrag.retrieval.sparse.arrays import Array, open_array, save_array

TEXT = "text"
JOINT = "joint"

Lists = tuple[Array, Array]
"""Of one term: local ordinals of its documents, ascending, and its count in each."""


class TermList:
    """Sorted terms as UTF-8 bytes, one after the other, found by halving.

    Costs nothing to open: 0.1 ms for 500,000 terms, where a dict takes 0.2 s and 70 MB; a look-up
    takes some 5 microseconds, against the 500 of a search.
    """

    def __init__(self, content: Array, offsets: Array) -> None:
        """`content` (n_bytes,) uint8; `offsets` (n_terms + 1,) int64, where each term begins."""
        self.content = content
        self.offsets = offsets

    @classmethod
    def from_arrow(cls, terms: pa.Array) -> "TermList":
        """Sorted distinct terms, a large_binary array."""
        if len(terms) == 0:
            return cls(np.zeros(0, np.uint8), np.zeros(1, np.int64))
        terms = pa.concat_arrays([terms])  # a slice of another array becomes one of its own
        _, offsets, content = terms.buffers()
        starts = np.frombuffer(offsets, np.int64)[terms.offset : terms.offset + len(terms) + 1]
        return cls(np.frombuffer(content, np.uint8)[starts[0] : starts[-1]], starts - starts[0])

    def to_arrow(self) -> pa.Array:
        """The terms as a large_binary array, without copying."""
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.content)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def _views(self) -> tuple[memoryview, memoryview]:
        # Reading single numbers from a memoryview is three times as fast as from an array.
        return self.content.data, self.offsets.data

    def __getitem__(self, number: int) -> bytes:
        content, offsets = self._views
        return content[offsets[number] : offsets[number + 1]].tobytes()

    def find(self, term: bytes) -> int | None:
        """Number of a term; None where it is not among them."""
        number = bisect_left(range(len(self)), term, key=self.__getitem__)
        return number if number < len(self) and self[number] == term else None


@dataclass(frozen=True)
class Postings:
    """Documents and counts of every term of one field."""

    terms: TermList
    starts: npt.NDArray[np.int64]
    """(n_terms + 1,): the postings of term i are starts[i] to starts[i+1]."""
    docs: npt.NDArray[np.int32]
    """(n_postings,) local ordinals, ascending within a term."""
    counts: Array
    """(n_postings,) of the smallest unsigned type that holds them."""

    def find(self, term: bytes) -> Lists | None:
        """Postings of one term; None where no document has it."""
        number = self.terms.find(term)
        if number is None:
            return None
        span = slice(self.starts[number], self.starts[number + 1])
        return self.docs[span], self.counts[span]

    def save(self, folder: Path, field: str) -> None:
        """Write into a segment's folder."""
        save_vocabulary(folder, field, self.terms, self.starts)
        save_array(folder / f"{field}_docs.npy", self.docs)
        save_array(folder / f"{field}_counts.npy", self.counts)

    @classmethod
    def open(cls, folder: Path, field: str) -> "Postings":
        """Map a field of a segment.

        Raises:
            IndexDamagedError: a file is missing, cut short, or does not fit the others.
        """
        content = open_array(folder / f"{field}_terms.npy", "u")
        offsets = open_array(folder / f"{field}_offsets.npy", "i")
        starts = open_array(folder / f"{field}_starts.npy", "i")
        docs = open_array(folder / f"{field}_docs.npy", "i")
        counts = open_array(folder / f"{field}_counts.npy", "u")
        _check_ends(folder / f"{field}_terms.npy", content, offsets)
        _check_ends(folder / f"{field}_docs.npy", docs, starts)
        _check_ends(folder / f"{field}_counts.npy", counts, starts)
        if len(offsets) != len(starts):
            raise IndexDamagedError(
                f"{folder / field}_starts.npy is for {len(starts) - 1} terms, {field}_offsets.npy for "
                f"{len(offsets) - 1}; restore them or rebuild the index"
            )
        return cls(TermList(content, offsets), starts, docs, counts)


def save_vocabulary(folder: Path, field: str, terms: TermList, starts: npt.NDArray[np.int64]) -> None:
    """Write the terms of a field and where the postings of each begin."""
    save_array(folder / f"{field}_terms.npy", terms.content)
    save_array(folder / f"{field}_offsets.npy", terms.offsets)
    save_array(folder / f"{field}_starts.npy", starts)


def _check_ends(path: Path, values: Array, bounds: Array) -> None:
    if len(bounds) == 0 or bounds[0] != 0 or bounds[-1] != len(values):
        end = int(bounds[-1]) if len(bounds) else "nothing"
        raise IndexDamagedError(
            f"{path} holds {len(values)} numbers where {end} belong; restore it or rebuild the index"
        )


@dataclass(frozen=True)
class Segment:
    """The postings and lengths of documents that were added together, in memory or mapped."""

    text: Postings
    joint: Postings
    text_lengths: npt.NDArray[np.int32]
    """(n_documents,) terms of the text, repetitions counted."""
    joint_lengths: npt.NDArray[np.int32]
    """(n_documents,) the same with the terms of the labels."""

    def __len__(self) -> int:
        return len(self.text_lengths)

    def find(self, term: bytes, *, joint: bool) -> Lists | None:
        """Postings of a term in the text alone or in text and labels."""
        found = self.joint.find(term) if joint else None
        return self.text.find(term) if found is None else found

    def lengths(self, *, joint: bool) -> npt.NDArray[np.int32]:
        """|D| of each document, without or with its labels."""
        return self.joint_lengths if joint else self.text_lengths

    def save(self, folder: Path) -> None:
        """Write all files but not the folder's own entry."""
        self.text.save(folder, TEXT)
        self.joint.save(folder, JOINT)
        save_lengths(folder, self.text_lengths, self.joint_lengths)

    @classmethod
    def open(cls, folder: Path) -> "Segment":
        """Map a segment.

        Raises:
            IndexDamagedError: a file is missing, cut short, or does not fit the others.
        """
        text, joint = Postings.open(folder, TEXT), Postings.open(folder, JOINT)
        text_lengths = open_array(folder / "text_lengths.npy", "i")
        joint_lengths = open_array(folder / "joint_lengths.npy", "i")
        if len(text_lengths) != len(joint_lengths):
            raise IndexDamagedError(
                f"{folder / 'joint_lengths.npy'} is for {len(joint_lengths)} documents, text_lengths.npy for "
                f"{len(text_lengths)}; restore them or rebuild the index"
            )
        return cls(text, joint, text_lengths, joint_lengths)


def save_lengths(folder: Path, text: npt.NDArray[np.int32], joint: npt.NDArray[np.int32]) -> None:
    """Write |D| of each document, without and with labels."""
    save_array(folder / "text_lengths.npy", text)
    save_array(folder / "joint_lengths.npy", joint)
