"""Build an index from documents, in the folder or in a cluster.

A killed build leaves the former index as it was: the new generation is named only when it is whole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dmnrag._io import write_jsonl_atomic
from dmnrag.errors import ConfigError
from dmnrag.index import generations
from dmnrag.index.cluster_writer import ClusterTarget
from dmnrag.index.domain_learning import learn_domains
from dmnrag.index.held_out import example_to_dict
from dmnrag.index.manifest import ClusterPart, Manifest, library_versions
from dmnrag.index.models import UNTRAINED
from dmnrag.index.parts import EXAMPLES_FILE
from dmnrag.index.settings import IndexSettings
from dmnrag.index.writers import open_writer
from dmnrag.index.writing import Progress, no_progress, passage_text
from dmnrag.protocols import Encoder
from dmnrag.types import Document, Example

__all__ = ["EXAMPLES_FILE", "UNTRAINED", "BuildReport", "Progress", "build_index", "no_progress", "passage_text"]


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did."""

    generation: int
    n_documents: int
    n_long_passages: int
    """Documents longer than the encoder reads at once; each was split and counts with its best part."""
    backend: ClusterPart | None = None
    """Where in a cluster it is; None: in the folder."""


def build_index(  # noqa: PLR0913 - one place for whatever an index is made of
    folder: Path,
    documents: Iterable[Document],
    settings: IndexSettings,
    *,
    examples: Sequence[Example] = (),
    source: dict[str, Any] | None = None,
    encoder: Encoder | None = None,
    target: ClusterTarget | None = None,
    with_domain_model: bool = True,
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
        target: the cluster that is to hold documents, postings and vectors; None keeps them in the folder.
        with_domain_model: learn to infer domains, where documents have some; see `domain_learning` for the cost.
        on_progress: called as the build goes on.

    Raises:
        DataError: no documents, or an id given twice.
        IndexLockedError: another process writes there.
        ClusterError: the cluster cannot do it, or the name there is another folder's.
    """
    if (settings.dense is None) != (encoder is None):
        raise ConfigError("an encoder and dense settings belong together: give both or neither")
    with generations.stage_generation(folder) as stage, open_writer(stage, settings, target, on_progress) as writer:
        written = writer.build(documents, encoder)
        write_jsonl_atomic(stage.path / EXAMPLES_FILE, map(example_to_dict, examples))
        manifest = Manifest(
            generation=stage.number,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            library_versions=library_versions(),
            settings=writer.settings.to_dict(),
            source=source or {},
            segments=written.segments,
            domains=written.domains,
            n_examples=len(examples),
            retrievers={} if settings.dense is None else {UNTRAINED: settings.dense.to_dict()},
            parts={},
            backend=written.backend,
        )
        if with_domain_model:
            learn_domains(stage.path, manifest, writer.settings, on_progress)
        stage.commit(manifest.model_copy(update={"parts": stage.parts()}))
        generations.prune(folder)
        writer.publish(written)
    return BuildReport(stage.number, written.n_documents, written.n_long, written.backend)
