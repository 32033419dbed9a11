"""Writes the contents of a generation into the index folder."""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from dmnrag._io import fault_point
from dmnrag.index.manifest import Segment
from dmnrag.index.models import UNTRAINED, stored_dense
from dmnrag.index.parts import dense_folder, sparse_folder
from dmnrag.index.settings import IndexSettings
from dmnrag.index.writing import FIRST_SEGMENT, SCRATCH, Progress, SegmentWriter, Written, count_domains, counted
from dmnrag.protocols import Encoder
from dmnrag.retrieval.arrays import ArrayWriter, map_array
from dmnrag.retrieval.dense import EncodedDocuments, write_vectors
from dmnrag.retrieval.elastic import IndexedDocument
from dmnrag.retrieval.sparse import write_segment
from dmnrag.types import Document


class EmbeddedWriter:
    """Parts go straight into the generation in the making."""

    def __init__(self, generation: Path, settings: IndexSettings, on_progress: Progress) -> None:
        """`generation` is the folder of the one in the making."""
        self.settings = settings
        self._generation = generation
        self._on_progress = on_progress

    def build(self, documents: Iterable[Document], encoder: Encoder | None) -> Written:
        """A whole index from documents, read once."""
        writer = SegmentWriter(self._generation, self.settings, self._on_progress)
        store = writer.write_documents(FIRST_SEGMENT, documents)
        writer.write_postings(FIRST_SEGMENT, store)
        dense, n_long = self.settings.dense, 0
        if dense is not None and encoder is not None:
            n_long = writer.write_vectors(UNTRAINED, FIRST_SEGMENT, store, dense, encoder)
        return self._written(len(store), count_domains(store.column("domain")), n_long)

    def take(
        self,
        rows: Iterable[IndexedDocument],
        retrievers: Mapping[str, Mapping[str, Any]],
        dimensions: Mapping[str, int],
        n_rows: int,
    ) -> Written:
        """A whole index from rows that have terms and vectors already, read once, in constant memory."""
        scratch = self._generation / SCRATCH
        scratch.mkdir()
        spool = _Spool(scratch, dimensions)
        writer = SegmentWriter(self._generation, self.settings, self._on_progress)
        store = writer.write_documents(FIRST_SEGMENT, spool.pass_through(rows), n_rows)
        folder = sparse_folder(self._generation, FIRST_SEGMENT)
        write_segment(folder, counted(self._on_progress, "postings", spool.terms(), len(store)), _AsGiven())
        for name, entry in retrievers.items():
            folder = dense_folder(self._generation, name, FIRST_SEGMENT)
            write_vectors(folder, spool.vectors(name), stored_dense(entry))
        fault_point("delete", scratch)
        shutil.rmtree(scratch)  # left behind it would count as a part of the index, so a failure is an error
        return self._written(len(store), count_domains(store.column("domain")), 0)

    def publish(self, _written: Written) -> None:
        """The folder is all there is."""

    def _written(self, n_documents: int, domains: list[tuple[list[str], int]], n_long: int) -> Written:
        return Written([Segment(name=FIRST_SEGMENT, n_documents=n_documents)], domains, None, n_long)


class _Spool:
    """Terms and vectors of rows, kept on the disk while their documents are written."""

    def __init__(self, folder: Path, dimensions: Mapping[str, int]) -> None:
        self._folder = folder
        self._dimensions = dimensions
        self._sizes: dict[str, list[int]] = {name: [] for name in dimensions}

    def pass_through(self, rows: Iterable[IndexedDocument]) -> Iterator[Document]:
        with ExitStack() as stack:
            lines = stack.enter_context(self._terms_file().open("w", encoding="ascii"))
            arrays = {
                name: stack.enter_context(ArrayWriter(self._vectors_file(name), np.float32, (dimension,)))
                for name, dimension in self._dimensions.items()
            }
            for row in rows:
                lines.write(json.dumps([list(row.terms), list(row.label_terms)]) + "\n")
                for name, array in arrays.items():
                    array.append(row.vectors[name])
                    self._sizes[name].append(len(row.vectors[name]))
                yield row.document

    def terms(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """For `write_segment` with `_AsGiven`."""
        with self._terms_file().open(encoding="ascii") as lines:
            for line in lines:
                text, of_labels = json.loads(line)
                yield json.dumps(text), (json.dumps(of_labels),) if of_labels else ()

    def vectors(self, name: str) -> EncodedDocuments:
        sizes = self._sizes[name]
        owners = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
        return EncodedDocuments(map_array(self._vectors_file(name)), owners, n_long=sum(size > 1 for size in sizes))

    def _terms_file(self) -> Path:
        return self._folder / "terms.jsonl"

    def _vectors_file(self, name: str) -> Path:
        return self._folder / f"{name}.npy"


class _AsGiven:
    """A segmenter of texts that are JSON lists of their terms."""

    name = "as given"

    def segment(self, text: str) -> list[str]:
        terms: list[str] = json.loads(text)
        return terms

    def segment_all(self, texts: Sequence[str]) -> list[list[str]]:
        return [self.segment(text) for text in texts]
