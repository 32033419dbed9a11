"""The tensors of a checkpoint in any of the four layouts, mapped from the files, never loaded as a whole.

Pickles are read by torch's restricted reader (`weights_only`), which knows tensors and refuses everything that runs.
"""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dmnrag._optional import require
from dmnrag.errors import DataError

_SINGLE = ("model.safetensors", "pytorch_model.bin")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_ADAPTER = ("adapter_model.safetensors", "adapter_model.bin")
_LFS = b"version https://git-lfs"
_ZIP = b"PK"


class Checkpoint:
    """All tensors of a checkpoint by key, as views of the mapped files."""

    def __init__(self, files: list[Path]) -> None:
        """Raises DataError: a file is missing, cut short, or holds something else than tensors."""
        self.files = files
        self._tensors: dict[str, Any] = {}
        self._origin: dict[str, Path] = {}
        for path in files:
            for key, tensor in _tensors(path):
                if key in self._origin:
                    raise DataError(f"{key} is in {self._origin[key].name} and again in {path.name}: which one counts?")
                self._origin[key] = path
                self._tensors[key] = tensor

    @classmethod
    def of_model(cls, folder: Path) -> "Checkpoint":
        """The weights of a model folder; safetensors where there are both kinds."""
        for index, single in zip(_INDEXES, _SINGLE, strict=True):
            if (folder / index).is_file():
                return cls(_listed(folder / index))
            if (folder / single).is_file():
                return cls([folder / single])
        raise DataError(f"{folder} has no weights: needed is one of {', '.join((*_SINGLE, *_INDEXES))}")

    @classmethod
    def of_adapter(cls, folder: Path) -> "Checkpoint":
        """The weights of a LoRA adapter."""
        for name in _ADAPTER:
            if (folder / name).is_file():
                return cls([folder / name])
        raise DataError(f"{folder} has no weights: needed is one of {', '.join(_ADAPTER)}")

    def keys(self) -> set[str]:
        """Names of the tensors."""
        return set(self._tensors)

    def __getitem__(self, key: str) -> Any:
        return self._tensors[key]

    def origin(self, key: str) -> str:
        """Name of the file that holds a tensor."""
        return self._origin[key].name


def _listed(index: Path) -> list[Path]:
    """The shards that an index names, each of which must be there."""
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{index} is not an index of shards ({error}): copy it again") from error
    if not names or any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise DataError(f"{index} names no files beside it: copy it again")
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise DataError(f"{index.parent} lacks {', '.join(missing)}, which {index.name} lists: copy the missing shards")
    return [index.parent / name for name in names]


def _tensors(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as content:
        head = content.read(len(_LFS))
    if head == _LFS:
        raise DataError(f"{path} is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`")
    return _from_safetensors(path) if path.suffix == ".safetensors" else _from_pickle(path, head)


def _from_safetensors(path: Path) -> Iterator[tuple[str, Any]]:
    safetensors = require("safetensors", "llm")
    try:
        with safetensors.safe_open(path, framework="pt") as opened:
            for key in opened.keys():  # noqa: SIM118 - not a mapping
                yield key, opened.get_tensor(key)
    except safetensors.SafetensorError as error:
        raise DataError(f"{path} is cut short or damaged ({error}): copy it again") from error


def _from_pickle(path: Path, head: bytes) -> Iterator[tuple[str, Any]]:
    torch = require("torch", "llm")
    if not head.startswith(_ZIP):
        raise DataError(
            f"{path} is empty, cut short, or of the format before torch 1.6, which cannot be mapped: copy it again, or "
            "save it anew with torch.save"
        )
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise DataError(f"{path} holds more than tensors, and nothing else is read from a pickle") from error
    except (RuntimeError, EOFError, ValueError, OSError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise DataError(f"{path} is cut short or damaged ({first}): copy it again") from error
    if not isinstance(found, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in found.values()):
        raise DataError(f"{path} is not a dictionary of tensors by name: take the original weights")
    yield from found.items()
