"""Put a trained retriever into an index, beside those it has: plain, joint and "DPR" live side by side.

A new generation gets the vectors of every segment; everything else is linked. The model's folder is there before
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
from dmnrag.index.build import UNTRAINED, Progress, dense_folder, document_file, no_progress, passage_text
from dmnrag.index.documents import DocumentStore
from dmnrag.index.manifest import describe_part, library_versions
from dmnrag.index.models import ADDING, FILES, INFO, MODELS, owned_encoder
from dmnrag.index.opened import Index
from dmnrag.protocols import Encoder
from dmnrag.retrieval.dense import DenseSettings, encode_documents, write_vectors

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
        former, own = generations.generation_folder(folder, index.manifest.generation), f"dense/{name}/"
        stage.link(former, index.manifest.parts, lambda part: not part.startswith(own))
        encode_segments(index, settings, encoder, partial(dense_folder, stage.path, name), on_progress)
        entry: dict[str, Any] = settings.to_dict() | {INFO: dict(info or {})}
        if model_folder is not None:
            model = f"dpr-{name}-{stage.number:06d}"
            entry["encoder"] = owned_encoder(model)
            entry[INFO][FILES] = _take_model(folder, model_folder, model)
        _commit(stage, index, name, entry)
        generations.prune(folder)
    return stage.number


def encode_segments(
    index: Index,
    settings: DenseSettings,
    encoder: Encoder,
    folder_of: Callable[[str], Path],
    on_progress: Progress = no_progress,
) -> list[Path]:
    """Write the vectors of all segments of an index; returns their folders in order.

    Args:
        index: whose documents are encoded.
        settings: what is read of a document.
        encoder: the loaded model.
        folder_of: where the vectors of a segment go, by the segment's name.
        on_progress: called as documents are encoded.
    """
    generation = generations.generation_folder(index.folder, index.manifest.generation)
    folders: list[Path] = []
    start = done = 0

    def report(n_more: int) -> None:
        nonlocal done
        done += n_more
        on_progress("vectors", done, len(index.table))

    for segment in index.manifest.segments:
        store = DocumentStore([document_file(generation, segment.name)])
        live = index.table.live[start : start + len(store)]
        # A removed document keeps its place, but nothing of it is encoded.
        texts = [passage_text(document, settings) if alive else "" for document, alive in zip(store, live, strict=True)]
        folders.append(folder_of(segment.name))
        write_vectors(folders[-1], encode_documents(texts, encoder, report), settings)
        start += len(store)
    return folders


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


def _commit(stage: generations.Staging, index: Index, name: str, entry: dict[str, Any]) -> None:
    stage.commit(
        index.manifest.model_copy(
            update={
                "generation": stage.number,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "library_versions": library_versions(),
                "retrievers": index.manifest.retrievers | {name: entry},
                "parts": stage.parts(),
            }
        )
    )
