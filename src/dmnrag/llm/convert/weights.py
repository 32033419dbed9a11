"""Carries out the weights of a recipe: checks every key, then writes the stock tensors shard by shard.

Query, key and value are rows of the mapped original and are copied from file to file by the system; only a tensor
whose numbers change is held in memory, one at a time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from dmnrag._io import fault_point, write_json_atomic
from dmnrag._optional import require
from dmnrag.errors import DataError
from dmnrag.llm.convert.checkpoint import Checkpoint
from dmnrag.llm.convert.recipe import Recipe, Target

SHARD_BYTES = 2 * 10**9
"""Largest shard, unless one tensor is larger."""

_SHOWN = 5
_NORM_EPS = 1e-12  # Of the original's F.normalize.


@dataclass(frozen=True, slots=True)
class _Piece:
    key: str
    target: Target
    n_bytes: int


def check_weights(checkpoint: Checkpoint, recipe: Recipe) -> None:
    """Every key that the model needs is there, in its shape and not quantised, and no other.

    Raises:
        DataError: keys are missing or unknown, or a tensor is another; names them.
    """
    found, wanted = checkpoint.keys(), recipe.weights.keys()
    if missing := sorted(wanted - found - recipe.optional):
        raise DataError(f"the checkpoint lacks {_names(missing)}, which {recipe.title} needs: copy all of its weights")
    if unknown := sorted(found - wanted):
        where = checkpoint.origin(unknown[0])
        raise DataError(f"the checkpoint holds {_names(unknown)} ({where}), which {recipe.title} does not have")
    for key in sorted(found):
        tensor, shape = checkpoint[key], recipe.weights[key].shape
        if tuple(tensor.shape) != shape:
            raise DataError(f"{key} is {list(tensor.shape)} in {checkpoint.origin(key)}; by config.json it is {shape}")
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            raise DataError(f"{key} is {tensor.dtype}: quantised checkpoints cannot be converted, take the full one")


def write_weights(
    checkpoint: Checkpoint, recipe: Recipe, folder: Path, progress: Callable[[int, int], None], limit: int = SHARD_BYTES
) -> int:
    """Write safetensors shards and, for several, their index; returns the bytes of all tensors.

    `progress` is called with bytes done and all bytes. `limit` is the largest shard.
    """
    shards = _shards(checkpoint, recipe, limit)
    total = sum(piece.n_bytes for shard in shards for piece in shard)
    names = ["model.safetensors"]
    if len(shards) > 1:
        names = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    done = 0
    for name, shard in zip(names, shards, strict=True):
        progress(done, total)
        _write(checkpoint, shard, folder / name)
        done += sum(piece.n_bytes for piece in shard)
    progress(total, total)
    if len(shards) > 1:
        where = {piece.target.name: name for name, shard in zip(names, shards, strict=True) for piece in shard}
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
        write_json_atomic(folder / "model.safetensors.index.json", index)
    return total


def _write(checkpoint: Checkpoint, shard: list[_Piece], path: Path) -> None:
    safetensors = require("safetensors", "llm")
    save_file = require("safetensors.torch", "llm").save_file
    fault_point("write", path)
    try:
        save_file({p.target.name: _stock(checkpoint[p.key], p.target) for p in shard}, path, metadata={"format": "pt"})
    except safetensors.SafetensorError as error:
        raise DataError(f"{path} cannot be written ({error}): is the disk full?") from error


def _stock(tensor: Any, target: Target) -> Any:
    part = tensor[target.start : target.stop]
    if target.unit_rows:
        part = require("torch", "llm").nn.functional.normalize(part, dim=1, eps=_NORM_EPS)
    return part.contiguous()


def _shards(checkpoint: Checkpoint, recipe: Recipe, limit: int) -> list[list[_Piece]]:
    shards: list[list[_Piece]] = [[]]
    room = limit
    for piece in _pieces(checkpoint, recipe):
        if shards[-1] and piece.n_bytes > room:
            shards.append([])
            room = limit
        shards[-1].append(piece)
        room -= piece.n_bytes
    return shards


def _pieces(checkpoint: Checkpoint, recipe: Recipe) -> Iterator[_Piece]:
    for key, weight in recipe.weights.items():
        for target in weight.targets:
            stop = weight.shape[0] if target.stop is None else target.stop
            n_numbers = (stop - target.start) * prod(weight.shape[1:])
            yield _Piece(key, target, n_numbers * checkpoint[key].element_size())


def _names(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return ", ".join(keys[:_SHOWN]) + more
