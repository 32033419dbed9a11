"""Where a new index is written to: the one place that chooses between the folder and a cluster."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from dmnrag.index.cluster_writer import ClusterTarget, open_cluster
from dmnrag.index.embedded_writer import EmbeddedWriter
from dmnrag.index.generations import Staging
from dmnrag.index.settings import IndexSettings
from dmnrag.index.writing import Progress, Written
from dmnrag.protocols import Encoder
from dmnrag.retrieval.elastic import IndexedDocument
from dmnrag.types import Document


class Writer(Protocol):
    """Writes the contents of a new generation; what it gives back stands in the manifest."""

    settings: IndexSettings
    """As the index has them then."""

    def build(self, documents: Iterable[Document], encoder: Encoder | None) -> Written:
        """A whole index from documents, read once."""
        ...

    def take(
        self,
        rows: Iterable[IndexedDocument],
        retrievers: Mapping[str, Mapping[str, Any]],
        dimensions: Mapping[str, int],
        n_rows: int,
    ) -> Written:
        """A whole index from rows that have terms and vectors already, read once, in constant memory.

        Args:
            rows: with the vectors of every retriever.
            retrievers: the manifest's entry of each.
            dimensions: of the vectors of each.
            n_rows: how many will come, for the progress.
        """
        ...

    def publish(self, written: Written) -> None:
        """Called when `CURRENT` points at the new generation."""
        ...


@contextmanager
def open_writer(
    stage: Staging, settings: IndexSettings, target: ClusterTarget | None, on_progress: Progress
) -> Iterator[Writer]:
    """The writer of a generation in the making; `target` None keeps everything in the folder.

    Raises:
        ClusterError: the cluster cannot be used, or the name there is another folder's.
    """
    if target is None:
        yield EmbeddedWriter(stage.path, settings, on_progress)
        return
    with open_cluster(stage, settings, target, on_progress) as writer:
        yield writer
