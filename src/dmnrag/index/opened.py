"""An open index: one generation, read only. Parts are opened when they are first used.

Searches that go on keep the generation they opened, whatever a writer does meanwhile.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from dmnrag._io import describe_os_error, read_jsonl
from dmnrag.errors import ConfigError, DataError, DmnragError, IndexDamagedError, IndexFolderError
from dmnrag.index import build, generations
from dmnrag.index.documents import DocumentStore
from dmnrag.index.manifest import Manifest, Segment, check_parts
from dmnrag.index.models import INFO, check_models, read_retriever
from dmnrag.index.settings import IndexSettings, searchable_text
from dmnrag.retrieval.arrays import open_array
from dmnrag.retrieval.dense import DenseSettings, FaissDenseIndex
from dmnrag.retrieval.sparse import EmbeddedSparseIndex
from dmnrag.retrieval.table import DocumentTable
from dmnrag.text import make_segmenter
from dmnrag.types import Document, Domain, Example

_OPEN_TRIES = 10
"""A writer may prune a generation between reading `CURRENT` and holding it; the next try sees the newer one."""


class Index:
    """The documents, postings and vectors of one generation."""

    def __init__(self, folder: Path, manifest: Manifest, lease: generations.ReadLease) -> None:
        """Use `Index.open`."""
        self.folder = folder
        self.manifest = manifest
        self.settings = _settings(manifest, folder)
        self._generation = generations.generation_folder(folder, manifest.generation)
        self._lease = lease

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = False) -> "Index":
        """Open the current generation; checks version and sizes, with `verify` the hashes too.

        Raises:
            IndexMissingError: there is no index.
            IndexVersionError: its format is newer than this release.
            IndexDamagedError: a part is missing, cut short or altered.
            IndexFolderError: the system refuses to read it.
        """
        folder = Path(folder)
        try:
            return cls._open(folder, verify=verify)
        except OSError as error:
            if isinstance(error, DmnragError):
                raise
            raise IndexFolderError(f"{folder} cannot be read: {describe_os_error(error)}") from error

    @classmethod
    def _open(cls, folder: Path, *, verify: bool) -> "Index":
        number, lease = _hold_current(folder)
        try:
            generation = generations.generation_folder(folder, number)
            manifest = Manifest.load(generation)
            check_parts(generation, manifest.parts, hashes=verify)
            check_models(folder, manifest.retrievers, hashes=verify)
            return cls(folder, manifest, lease)
        except BaseException:
            lease.close()
            raise

    def close(self) -> None:
        """Let the generation be pruned. Open maps stay valid until they are dropped."""
        self._lease.close()

    def __enter__(self) -> "Index":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def n_documents(self) -> int:
        """Documents that can be found."""
        return self.manifest.n_documents

    @cached_property
    def domains(self) -> dict[Domain, int]:
        """Each distinct domain with its number of documents; documents without one are left out."""
        return {tuple(labels): count for labels, count in self.manifest.domains if labels}

    @cached_property
    def store(self) -> DocumentStore:
        """The documents by ordinal, removed ones included."""
        return DocumentStore([build.document_file(self._generation, s.name) for s in self.manifest.segments])

    @cached_property
    def table(self) -> DocumentTable:
        """Ids, labels and liveness."""
        return DocumentTable(self.store.column("doc_id"), self.store.column("domain"), self._live())

    def _live(self) -> np.ndarray:
        masks = []
        for segment, size in zip(self.manifest.segments, self.store.segment_sizes(), strict=True):
            if size != segment.n_documents:
                raise IndexDamagedError(
                    f"segment {segment.name} of {self.folder} holds {size} documents, not as stated"
                )
            mask = np.ones(size, dtype=np.bool_)
            if segment.n_removed:
                mask[self._removed(segment)] = False
            masks.append(mask)
        return np.concatenate(masks)

    def _removed(self, segment: Segment) -> np.ndarray:
        path = removed_file(self._generation, segment.name)
        ordinals = open_array(path, "i")
        if len(ordinals) != segment.n_removed or ordinals.min() < 0 or ordinals.max() >= segment.n_documents:
            raise IndexDamagedError(
                f"{path} does not list the removed documents of its segment; restore it or rebuild the index"
            )
        return ordinals

    @cached_property
    def sparse(self) -> EmbeddedSparseIndex:
        """The first layer."""
        folders = [build.sparse_folder(self._generation, s.name) for s in self.manifest.segments]
        return EmbeddedSparseIndex(folders, self.table, make_segmenter(self.settings.segmenter), self.settings.bm25)

    def retriever_info(self, retriever: str) -> dict[str, Any]:
        """What is known of a retriever: how it was trained and its figures on the dev slice; empty where untrained."""
        info: dict[str, Any] = self.manifest.retrievers.get(retriever, {}).get(INFO) or {}
        return info

    def dense_settings(self, retriever: str = build.UNTRAINED) -> DenseSettings:
        """Settings of a second layer.

        Raises:
            ConfigError: the index has no such retriever.
        """
        if retriever not in self.manifest.retrievers:
            known = ", ".join(self.manifest.retrievers) or "none"
            raise ConfigError(
                f"{self.folder} has no retriever {retriever!r} (it has: {known}); search with --layer sparse, "
                "or build the index again with --encoder"
            )
        return read_retriever(self.folder, self.manifest.retrievers[retriever])

    def dense(self, retriever: str = build.UNTRAINED) -> FaissDenseIndex:
        """A second layer by name."""
        settings = self.dense_settings(retriever)
        folders = [build.dense_folder(self._generation, retriever, s.name) for s in self.manifest.segments]
        return FaissDenseIndex(folders, self.table, settings)

    def documents(self, doc_ids: Sequence[str]) -> list[Document]:
        """The documents of the given ids, in that order.

        Raises:
            DataError: an id that the index does not have.
        """
        ordinals = self.table.ordinals(doc_ids)
        missing = [doc_id for doc_id, ordinal in zip(doc_ids, ordinals, strict=True) if ordinal is None]
        if missing:
            raise DataError(f"{self.folder} has no document {', '.join(missing[:5])}; `dmnrag info` shows what it has")
        return [self.store.get(ordinal) for ordinal in ordinals if ordinal is not None]

    def all_documents(self) -> Iterator[Document]:
        """Every document that can be found, in order, in constant memory."""
        live = self.table.live
        return (document for ordinal, document in enumerate(self.store) if live[ordinal])

    def passages(self, doc_ids: Sequence[str]) -> list[str]:
        """What a reranker reads of each document."""
        return [searchable_text(d, self.settings.indexed_text) for d in self.documents(doc_ids)]

    @cached_property
    def examples(self) -> list[Example]:
        """The held-out questions with their right answers."""
        path = self._generation / build.EXAMPLES_FILE
        try:
            return [build.example_from_dict(row) for row in read_jsonl(path)]
        except (OSError, KeyError, TypeError, UnicodeDecodeError, DataError) as error:
            raise IndexDamagedError(
                f"{path} does not hold the held-out questions ({error}); restore it or rebuild"
            ) from error


def removed_file(generation: Path, segment: str) -> Path:
    """Where the ordinals of a segment's removed documents are."""
    return generation / f"removed-{segment}.npy"


def _settings(manifest: Manifest, folder: Path) -> IndexSettings:
    try:
        return IndexSettings.from_dict(manifest.settings)
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise IndexDamagedError(
            f"the settings in the manifest of {folder} cannot be used ({error}); restore it or rebuild the index"
        ) from error


def _hold_current(folder: Path) -> tuple[int, generations.ReadLease]:
    for _ in range(_OPEN_TRIES):
        number = generations.current_generation(folder)
        try:
            lease = generations.ReadLease(generations.generation_folder(folder, number))
        except IndexDamagedError:
            if generations.current_generation(folder) == number:
                raise
            continue
        if generations.current_generation(folder) == number:
            return number, lease
        lease.close()
    raise IndexDamagedError(f"{folder} changed too often while it was being opened; try again")
