"""Local base models for adapters: opened by the name a user writes, and told apart by their content.

A name is no identity: folders move, and a hub name gets new weights. So a base model is described by a hash over
every tensor's name, type, shape and first bytes (a few MB of a model of 15 GB), and one over what its tokenizer makes
of a text and its chat template.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmnrag._optional import require
from dmnrag.errors import ConfigError
from dmnrag.llm.builtin import builtin_folder
from dmnrag.llm.loading import load_causal_lm

_BYTES_OF_TENSOR = 4096
"""Read of each tensor. Training changes all of them, so a small part of each tells two models apart."""

_PROBE = "高血压患者可以喝酒吗？第1题: The 12,345.67 mg\n\t“引号”，【】"
"""Han characters, Latin letters, digits, white space and both kinds of punctuation."""

_WITHOUT_WEIGHTS = ("fake", "openai")


@dataclass(frozen=True, slots=True)
class BaseModel:
    """Which model an adapter belongs to."""

    name: str
    """As it was named; does not tell models apart."""
    model_type: str
    weights: str
    """sha256 over a part of every tensor."""
    tokenizer: str
    """sha256 over the chat template and the tokens of a probe."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A loaded model."""

    name: str
    folder: Path
    """Where its files are."""
    model: Any
    tokenizer: Any


def open_local(
    spec: str,
    *,
    device: str | None = None,
    dtype: str | None = None,
    four_bit: bool = False,
    progress: Callable[[str, float], None] | None = None,
) -> LocalModel:
    """Load `builtin`, a folder or a hub name (see `load_causal_lm`).

    Raises:
        ConfigError: a spec without weights at hand, or a model that cannot be loaded.
    """
    if spec.partition(":")[0] in _WITHOUT_WEIGHTS:
        raise ConfigError(
            f"LLM {spec!r} has no weights here, and an adapter needs them: allowed are 'builtin', a folder and a hub "
            "name. A server loads an adapter by itself (docs/llms.md)"
        )
    source = str(builtin_folder(progress)) if spec == "builtin" else spec
    model, tokenizer = load_causal_lm(source, device=device, dtype=dtype, four_bit=four_bit)
    return LocalModel(spec, files_of(source), model, tokenizer)


def describe_base(local: LocalModel) -> BaseModel:
    """What tells this model from others."""
    ids = local.tokenizer(_PROBE, verbose=False)["input_ids"]
    reading = json.dumps([getattr(local.tokenizer, "chat_template", None), list(map(int, ids))])
    return BaseModel(
        local.name,
        str(local.model.config.model_type),
        _hash_weights(local.folder),
        hashlib.sha256(reading.encode()).hexdigest(),
    )


def files_of(source: str) -> Path:
    """The folder of a model that was loaded: itself, or a hub name's place in the cache.

    Raises:
        ConfigError: a hub name that is not there.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    cached = require("huggingface_hub", "llm").try_to_load_from_cache(source, "config.json")
    if not isinstance(cached, str):
        raise ConfigError(f"the files of {source} are not in the cache: download it to a folder, and name that")
    return Path(cached).parent


def _hash_weights(folder: Path) -> str:
    """The same for every division into shards."""
    tensors = {name: entry for path in _weight_files(folder) for name, entry in _tensors(path)}
    if not tensors:
        raise ConfigError(f"{folder} holds no safetensors weights")
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(tensors[name])
    return digest.hexdigest()


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return [path for path in (folder / "model.safetensors",) if path.is_file()]
    shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    return [folder / name for name in sorted(set(shards))]


def _tensors(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name, and what is hashed of it. Layout: 8 bytes length of the header, the header in JSON, the data."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, end = entry["data_offsets"]
            file.seek(8 + length + start)
            part = file.read(min(end - start, _BYTES_OF_TENSOR))
            yield name, json.dumps([name, entry["dtype"], entry["shape"]]).encode() + part
