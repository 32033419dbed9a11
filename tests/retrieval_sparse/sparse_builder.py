"""Small indexes for the tests of the embedded BM25, with a segmenter of their own."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dmnrag.retrieval.sparse import Bm25Settings, EmbeddedSparseIndex, write_segment
from dmnrag.retrieval.table import DocumentTable
from dmnrag.types import Document, Domain

Row = tuple[str, str, Domain]
"""doc_id, text, labels."""


class Words:
    """Splits at white space and takes each Chinese character as a term."""

    name = "words"

    def segment(self, text: str) -> list[str]:
        return "".join(f" {c} " if "\u4e00" <= c <= "\u9fff" else c if c.isalnum() else " " for c in text).split()

    def segment_all(self, texts: Sequence[str]) -> list[list[str]]:
        return [self.segment(text) for text in texts]


def table_of(segments: Sequence[Sequence[Row]], removed: frozenset[str] = frozenset()) -> DocumentTable:
    rows = [row for segment in segments for row in segment]
    live = np.array([row[0] not in removed for row in rows], dtype=np.bool_)
    return DocumentTable.from_lists([row[0] for row in rows], [row[2] for row in rows], live)


def write_rows(folder: Path, rows: Sequence[Row], **options: int) -> Path:
    write_segment(folder, ((text, domain) for _, text, domain in rows), Words(), **options)
    return folder


def open_rows(
    folder: Path,
    segments: Sequence[Sequence[Row]],
    removed: frozenset[str] = frozenset(),
    settings: Bm25Settings | None = None,
) -> EmbeddedSparseIndex:
    """Write each list of rows as a segment and open them together."""
    paths = [write_rows(folder / f"{i:03d}", rows) for i, rows in enumerate(segments)]
    return EmbeddedSparseIndex(paths, table_of(segments, removed), Words(), settings or Bm25Settings())


def live_masks(segments: Sequence[Sequence[Row]], removed: frozenset[str]) -> list[npt.NDArray[np.bool_]]:
    live = table_of(segments, removed).live
    ends = list(accumulate(len(rows) for rows in segments))
    return [live[end - len(rows) : end] for rows, end in zip(segments, ends, strict=True)]


def rows_of(documents: Sequence[Document], indexed_text: str) -> list[Row]:
    return [
        (
            d.doc_id,
            "\n".join(d.answers) if indexed_text == "answer" else "\n".join([d.question, *d.answers]),
            d.domain,
        )
        for d in documents
    ]
