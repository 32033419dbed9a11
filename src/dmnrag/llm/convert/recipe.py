"""What a conversion is, as data: the stock configuration, where each original tensor goes, tokenizer, defaults.

`chatglm2` and `baichuan2` make recipes from an original config.json; `folder` carries them out. To add a model: a
module like those two, and its model_type in `folder.RECIPES`.
"""

from dataclasses import dataclass, field
from typing import Any

from dmnrag.llm.convert.sentencepiece_file import PieceTable


@dataclass(frozen=True, slots=True)
class Target:
    """A tensor of the stock model: the rows [start, stop) of an original one."""

    name: str
    start: int = 0
    stop: int | None = None
    unit_rows: bool = False
    """Rows are divided by their length, in the type of the checkpoint (Baichuan2's NormHead)."""


@dataclass(frozen=True, slots=True)
class Weight:
    """An original tensor: its shape, and the stock tensors made of it (none: it is not needed)."""

    shape: tuple[int, ...]
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything about one checkpoint but its numbers."""

    title: str
    config: Any
    """Of the stock class; `architectures` names it."""
    weights: dict[str, Weight]
    """By original key."""
    optional: frozenset[str] = frozenset()
    """Keys that a checkpoint may lack: buffers that are computed."""
    generation: dict[str, Any] = field(default_factory=dict)
    """Fields of generation_config.json."""
    tokenizer: Any = None
    """A fast tokenizer with its chat template."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a recipe is made from."""

    config: dict[str, Any]
    generation: dict[str, Any] | None
    """None where the folder has no generation_config.json."""
    pieces: PieceTable
    tokenizer_code: str = ""
    """Text of the folder's own tokenizer module, read and never run; some variants differ only there."""


def fused_attention(prefix: str, rows: tuple[int, int, int], kind: str = "weight") -> tuple[Target, ...]:
    """Query, key and value of a fused projection: rows of the first come first, then the second, then the third."""
    targets, start = [], 0
    for name, n in zip("qkv", rows, strict=True):
        targets.append(Target(f"{prefix}.self_attn.{name}_proj.{kind}", start, start + n))
        start += n
    return tuple(targets)
