"""Moves an index between the folder and a cluster, or between clusters, without segmenting or encoding again.

Every row (document, terms, vectors) is read back from its new place and compared before the index switches over;
killed at any point, the index is as it was. The former generation stays, so that `roll_back` moves back.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from dmnrag.errors import ConfigError, IndexFolderError
from dmnrag.index import generations
from dmnrag.index.cluster_writer import ClusterTarget
from dmnrag.index.domain import is_domain_part
from dmnrag.index.manifest import ClusterPart, library_versions
from dmnrag.index.opened import Index, open_contents
from dmnrag.index.parts import EXAMPLES_FILE
from dmnrag.index.writers import open_writer
from dmnrag.index.writing import Progress, counted, no_progress
from dmnrag.retrieval.elastic import IndexedDocument

_MODULUS = 2**256


@dataclass(frozen=True, slots=True)
class MigrateReport:
    """What a move did."""

    generation: int
    n_documents: int
    backend: ClusterPart | None
    """Where the index is now; None: in the folder."""


def migrate_index(folder: Path, target: ClusterTarget | None, *, on_progress: Progress = no_progress) -> MigrateReport:
    """Move an index to a cluster, or into its folder where `target` is None.

    Raises:
        ConfigError: it is there already.
        ClusterError: a cluster cannot do it, or the name there is another folder's.
        IndexFolderError: what came back is not what was sent; the index stays where it was.
        IndexLockedError: another process writes there.
    """
    generations.current_generation(folder)  # a clear error before a lock file is made
    with generations.stage_generation(folder) as stage, Index.open(folder) as index:
        _refuse_same_place(index, target)
        with open_writer(stage, index.settings, target, on_progress) as writer:
            sent, received = _Digest(), _Digest()
            contents = index.contents
            written = writer.take(
                sent.pass_through(contents.rows()), index.manifest.retrievers, contents.dimensions(), index.n_documents
            )
            former = generations.generation_folder(folder, index.manifest.generation)
            stage.link(former, index.manifest.parts, lambda part: part == EXAMPLES_FILE or is_domain_part(part))
            manifest = index.manifest.model_copy(
                update={
                    "generation": stage.number,
                    "created": datetime.now(UTC).isoformat(timespec="seconds"),
                    "library_versions": library_versions(),
                    "settings": writer.settings.to_dict(),
                    "segments": written.segments,
                    "domains": written.domains,
                    "parts": stage.parts(),
                    "backend": written.backend,
                }
            )
            moved = open_contents(stage.path, manifest, writer.settings)
            try:
                for _ in counted(on_progress, "verified", received.pass_through(moved.rows()), written.n_documents):
                    pass
            finally:
                moved.close()
            if sent != received:
                raise IndexFolderError(
                    f"{received.n_rows} rows with the sum {received} were read back where {sent.n_rows} with the sum "
                    f"{sent} were written: the copy is not used, {folder} stays as it is; try again, and report it"
                )
            stage.commit(manifest)
            generations.prune(folder)
            writer.publish(written)
    return MigrateReport(stage.number, written.n_documents, written.backend)


def _refuse_same_place(index: Index, target: ClusterTarget | None) -> None:
    part = index.manifest.backend
    if target is None and part is None:
        raise ConfigError(f"{index.folder} is an embedded index already; --to elasticsearch moves it to a cluster")
    if target is None or part is None or target.name != part.name:
        return
    if set(target.connection.urls) & set(part.urls):
        raise ConfigError(
            f"{index.folder} is in Elasticsearch as {part.name!r} already; name another index (--es-index) or "
            "cluster (--es-url), or --to embedded"
        )


class _Digest:
    """Number and sum of rows, in whatever order they come."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._sum = 0

    def pass_through(self, rows: Iterable[IndexedDocument]) -> Iterator[IndexedDocument]:
        for row in rows:
            self.n_rows += 1
            self._sum = (self._sum + _digest(row)) % _MODULUS
            yield row

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Digest) and (self.n_rows, self._sum) == (other.n_rows, other._sum)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self._sum:064x}"[:12]


def _digest(row: IndexedDocument) -> int:
    """Of everything that a row holds; terms count, their order does not."""
    document = row.document
    content = [
        document.doc_id,
        document.question,
        list(document.answers),
        list(document.domain),
        sorted(document.metadata.items()),
        sorted(row.terms),
        sorted(row.label_terms),
    ]
    digest = hashlib.sha256(json.dumps(content).encode())
    for name, vectors in sorted(row.vectors.items()):
        # Adding 0 makes -0.0 the 0.0 that it equals.
        digest.update(name.encode() + (np.asarray(vectors, "<f4") + np.float32(0)).tobytes())
    return int.from_bytes(digest.digest())
