"""Add, replace and remove documents without a rebuild. A killed update leaves the index as it was."""

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from dmnrag.index import generations
from dmnrag.index.cluster import ClusterContents
from dmnrag.index.cluster_update import ClusterUpdate
from dmnrag.index.cluster_writer import open_changing
from dmnrag.index.embedded import EmbeddedContents
from dmnrag.index.embedded_update import MAX_SEGMENTS, EmbeddedUpdate
from dmnrag.index.opened import Index
from dmnrag.index.updating import UpdateReport
from dmnrag.index.writing import Progress, no_progress
from dmnrag.protocols import Encoder
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.types import Document

__all__ = ["MAX_SEGMENTS", "UpdateReport", "update_index"]


def update_index(
    folder: Path,
    *,
    add: Iterable[Document] = (),
    remove: Collection[str] = (),
    replace: bool = False,
    files: Sequence[str] = (),
    encoder_for: Callable[[DenseSettings], Encoder] | None = None,
    on_progress: Progress = no_progress,
) -> UpdateReport:
    """Make a new generation with documents added and removed, and make it the current one.

    Args:
        folder: an index.
        add: documents to add; read once.
        remove: ids to remove; removing comes before adding.
        replace: an added document takes the place of the one with its id, instead of being refused.
        files: names of the files that the documents come from; the manifest keeps them with those of the build.
        encoder_for: gives the encoder of a second layer from its settings, needed where the index has vectors.
        on_progress: called as the update goes on.

    Documents with a question or an answer of the held-out split are left out and named in the report.

    Raises:
        DataError: an id to remove that is not there, an id to add that is, nothing to change, or nothing
            would be left.
        IndexLockedError: another process writes there.
        IndexFolderError: the system refuses to write.
        ClusterError: the cluster cannot do it, or the name there is another folder's.
    """
    generations.current_generation(folder)  # a clear error before a lock file is made
    with generations.stage_generation(folder) as stage, Index.open(folder) as index:
        contents = index.contents
        if isinstance(contents, ClusterContents):
            with open_changing(stage, index.settings, contents, on_progress) as writer:
                changing = ClusterUpdate(stage, index, contents, writer, files, encoder_for, on_progress)
                return changing.run(add, remove, replace=replace)
        assert isinstance(contents, EmbeddedContents)  # there is no third place
        embedded = EmbeddedUpdate(stage, index, contents, files, encoder_for, on_progress)
        return embedded.run(add, remove, replace=replace)
