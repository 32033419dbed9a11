"""Models that belong to an index: trained encoders in `INDEX/models/`, named relative to the index.

In the manifest such an encoder is called `index:models/dpr-joint-000002`, so that the folder can be moved. What else
is known of a trained retriever (dev figures, files with their hashes) stands under `info` beside its settings.
Knows the manifest's entries, nothing of generations.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dmnrag._io import delete_folder
from dmnrag.errors import DmnragError, IndexDamagedError
from dmnrag.index.manifest import Manifest, Part, check_parts
from dmnrag.retrieval.dense import DenseSettings

UNTRAINED = "base"
"""Name of the second layer whose encoder is used as it came."""

MODELS = "models"
"""Name of the folder of models."""

INFO = "info"
"""Key of what is known of a trained retriever, beside the settings of its `DenseSettings`."""

ADDING = ".adding"
"""A model that is being copied in; left over where that was killed."""

FILES = "files"
"""Key in `info` of the model's files, each with size and hash."""

_OWNED = "index:"


def owned_encoder(model: str) -> str:
    """How the manifest names the encoder in `INDEX/models/MODEL`."""
    return f"{_OWNED}{MODELS}/{model}"


def owned_model(encoder: str) -> str | None:
    """The folder in `INDEX/models/` that an encoder's name means; None for an encoder from elsewhere."""
    return encoder.removeprefix(f"{_OWNED}{MODELS}/") if encoder.startswith(_OWNED) else None


def retriever_encoder_name(index_folder: Path, encoder: str) -> str:
    """What `make_encoder` is to load: a model of the index as its folder, any other name as it is."""
    return str(index_folder / encoder.removeprefix(_OWNED)) if encoder.startswith(_OWNED) else encoder


def stored_dense(entry: Mapping[str, Any]) -> DenseSettings:
    """The settings in a manifest's entry, with the encoder's name as it stands there."""
    return DenseSettings.from_dict({name: value for name, value in entry.items() if name != INFO})


def read_retriever(index_folder: Path, entry: Mapping[str, Any]) -> DenseSettings:
    """The settings in a manifest's entry, with the encoder's name as `make_encoder` takes it."""
    dense = stored_dense(entry)
    return replace(dense, encoder=retriever_encoder_name(index_folder, dense.encoder))


def check_models(index_folder: Path, retrievers: Mapping[str, Mapping[str, Any]], *, hashes: bool) -> None:
    """Compare the files of the index's models with the manifest.

    Raises:
        IndexDamagedError: one is missing, has another size, or (with `hashes`) other content.
    """
    for name, entry in retrievers.items():
        model = owned_model(entry["encoder"])
        if model is None:
            continue
        files = entry.get(INFO, {}).get(FILES)
        if not files:
            raise IndexDamagedError(f"the manifest of {index_folder} does not list the files of retriever {name!r}")
        parts = {path: Part.model_validate(part) for path, part in files.items()}
        check_parts(index_folder / MODELS / model, parts, hashes=hashes)


def delete_unused_models(index_folder: Path, generations: Iterable[Path]) -> None:
    """Delete models that none of the given generation folders needs, and copies that were not finished.

    The caller holds the writer's lock and gives every generation on disk.
    """
    home = index_folder / MODELS
    if not home.is_dir():
        return
    needed: set[str | None] = set()
    try:
        for generation in generations:
            retrievers = Manifest.load(generation).retrievers
            needed |= {owned_model(entry["encoder"]) for entry in retrievers.values()}
    except DmnragError:
        return  # what a generation needs cannot be told now: delete nothing
    for path in home.iterdir():
        if path.name == ADDING or (path.name.startswith("dpr-") and path.name not in needed):
            delete_folder(path)
