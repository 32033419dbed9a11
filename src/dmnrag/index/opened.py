"""An open index: one generation, read only. Parts are opened when they are first used.

Searches that go on keep the generation they opened, whatever a writer does meanwhile.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from dmnrag._io import describe_os_error, read_jsonl
from dmnrag.domain import DomainModel
from dmnrag.errors import ConfigError, DataError, DmnragError, IndexDamagedError, IndexFolderError
from dmnrag.index import generations
from dmnrag.index.cluster import ClusterContents
from dmnrag.index.contents import Contents
from dmnrag.index.domain import lacks_domain_model, read_domain_model
from dmnrag.index.embedded import EmbeddedContents
from dmnrag.index.held_out import example_from_dict
from dmnrag.index.manifest import Manifest, check_parts
from dmnrag.index.models import INFO, UNTRAINED, check_models, read_retriever
from dmnrag.index.parts import EXAMPLES_FILE
from dmnrag.index.settings import IndexSettings, searchable_text
from dmnrag.protocols import DenseIndex, SparseIndex
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.types import Document, Domain, Example

_OPEN_TRIES = 10
"""A writer may prune a generation between reading `CURRENT` and holding it; the next try sees the newer one."""


class Index:
    """The documents, postings and vectors of one generation."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        settings: IndexSettings,
        contents: Contents,
        lease: generations.ReadLease,
    ) -> None:
        """Use `Index.open`."""
        self.folder = folder
        self.manifest = manifest
        self.settings = settings
        self.contents = contents
        """The documents and both layers, wherever they are kept."""
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
            ClusterError: the cluster that holds it cannot be used, or its index there is gone.
            ConfigError: the index there was built with other settings; names each.
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
            settings = read_settings(manifest, folder)
            index = cls(folder, manifest, settings, open_contents(generation, manifest, settings), lease)
        except BaseException:
            lease.close()
            raise
        if verify:
            try:
                index.contents.verify()
            except BaseException:
                index.close()
                raise
        return index

    def close(self) -> None:
        """Let the generation be pruned. Open maps stay valid until they are dropped."""
        self._lease.close()
        self.contents.close()

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

    @property
    def sparse(self) -> SparseIndex:
        """The first layer."""
        return self.contents.sparse

    def retriever_info(self, retriever: str) -> dict[str, Any]:
        """What is known of a retriever: how it was trained and its figures on the dev slice; empty where untrained."""
        info: dict[str, Any] = self.manifest.retrievers.get(retriever, {}).get(INFO) or {}
        return info

    def dense_settings(self, retriever: str = UNTRAINED) -> DenseSettings:
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

    def dense(self, retriever: str = UNTRAINED) -> DenseIndex:
        """A second layer by name."""
        return self.contents.dense(retriever, self.dense_settings(retriever))

    def documents(self, doc_ids: Sequence[str]) -> list[Document]:
        """The documents of the given ids, in that order.

        Raises:
            DataError: an id that the index does not have.
        """
        found = self.contents.find(doc_ids)
        missing = [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id not in found]
        if missing:
            raise DataError(f"{self.folder} has no document {', '.join(missing[:5])}; `dmnrag info` shows what it has")
        return [found[doc_id] for doc_id in doc_ids]

    def missing(self, doc_ids: Collection[str]) -> list[str]:
        """Those of the given ids, each once, that no document has."""
        return self.contents.missing(doc_ids)

    def all_documents(self) -> Iterator[Document]:
        """Every document that can be found, in constant memory, in an order that does not change."""
        return iter(self.contents)

    def passages(self, doc_ids: Sequence[str]) -> list[str]:
        """What a reranker reads of each document."""
        return [searchable_text(d, self.settings.indexed_text) for d in self.documents(doc_ids)]

    @cached_property
    def domain_model(self) -> DomainModel | None:
        """What infers the domain of a question; None: no domain to learn, or an older index (`lacks_domain_model`).

        Read at the first use, in 10 ms. Safe to use from several threads: those that come first at once may each read
        it, and get equal models that nobody changes.

        Raises:
            IndexDamagedError: a file of it cannot be used.
            IndexVersionError: written by a newer release.
        """
        return read_domain_model(self._generation, self.manifest.parts)

    @property
    def lacks_domain_model(self) -> bool:
        """Whether there are domains to learn and no model of them; `upgrade_index` adds it."""
        return lacks_domain_model(self.manifest, self.settings)

    @cached_property
    def examples(self) -> list[Example]:
        """The held-out questions with their right answers."""
        path = self._generation / EXAMPLES_FILE
        try:
            return [example_from_dict(row) for row in read_jsonl(path)]
        except (OSError, KeyError, TypeError, UnicodeDecodeError, DataError) as error:
            raise IndexDamagedError(
                f"{path} does not hold the held-out questions ({error}); restore it or rebuild"
            ) from error


def open_contents(generation: Path, manifest: Manifest, settings: IndexSettings) -> Contents:
    """What a generation holds, from where its manifest says that it is.

    Raises:
        ClusterError: the cluster that holds it cannot be used.
        ConfigError: what is there was built with other settings.
    """
    if manifest.backend is None:
        return EmbeddedContents(generation, manifest, settings)
    return ClusterContents.open(manifest.backend, manifest, settings)


def read_settings(manifest: Manifest, folder: Path) -> IndexSettings:
    """What the index was built with.

    Raises:
        IndexDamagedError: the manifest does not say.
    """
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
