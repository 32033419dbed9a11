"""Put a trained retriever into an index, beside those it has: plain, joint and "DPR" live side by side.

In the folder a new generation gets the vectors of every segment, and everything else is linked; in a cluster a new
physical index takes over everything else. The model's folder is there before
the generation that needs it is named, and goes when no generation needs it any more.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from dmnrag._io import delete_folder, fsync_path, link_or_copy, rename
from dmnrag.errors import ConfigError
from dmnrag.index import generations
from dmnrag.index.cluster import ClusterContents
from dmnrag.index.cluster_writer import open_changing
from dmnrag.index.documents import DocumentStore
from dmnrag.index.embedded import EmbeddedContents
from dmnrag.index.manifest import describe_part, library_versions
from dmnrag.index.models import ADDING, FILES, INFO, MODELS, UNTRAINED, owned_encoder
from dmnrag.index.opened import Index
from dmnrag.index.parts import dense_folder, document_file
from dmnrag.index.writing import Progress, adding_up, no_progress, passage_text
from dmnrag.protocols import Encoder
from dmnrag.retrieval.dense import DenseSettings, FaissDenseIndex, encode_documents, write_vectors
from dmnrag.retrieval.table import DocumentTable

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


def add_retriever(
    folder: Path,
    name: str,
    settings: DenseSettings,
    encoder: Encoder,
    *,
    info: Mapping[str, Any] | None = None,
    model_folder: Path | None = None,
    on_progress: Progress = no_progress,
) -> int:
    """Encode every document anew and switch to a generation that has the retriever; returns its number.

    A retriever of the same name is replaced. Killed at any point the index is as it was, or has the retriever.

    Args:
        folder: an index.
        name: of the retriever: letters, digits, `-` and `_`.
        settings: what is encoded; `encoder` is the model's name unless `model_folder` is given.
        encoder: the loaded model.
        info: what is known of the retriever (dev figures), kept in the manifest; JSON-ready.
        model_folder: becomes a model of the index (files are linked where the disk allows it, else copied).
        on_progress: called as documents are encoded.

    Raises:
        ConfigError: an unusable name.
        IndexLockedError: another process writes there.
        IndexFolderError: the system refuses to write.
    """
    if not _NAME.fullmatch(name) or name == UNTRAINED:
        raise ConfigError(
            f"a retriever cannot be called {name!r}: allowed are up to 32 letters, digits, - and _, "
            f"but not {UNTRAINED!r}"
        )
    generations.current_generation(folder)  # a clear error before a lock file is made
    with generations.stage_generation(folder) as stage, Index.open(folder) as index:
        entry: dict[str, Any] = settings.to_dict() | {INFO: dict(info or {})}
        model = None if model_folder is None else f"dpr-{name}-{stage.number:06d}"
        if model is not None:
            entry["encoder"] = owned_encoder(model)

        def switch(changes: Mapping[str, Any]) -> None:
            if model is not None and model_folder is not None:
                entry[INFO][FILES] = _take_model(folder, model_folder, model)
            _commit(stage, index, name, {**changes, "retrievers": index.manifest.retrievers | {name: entry}})
            generations.prune(folder)

        contents = index.contents
        if isinstance(contents, ClusterContents):
            with open_changing(stage, index.settings, contents, on_progress) as writer:
                written = writer.add_retriever(contents, index.manifest.retrievers | {name: entry}, name, encoder)
                switch({"segments": written.segments, "domains": written.domains, "backend": written.backend})
                writer.publish(written)
        else:
            assert isinstance(contents, EmbeddedContents)  # there is no third place
            into = partial(dense_folder, stage.path, name)
            _encode_segments(index, contents, settings, encoder, into, on_progress)
            switch({})
    return stage.number


def encode_apart(
    index: Index, settings: DenseSettings, encoder: Encoder, folder: Path, on_progress: Progress = no_progress
) -> FaissDenseIndex:
    """A second layer of all documents that belongs to no generation.

    Args:
        index: whose documents are encoded, wherever they are kept.
        settings: what is read of a document.
        encoder: the loaded model.
        folder: where the vectors go; new or empty, and there as long as the layer is searched.
        on_progress: called as documents are encoded.
    """
    doc_ids, domains, texts = [], [], []
    for document in index.all_documents():
        doc_ids.append(document.doc_id)
        domains.append(document.domain)
        texts.append(passage_text(document, settings))
    encoded = encode_documents(texts, encoder, adding_up(on_progress, "vectors", len(texts)))
    write_vectors(folder, encoded, settings)
    return FaissDenseIndex([folder], DocumentTable.from_lists(doc_ids, domains), settings)


def _encode_segments(
    index: Index,
    contents: EmbeddedContents,
    settings: DenseSettings,
    encoder: Encoder,
    folder_of: Callable[[str], Path],
    on_progress: Progress,
) -> None:
    """Write the vectors of all segments of an index into the folders that `folder_of` gives."""
    generation = generations.generation_folder(index.folder, index.manifest.generation)
    report = adding_up(on_progress, "vectors", len(contents.table))
    start = 0
    for segment in index.manifest.segments:
        store = DocumentStore([document_file(generation, segment.name)])
        live = contents.table.live[start : start + len(store)]
        # A removed document keeps its place, but nothing of it is encoded.
        texts = [passage_text(document, settings) if alive else "" for document, alive in zip(store, live, strict=True)]
        write_vectors(folder_of(segment.name), encode_documents(texts, encoder, report), settings)
        start += len(store)


def _take_model(folder: Path, source: Path, model: str) -> dict[str, Any]:
    """The model's files under its final name, each with size and hash."""
    home = folder / MODELS
    home.mkdir(exist_ok=True)
    staging, target = home / ADDING, home / model
    for leftover in (staging, target):
        delete_folder(leftover)
    for path in sorted(source.rglob("*")):
        if path.is_file():
            copied = staging / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path, copied)
            fsync_path(copied)
    files = [path for path in sorted(staging.rglob("*")) if path.is_file()]
    parts = {path.relative_to(staging).as_posix(): describe_part(path).model_dump() for path in files}
    for path in sorted((p for p in staging.rglob("*") if p.is_dir()), reverse=True):
        fsync_path(path)
    fsync_path(staging)
    rename(staging, target)
    fsync_path(folder)
    return parts


def _commit(stage: generations.Staging, index: Index, name: str, changes: Mapping[str, Any]) -> None:
    """Make the generation that has the retriever the current one; what did not change is linked."""
    former, own = generations.generation_folder(index.folder, index.manifest.generation), f"dense/{name}/"
    stage.link(former, index.manifest.parts, lambda part: not part.startswith(own))
    stage.commit(
        index.manifest.model_copy(
            update={
                "generation": stage.number,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "library_versions": library_versions(),
                "parts": stage.parts(),
                **changes,
            }
        )
    )
