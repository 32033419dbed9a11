"""What every writer of an index needs: the parts of a segment, and what they say of it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dmnrag.errors import DataError
from dmnrag.index.documents import DocumentStore, write_documents
from dmnrag.index.manifest import ClusterPart, Segment
from dmnrag.index.parts import dense_folder, document_file, sparse_folder
from dmnrag.index.settings import IndexSettings, searchable_text
from dmnrag.protocols import Encoder
from dmnrag.retrieval.dense import DenseSettings, encode_documents, write_vectors
from dmnrag.retrieval.sparse import write_segment
from dmnrag.text import make_segmenter
from dmnrag.types import Document, Domain

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total)."""

DomainCounts = list[tuple[list[str], int]]
"""As the manifest has them."""

FIRST_SEGMENT = "000"

SCRATCH = "scratch"
"""Folder in a generation in the making for what is needed only while it is made."""

Row = TypeVar("Row")


def no_progress(_stage: str, _done: int, _total: int) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Written:
    """The contents of a new generation, as its manifest describes them."""

    segments: list[Segment]
    domains: DomainCounts
    backend: ClusterPart | None = None
    n_long: int = 0
    """Documents longer than the encoder reads at once."""

    @property
    def n_documents(self) -> int:
        """Documents that can be found."""
        return sum(segment.n_documents - segment.n_removed for segment in self.segments)


class SegmentWriter:
    """Writes the parts of one segment into a folder."""

    def __init__(self, folder: Path, settings: IndexSettings, on_progress: Progress) -> None:
        self._folder = folder
        self._settings = settings
        self._on_progress = on_progress

    def write_documents(self, segment: str, documents: Iterable[Document], total: int = 0) -> DocumentStore:
        """The documents; read once, in a stream. `total` is for the progress, where it is known.

        Raises:
            DataError: there are none, or an id comes twice.
        """
        path = document_file(self._folder, segment)
        path.parent.mkdir(parents=True, exist_ok=True)
        if write_documents(path, counted(self._on_progress, "documents", documents, total)) == 0:
            raise DataError("there is no document to index: every row was dropped or held out, or the input is empty")
        store = DocumentStore([path])
        check_ids(store.column("doc_id"))
        return store

    def write_postings(self, segment: str, store: DocumentStore) -> None:
        """What the first layer searches of them."""
        texts = ((searchable_text(document, self._settings.indexed_text), document.domain) for document in store)
        of_documents = counted(self._on_progress, "postings", texts, len(store))
        write_segment(sparse_folder(self._folder, segment), of_documents, make_segmenter(self._settings.segmenter))

    def write_vectors(
        self, retriever: str, segment: str, documents: Iterable[Document], dense: DenseSettings, encoder: Encoder
    ) -> int:
        """Vectors of one segment's documents; returns how many documents had to be split."""
        texts = [passage_text(document, dense) for document in documents]
        encoded = encode_documents(texts, encoder, adding_up(self._on_progress, "vectors", len(texts)))
        write_vectors(dense_folder(self._folder, retriever, segment), encoded, dense)
        return encoded.n_long


def counted(on_progress: Progress, stage: str, rows: Iterable[Row], total: int = 0) -> Iterator[Row]:
    """The rows, told to `on_progress` by the thousand."""
    done = 0
    for done, row in enumerate(rows, start=1):
        if done % 1000 == 0:
            on_progress(stage, done, max(total, done + (total == 0)))
        yield row
    on_progress(stage, done, done)


def adding_up(on_progress: Progress, stage: str, total: int) -> Callable[[int], None]:
    """A function that is told how many more are done."""
    done = 0

    def report(n_more: int) -> None:
        nonlocal done
        done += n_more
        on_progress(stage, done, max(total, done))

    return report


def passage_text(document: Document, dense: DenseSettings) -> str:
    """What the second layer reads of a document; with the domain in front where the settings say so."""
    text = searchable_text(document, dense.passage)
    return f"{','.join(document.domain)}\n{text}" if dense.domain_in_passage and document.domain else text


def count_domains(domains: pa.Array, live: np.ndarray | None = None) -> DomainCounts:
    """Each distinct domain with its number of documents, most frequent first, ties by name."""
    joined = pc.binary_join(domains, "\x00")
    if live is not None:
        joined = joined.filter(pa.array(live))
    counts = ((c["values"], c["counts"]) for c in joined.value_counts().to_pylist())
    return order_domains({tuple(name.split("\x00")) if name else (): count for name, count in counts})


def order_domains(counts: Mapping[Domain, int]) -> DomainCounts:
    """The domains that documents have, most frequent first, ties by name."""
    present = [(domain, count) for domain, count in counts.items() if count]
    present.sort(key=lambda c: (-c[1], "\x00".join(c[0])))
    return [(list(domain), count) for domain, count in present]


def check_ids(doc_ids: pa.Array) -> None:
    """Refuse an id that is given twice.

    Raises:
        DataError: names the first few.
    """
    counts = doc_ids.value_counts()
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
    if repeated:
        shown = ", ".join(repeated[:5])
        raise DataError(f"{len(repeated)} document ids occur more than once ({shown} ...): ids must be unique")
