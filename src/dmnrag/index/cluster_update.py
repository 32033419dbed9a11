"""Updates an index whose documents are in a cluster: a changed copy of the physical index, then the switch to it."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from dmnrag._io import write_jsonl_atomic
from dmnrag.index import generations
from dmnrag.index.cluster import ClusterContents
from dmnrag.index.cluster_writer import ClusterWriter, stored_rows
from dmnrag.index.documents import DocumentStore
from dmnrag.index.domain_learning import renew_domain_model
from dmnrag.index.held_out import LeakGuard, example_to_dict, without_gold
from dmnrag.index.manifest import library_versions
from dmnrag.index.opened import Index
from dmnrag.index.parts import EXAMPLES_FILE
from dmnrag.index.updating import (
    UpdateReport,
    joined_source,
    needed_encoder,
    refuse_missing,
    refuse_nothing,
    refuse_present,
)
from dmnrag.index.writing import FIRST_SEGMENT, DomainCounts, Progress, SegmentWriter, Written, order_domains
from dmnrag.protocols import Encoder
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.elastic import IndexedDocument
from dmnrag.types import Document


class ClusterUpdate:
    """One update in progress."""

    def __init__(
        self,
        stage: generations.Staging,
        index: Index,
        contents: ClusterContents,
        writer: ClusterWriter,
        files: Sequence[str],
        encoder_for: Callable[[DenseSettings], Encoder] | None,
        on_progress: Progress,
    ) -> None:
        self._stage = stage
        self._index = index
        self._contents = contents
        self._writer = writer
        self._files = files
        self._encoder_for = encoder_for
        self._on_progress = on_progress
        self._guard = LeakGuard(index.examples)

    def run(self, add: Iterable[Document], remove: Collection[str], *, replace: bool) -> UpdateReport:
        """Do it; see `update_index`."""
        wanted = list(dict.fromkeys(remove))
        gone = self._contents.find(wanted)
        refuse_missing([doc_id for doc_id in wanted if doc_id not in gone], len(wanted))
        with self._writer.scratch() as scratch:
            segment = SegmentWriter(scratch, self._index.settings, self._on_progress)
            store = self._write(segment, add)
            added = [] if store is None else store.column("doc_id").to_pylist()
            replaced = {d: old for d, old in self._contents.find(added).items() if d not in gone}
            refuse_present(list(replaced), replace=replace)
            n_left = self._index.n_documents - len(gone) - len(replaced) + len(added)
            refuse_nothing(len(gone) + len(added), n_left, self._guard)
            written = self._writer.change(
                self._contents,
                self._domains([*gone.values(), *replaced.values()], store),
                added=() if store is None else self._rows(scratch, segment, store),
                n_added=len(added),
                removed=[*gone, *replaced],
            )
        self._commit(written, sorted(gone.keys() - set(added)), len(gone) + len(added))
        generations.prune(self._index.folder)
        self._writer.publish(written)
        n_documents, left_out = written.n_documents, tuple(self._guard.left_out)
        return UpdateReport(self._stage.number, len(added), len(replaced), len(gone), n_documents, left_out)

    def _write(self, segment: SegmentWriter, documents: Iterable[Document]) -> DocumentStore | None:
        """The documents that may be added; None where there are none."""
        rows = self._guard.pass_through(documents)
        first = next(rows, None)
        return None if first is None else segment.write_documents(FIRST_SEGMENT, chain([first], rows))

    def _rows(self, scratch: Path, segment: SegmentWriter, store: DocumentStore) -> Iterator[IndexedDocument]:
        retrievers = self._index.manifest.retrievers
        for name in retrievers:
            settings = self._index.dense_settings(name)
            segment.write_vectors(name, FIRST_SEGMENT, store, settings, needed_encoder(self._encoder_for, settings))
        return stored_rows(scratch, store, retrievers, self._index.settings)

    def _domains(self, gone: Iterable[Document], added: DocumentStore | None) -> DomainCounts:
        counts = Counter({tuple(labels): count for labels, count in self._index.manifest.domains})
        counts.subtract(document.domain for document in gone)
        counts.update(document.domain for document in added or ())
        return order_domains(counts)

    def _commit(self, written: Written, removed: Collection[str], n_changed: int) -> None:
        examples = without_gold(self._index.examples, removed)
        write_jsonl_atomic(self._stage.path / EXAMPLES_FILE, map(example_to_dict, examples))
        manifest = self._index.manifest.model_copy(
            update={
                "generation": self._stage.number,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "library_versions": library_versions(),
                "source": joined_source(self._index.manifest.source, self._files),
                "segments": written.segments,
                "domains": written.domains,
                "backend": written.backend,
            }
        )
        renew_domain_model(self._stage, self._index, manifest, n_changed, self._on_progress)
        self._stage.commit(manifest.model_copy(update={"parts": self._stage.parts()}))
