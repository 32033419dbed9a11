"""Which files of an index and of models go into a bundle, each under its name there. Copies nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dmnrag._optional import require
from dmnrag.errors import ConfigError
from dmnrag.index import Index
from dmnrag.index.generations import generation_folder
from dmnrag.index.manifest import FILE_NAME, describe_part
from dmnrag.index.models import FILES, INFO, MODELS, owned_encoder, owned_model, stored_dense
from dmnrag.refusal.files import FILE_NAME as EVIDENCE

Content = Path | bytes
"""A file to read, or what it holds."""

INDEX, NAMED_MODELS = "index", "models"
"""Folders of a bundle."""

_WITHOUT_FILES = frozenset({"builtin", "fake"})
"""Encoders that do not become models of the index: one is in the cache, one needs nothing."""


def index_files(index: Index) -> dict[str, Content]:
    """The open generation and what it needs; former generations and their models stay behind.

    An encoder from a folder or a hub becomes a model of the index: the other machine has neither.

    Raises:
        ConfigError: the index is in a cluster, or the files of an encoder are not on this machine.
    """
    backend = index.manifest.backend
    if backend is not None:
        raise ConfigError(
            f"the documents of {index.folder} are in Elasticsearch ({', '.join(backend.urls)}, index {backend.name}), "
            f"which no bundle can hold; bring them into the folder first: dmnrag migrate {index.folder} --to embedded"
        )
    number = index.manifest.generation
    generation = generation_folder(index.folder, number)
    found: dict[str, Content] = {f"{INDEX}/CURRENT": f"{number:06d}\n".encode()}
    # Nothing else that may stand there: the service's store holds people's questions.
    evidence = index.folder / EVIDENCE
    found |= {f"{INDEX}/{EVIDENCE}": evidence} if evidence.is_file() else {}
    into = f"{INDEX}/{generation.relative_to(index.folder).as_posix()}"
    found |= under(into, generation)
    retrievers: dict[str, dict[str, Any]] = {}
    for name, entry in index.manifest.retrievers.items():
        retrievers[name], files = _with_owned_model(index.folder, name, entry)
        found |= files
    manifest = index.manifest.model_copy(update={"retrievers": retrievers})
    content = json.dumps(manifest.model_dump(exclude={"backend"}), ensure_ascii=False, indent=2) + "\n"
    return found | {f"{into}/{FILE_NAME}": content.encode()}


def _with_owned_model(folder: Path, name: str, entry: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Content]]:
    """A retriever's entry in the manifest with an encoder that the index holds, and that encoder's files."""
    encoder = stored_dense(entry).encoder
    if encoder in _WITHOUT_FILES:
        return entry, {}
    model = owned_model(encoder)
    if model is not None:
        return entry, under(f"{INDEX}/{MODELS}/{model}", folder / MODELS / model)
    source = model_folder(encoder)
    model = f"encoder-{name}"
    parts = {path.relative_to(source).as_posix(): describe_part(path).model_dump() for path in _files(source)}
    info = entry.get(INFO, {}) | {FILES: parts}
    return entry | {"encoder": owned_encoder(model), INFO: info}, under(f"{INDEX}/{MODELS}/{model}", source)


def model_folder(name: str) -> Path:
    """Where the files of a model are: a folder, or a hub name's place in the hub's cache.

    Raises:
        ConfigError: it is not on this machine.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    hub = require("huggingface_hub", "dense")
    try:
        # sentence-transformers looks under its own account for names without one.
        for repository in [name] if "/" in name else [f"sentence-transformers/{name}", name]:
            cached = hub.try_to_load_from_cache(repository, "config.json")
            if isinstance(cached, str):
                return Path(cached).parent
    except ValueError as error:
        raise ConfigError(f"{name!r} is neither a folder nor a possible model name ({error})") from error
    raise ConfigError(
        f"the model {name!r} is no folder here and not in the hub's cache; download it to a folder and name that, "
        "or use it once where the hub answers"
    )


def under(name: str, path: Path) -> dict[str, Content]:
    """A file, or every file of a folder, under a name of the bundle. Links are followed, hidden names left out."""
    if path.is_file():
        return {name: path}
    return {f"{name}/{file.relative_to(path).as_posix()}": file for file in _files(path)}


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path
