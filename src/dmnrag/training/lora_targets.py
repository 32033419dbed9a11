"""Which layers get an update, by architecture: always the same names for one architecture, and written down.

peft's own defaults are the attention's q and v for Llama and nothing for GLM, so the names are given here. Updates on
all linear layers of the decoder's blocks are what matches full fine-tuning (Dettmers et al. 2023, figure 2).
To add an architecture: a line in `TARGETS`. One that is not there is inspected.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from dmnrag._optional import require
from dmnrag.errors import ConfigError

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_SPLIT = (*_ATTENTION, "gate_proj", "up_proj", "down_proj")
_FUSED_GATE = (*_ATTENTION, "gate_up_proj", "down_proj")

TARGETS: dict[str, tuple[str, ...]] = {
    "llama": _SPLIT,  # Baichuan2 after conversion, too
    "mistral": _SPLIT,
    "qwen2": _SPLIT,
    "qwen3": _SPLIT,
    "gemma": _SPLIT,
    "gemma2": _SPLIT,
    "gemma3_text": _SPLIT,
    "glm": _FUSED_GATE,  # ChatGLM2 after conversion, too
    "glm4": _FUSED_GATE,
    "phi3": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"),
}
"""By model_type."""

_ROUTERS = ("router", "gate")
"""Linear layers that choose experts; an update there unsettles the balance that the model was trained to."""


def choose_targets(model: Any, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """Last names of the linear layers that get an update.

    Args:
        model: of transformers, without an adapter.
        wanted: the caller's own choice; empty for that of the architecture.

    Raises:
        ConfigError: a name that no linear layer has, or no decoder blocks to inspect.
    """
    there = list(dict.fromkeys(_linear_names(model)))
    chosen = tuple(wanted) or TARGETS.get(str(model.config.model_type)) or _inspected(there)
    unknown = [name for name in chosen if name not in there]
    if unknown:
        raise ConfigError(
            f"{type(model).__name__} has no linear layer {', '.join(unknown)} in its blocks: allowed are "
            f"{', '.join(there) or 'none'}"
        )
    return chosen


def uses_conv1d(model: Any, names: Sequence[str]) -> bool:
    """Whether these layers are GPT-2's, whose weights lie the other way round."""
    conv1d = require("transformers.pytorch_utils", "lora").Conv1D
    return any(isinstance(m, conv1d) and path.rpartition(".")[2] in names for path, m in model.named_modules())


def _inspected(there: Sequence[str]) -> tuple[str, ...]:
    found = tuple(name for name in there if name not in _ROUTERS)
    if not found:
        raise ConfigError("the model has no linear layers in decoder blocks: name the layers (target_modules)")
    return found


def _linear_names(model: Any) -> Iterator[str]:
    """Of the decoder's blocks, which are the longest list of modules; the output layer is not among them."""
    nn = require("torch", "lora").nn
    linear = (nn.Linear, require("transformers.pytorch_utils", "lora").Conv1D)
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    blocks = max(lists, key=len, default=())
    for block in blocks:
        yield from (path.rpartition(".")[2] for path, m in block.named_modules() if isinstance(m, linear))
