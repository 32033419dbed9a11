"""Build an index from documents: Parquet, postings, and vectors where an encoder is given.

A killed build leaves the former index as it was: the new generation is named only when it is whole.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dmnrag._io import write_jsonl_atomic
from dmnrag.errors import ConfigError, DataError
from dmnrag.index import generations
from dmnrag.index.documents import DocumentStore, write_documents
from dmnrag.index.manifest import Manifest, Segment, library_versions
from dmnrag.index.settings import IndexSettings, searchable_text
from dmnrag.protocols import Encoder
from dmnrag.retrieval.dense import DenseSettings, encode_documents, write_vectors
from dmnrag.retrieval.sparse import write_segment
from dmnrag.text import make_segmenter
from dmnrag.types import Document, Domain, Example, Query

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total)."""

Row = TypeVar("Row")

UNTRAINED = "base"
"""Name of the second layer whose encoder is used as it came."""

EXAMPLES_FILE = "examples.jsonl"


def no_progress(_stage: str, _done: int, _total: int) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did."""

    generation: int
    n_documents: int
    n_long_passages: int
    """Documents longer than the encoder reads at once; each was split and counts with its best part."""


def build_index(
    folder: Path,
    documents: Iterable[Document],
    settings: IndexSettings,
    *,
    examples: Sequence[Example] = (),
    source: dict[str, Any] | None = None,
    encoder: Encoder | None = None,
    on_progress: Progress = no_progress,
) -> BuildReport:
    """Build a new generation from all documents and make it the current one.

    Args:
        folder: a new or empty folder, or an index, which gets a new generation.
        documents: read once, in a stream.
        settings: `settings.dense` asks for vectors, made by `encoder`.
        examples: the held-out questions, kept for `evaluate`.
        source: where the documents came from, kept in the manifest.
        encoder: needed exactly when `settings.dense` is given.
        on_progress: called as the build goes on.

    Raises:
        DataError: no documents, or an id given twice.
        IndexLockedError: another process writes there.
    """
    if (settings.dense is None) != (encoder is None):
        raise ConfigError("an encoder and dense settings belong together: give both or neither")
    with generations.stage_generation(folder) as stage:
        writer = SegmentWriter(stage.path, settings, on_progress)
        writer.write("000", documents)
        store = DocumentStore([document_file(stage.path, "000")])
        check_ids(store.column("doc_id"))
        n_long = 0
        if settings.dense is not None and encoder is not None:
            n_long = writer.write_vectors(UNTRAINED, "000", store, settings.dense, encoder)
        write_jsonl_atomic(stage.path / EXAMPLES_FILE, map(example_to_dict, examples))
        stage.commit(
            Manifest(
                generation=stage.number,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                library_versions=library_versions(),
                settings=settings.to_dict(),
                source=source or {},
                segments=[Segment(name="000", n_documents=len(store))],
                domains=count_domains(store.column("domain")),
                n_examples=len(examples),
                retrievers={} if settings.dense is None else {UNTRAINED: settings.dense.to_dict()},
                parts=stage.parts(),
            )
        )
        generations.prune(folder)
    return BuildReport(stage.number, len(store), n_long)


class SegmentWriter:
    """Writes the parts of one segment into a generation's folder."""

    def __init__(self, generation: Path, settings: IndexSettings, on_progress: Progress) -> None:
        self._generation = generation
        self._settings = settings
        self._on_progress = on_progress

    def write(self, segment: str, documents: Iterable[Document]) -> int:
        """Documents and postings; returns the number of documents."""
        path = document_file(self._generation, segment)
        n_documents = write_documents(path, self._count("documents", documents, 0))
        if n_documents == 0:
            raise DataError("there is no document to index: every row was dropped or held out, or the input is empty")
        store = DocumentStore([path])
        texts = self._count("postings", self._texts(store), n_documents)
        write_segment(sparse_folder(self._generation, segment), texts, make_segmenter(self._settings.segmenter))
        return n_documents

    def write_vectors(
        self, retriever: str, segment: str, store: DocumentStore, dense: DenseSettings, encoder: Encoder
    ) -> int:
        """Vectors of one segment's documents; returns how many documents had to be split."""
        texts = [passage_text(document, dense) for document in store]
        done = 0

        def report(n_more: int) -> None:
            nonlocal done
            done += n_more
            self._on_progress("vectors", done, len(texts))

        encoded = encode_documents(texts, encoder, report)
        write_vectors(dense_folder(self._generation, retriever, segment), encoded, dense)
        return encoded.n_long

    def _texts(self, store: DocumentStore) -> Iterator[tuple[str, Domain]]:
        for document in store:
            yield searchable_text(document, self._settings.indexed_text), document.domain

    def _count(self, stage: str, rows: Iterable[Row], total: int) -> Iterator[Row]:
        done = 0
        for done, row in enumerate(rows, start=1):
            if done % 1000 == 0:
                self._on_progress(stage, done, max(total, done))
            yield row
        self._on_progress(stage, done, done)


def document_file(generation: Path, segment: str) -> Path:
    """Where a segment's documents are."""
    return generation / f"documents-{segment}.parquet"


def sparse_folder(generation: Path, segment: str) -> Path:
    """Where a segment's postings are."""
    return generation / "sparse" / segment


def dense_folder(generation: Path, retriever: str, segment: str) -> Path:
    """Where a segment's vectors of one retriever are."""
    return generation / "dense" / retriever / segment


def passage_text(document: Document, dense: DenseSettings) -> str:
    """What the second layer reads of a document; with the domain in front where the settings say so."""
    text = searchable_text(document, dense.passage)
    return f"{','.join(document.domain)}\n{text}" if dense.domain_in_passage and document.domain else text


def count_domains(domains: pa.Array, live: np.ndarray | None = None) -> list[tuple[list[str], int]]:
    """Each distinct domain with its number of documents, most frequent first, ties by name."""
    joined = pc.binary_join(domains, "\x00")
    if live is not None:
        joined = joined.filter(pa.array(live))
    counts = [(c["values"], c["counts"]) for c in joined.value_counts().to_pylist()]
    counts.sort(key=lambda c: (-c[1], c[0]))
    return [(name.split("\x00") if name else [], count) for name, count in counts]


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


def example_to_dict(example: Example) -> dict[str, Any]:
    """JSON-ready form of a held-out question."""
    return {
        "query_id": example.query.query_id,
        "text": example.query.text,
        "domain": list(example.query.domain),
        "references": list(example.references),
        "gold_doc_ids": list(example.gold_doc_ids),
        "cluster": example.cluster,
    }


def example_from_dict(row: dict[str, Any]) -> Example:
    """The held-out question that `example_to_dict` described."""
    return Example(
        Query(row["query_id"], row["text"], tuple(row["domain"])),
        tuple(row["references"]),
        tuple(row["gold_doc_ids"]),
        row["cluster"],
    )
