"""Updates an index whose documents are in the folder.

A change is a new generation: unchanged files are linked, added documents are a new segment, removed
ones are marked. When segments become many, the small ones are joined, so that a search stays fast.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dmnrag._io import write_jsonl_atomic
from dmnrag.index import generations
from dmnrag.index.documents import DocumentStore, write_documents
from dmnrag.index.domain import is_domain_part
from dmnrag.index.domain_learning import renew_domain_model
from dmnrag.index.embedded import EmbeddedContents
from dmnrag.index.held_out import LeakGuard, example_to_dict, without_gold
from dmnrag.index.manifest import Segment, library_versions
from dmnrag.index.opened import Index
from dmnrag.index.parts import EXAMPLES_FILE, dense_folder, document_file, removed_file, sparse_folder
from dmnrag.index.updating import (
    UpdateReport,
    joined_source,
    needed_encoder,
    refuse_missing,
    refuse_nothing,
    refuse_present,
)
from dmnrag.index.writing import Progress, SegmentWriter, count_domains
from dmnrag.protocols import Encoder
from dmnrag.retrieval.arrays import save_array
from dmnrag.retrieval.dense import DenseSettings, merge_vectors
from dmnrag.retrieval.sparse import merge_segments
from dmnrag.types import Document

MAX_SEGMENTS = 8
"""A search visits every segment; more than this many are joined."""

_LARGEST_STAYS = 0.2
"""The largest segment is joined too once this share of it is removed."""

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Piece:
    """A segment of the generation in the making, with what is left of it."""

    name: str
    live: Mask
    stored: bool
    """Its files are already in the new generation's folder."""


class EmbeddedUpdate:
    """One update in progress."""

    def __init__(
        self,
        stage: generations.Staging,
        index: Index,
        contents: EmbeddedContents,
        files: Sequence[str],
        encoder_for: Callable[[DenseSettings], Encoder] | None,
        on_progress: Progress,
    ) -> None:
        self._stage = stage
        self._index = index
        self._contents = contents
        self._files = files
        self._encoder_for = encoder_for
        self._on_progress = on_progress
        self._former = generations.generation_folder(index.folder, index.manifest.generation)
        self._live = contents.table.live.copy()
        self._guard = LeakGuard(index.examples)
        self._removed: list[str] = []
        self._next = 1 + max((int(s.name) for s in index.manifest.segments), default=-1)

    def run(self, add: Iterable[Document], remove: Collection[str], *, replace: bool) -> UpdateReport:
        """Do it; see `update_index`."""
        n_removed = self._remove(remove)
        before = int(self._live.sum())
        added, n_added = self._add(add, replace=replace)
        n_replaced = before - int(self._live.sum())
        pieces = self._former_pieces() + added
        refuse_nothing(n_added + n_removed, sum(int(piece.live.sum()) for piece in pieces), self._guard)
        pieces = self._join([piece for piece in pieces if piece.live.any()])
        self._store(pieces)
        self._commit(pieces, n_added + n_removed)
        generations.prune(self._index.folder)
        n_documents = sum(int(piece.live.sum()) for piece in pieces)
        left_out = tuple(self._guard.left_out)
        return UpdateReport(self._stage.number, n_added, n_replaced, n_removed, n_documents, left_out)

    def _remove(self, doc_ids: Collection[str]) -> int:
        wanted = list(dict.fromkeys(doc_ids))
        ordinals = self._contents.table.ordinals(wanted)
        refuse_missing([d for d, ordinal in zip(wanted, ordinals, strict=True) if ordinal is None], len(wanted))
        self._live[[o for o in ordinals if o is not None]] = False
        self._removed = wanted
        return len(wanted)

    def _add(self, documents: Iterable[Document], *, replace: bool) -> tuple[list[_Piece], int]:
        rows = self._guard.pass_through(documents)
        first = next(rows, None)
        if first is None:
            return [], 0
        name = self._new_name()
        writer = SegmentWriter(self._stage.path, self._index.settings, self._on_progress)
        store = writer.write_documents(name, _chain(first, rows))
        writer.write_postings(name, store)
        added = store.column("doc_id").to_pylist()
        self._replace(added, replace=replace)
        self._removed = sorted(set(self._removed).difference(added))
        for retriever in self._index.manifest.retrievers:
            settings = self._index.dense_settings(retriever)
            writer.write_vectors(retriever, name, store, settings, needed_encoder(self._encoder_for, settings))
        return [_Piece(name, np.ones(len(store), np.bool_), stored=True)], len(store)

    def _replace(self, doc_ids: list[str], *, replace: bool) -> None:
        present = [
            (doc_id, ordinal)
            for doc_id, ordinal in zip(doc_ids, self._contents.table.ordinals(doc_ids), strict=True)
            if ordinal is not None and self._live[ordinal]
        ]
        refuse_present([doc_id for doc_id, _ in present], replace=replace)
        self._live[[ordinal for _, ordinal in present]] = False

    def _former_pieces(self) -> list[_Piece]:
        bounds = np.cumsum([s.n_documents for s in self._index.manifest.segments])
        masks = np.split(self._live, bounds[:-1])
        return [
            _Piece(segment.name, mask, stored=False)
            for segment, mask in zip(self._index.manifest.segments, masks, strict=True)
        ]

    def _join(self, pieces: list[_Piece]) -> list[_Piece]:
        """Join small segments into one when there are too many."""
        if len(pieces) <= MAX_SEGMENTS:
            return pieces
        largest = max(pieces, key=lambda piece: int(piece.live.sum()))
        keep = largest.live.mean() >= 1 - _LARGEST_STAYS
        small = [piece for piece in pieces if piece is not largest or not keep]
        joined = self._merge(small)
        return [largest, joined] if keep else [joined]

    def _merge(self, pieces: list[_Piece]) -> _Piece:
        name = self._new_name()
        masks = [piece.live for piece in pieces]
        store = DocumentStore([document_file(self._home(piece), piece.name) for piece in pieces])
        live = np.concatenate(masks)
        kept = (document for ordinal, document in enumerate(store) if live[ordinal])
        n_documents = write_documents(document_file(self._stage.path, name), kept)
        merge_segments(
            sparse_folder(self._stage.path, name),
            [sparse_folder(self._home(p), p.name) for p in pieces],
            masks,
        )
        for retriever in self._index.manifest.retrievers:
            merge_vectors(
                dense_folder(self._stage.path, retriever, name),
                [dense_folder(self._home(p), retriever, p.name) for p in pieces],
                masks,
                self._index.dense_settings(retriever),
            )
        for piece in pieces:
            if piece.stored:
                self._stage.drop(piece.name)
        return _Piece(name, np.ones(n_documents, np.bool_), stored=True)

    def _home(self, piece: _Piece) -> Path:
        return self._stage.path if piece.stored else self._former

    def _new_name(self) -> str:
        name = f"{self._next:03d}"
        self._next += 1
        return name

    def _store(self, pieces: list[_Piece]) -> None:
        """Link the files of segments that stay, and write which of their documents are removed."""
        stay = {piece.name for piece in pieces if not piece.stored}
        examples = without_gold(self._index.examples, self._removed)
        changed = examples != self._index.examples
        self._stage.link(
            self._former,
            self._index.manifest.parts,
            lambda name: _is_kept(name, stay) and not (changed and name == EXAMPLES_FILE),
        )
        if changed:
            write_jsonl_atomic(self._stage.path / EXAMPLES_FILE, map(example_to_dict, examples))
        for piece in pieces:
            if not piece.live.all():
                save_array(removed_file(self._stage.path, piece.name), np.flatnonzero(~piece.live))

    def _commit(self, pieces: list[_Piece], n_changed: int) -> None:
        store = DocumentStore([document_file(self._stage.path, piece.name) for piece in pieces])
        live = np.concatenate([piece.live for piece in pieces])
        manifest = self._index.manifest.model_copy(
            update={
                "generation": self._stage.number,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "library_versions": library_versions(),
                "source": joined_source(self._index.manifest.source, self._files),
                "segments": [
                    Segment(name=p.name, n_documents=len(p.live), n_removed=int((~p.live).sum())) for p in pieces
                ],
                "domains": count_domains(store.column("domain"), live),
            }
        )
        renew_domain_model(self._stage, self._index, manifest, n_changed, self._on_progress)
        self._stage.commit(manifest.model_copy(update={"parts": self._stage.parts()}))


def _is_kept(part: str, segments: set[str]) -> bool:
    """Whether a former generation's file belongs to a segment that stays, or to none; the domain model is renewed."""
    if is_domain_part(part):
        return False
    top, _, rest = part.partition("/")
    if top == "sparse":
        return rest.split("/")[0] in segments
    if top == "dense":
        return rest.split("/")[1] in segments
    if top.startswith("documents-"):
        return top.removeprefix("documents-").removesuffix(".parquet") in segments
    return not top.startswith("removed-")


def _chain(first: Document, rest: Iterable[Document]) -> Iterable[Document]:
    yield first
    yield from rest
