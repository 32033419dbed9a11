"""How a LoRA adapter is trained. Kept with the adapter, so that a run can be repeated."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, get_args

from dmnrag.errors import ConfigError
from dmnrag.training.settings import Precision

SHORTEST = 32
"""Tokens of prompt and answer together; with fewer nothing is left for documents."""


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Settings of one training of an adapter (Hu et al. 2021, "LoRA").

    The paper states none; learning rate, rank and layers are what the authors of QLoRA found to do as well as full
    fine-tuning (Dettmers et al. 2023: all linear layers; 2e-4 for models up to 13B), the rest is plain.
    """

    rank: int = 16
    """Of the update B A of each layer."""
    alpha: float = 32.0
    """The update is multiplied by alpha / rank."""
    dropout: float = 0.05
    """Share of the inputs of A that are dropped in training."""
    target_modules: tuple[str, ...] = ()
    """Last names of the linear layers that get an update; empty: all of the decoder's blocks, named in the record."""
    epochs: int = 2
    """Passes over the training questions."""
    batch_size: int = 4
    """Questions that go through the model together."""
    gradient_accumulation: int = 4
    """Batches per step. Each answer token of a step counts the same, however the step is divided."""
    learning_rate: float = 2e-4
    """Highest rate of AdamW; reached after the warm-up, then falling to 0 in a straight line."""
    warmup_share: float = 0.05
    """Share of all steps in which the rate rises from 0."""
    weight_decay: float = 0.0
    """AdamW's."""
    max_gradient_norm: float = 1.0
    """Longer gradients are shortened to this length."""
    max_length: int = 2048
    """Tokens of prompt and answer together. Documents are cut to fit, in training and when the adapter is used."""
    answer_tokens: int = 256
    """Of `max_length`, what is kept for the answer; longer ones are cut, as `--max-tokens` cuts generated ones."""
    gradient_checkpointing: bool = False
    """Activations are computed again on the way back: much less memory for about a third more time."""
    precision: Precision = "auto"
    """`auto`: bf16 on a GPU that has it, else fp32. The adapter and the optimizer's state are fp32 always."""
    four_bit: bool = False
    """The base model's layers in 4 bits (QLoRA); needs a CUDA GPU and bitsandbytes."""
    dev_questions: int = 200
    """Training questions held out to measure on, at most a fifth of all; re-posts stay together. 0: none, and the
    last weights are taken instead of the best."""
    evaluate_steps: int = 0
    """Measure every so many steps. 0: three times an epoch."""
    patience: int = 3
    """Stop after so many measurements without a lower loss. 0: never."""
    checkpoint_steps: int = 25
    """A killed run loses at most so many steps; the state is also kept at each measurement."""
    seed: int = 0
    """Of the dev questions, the first weights, the order of the batches and the dropout."""

    def __post_init__(self) -> None:
        for name, (usable, allowed) in _RULES.items():
            value = getattr(self, name)
            if not usable(value):
                raise ConfigError(f"fine-tuning setting {name} is {value!r}: allowed are {allowed}")
        if self.answer_tokens > self.max_length // 2:
            raise ConfigError(
                f"fine-tuning setting answer_tokens is {self.answer_tokens} of max_length {self.max_length}: "
                "allowed is at most half, because question and documents need the rest"
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self) | {"target_modules": list(self.target_modules)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "LoraSettings":
        """The settings that `to_dict` described; what is left out keeps its default.

        Raises:
            ConfigError: an unknown name or an unusable value.
        """
        unknown = sorted(set(values) - set(cls.__slots__))
        if unknown:
            raise ConfigError(
                f"fine-tuning has no setting {', '.join(unknown)}: allowed are {', '.join(cls.__slots__)}"
            )
        return cls(**{**values, "target_modules": tuple(values.get("target_modules", ()))})


_Rule = tuple[Callable[[Any], bool], str]


def _whole(lowest: int) -> _Rule:
    return (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= lowest,
        f"whole numbers from {lowest}",
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


_POSITIVE: _Rule = (lambda value: _is_number(value) and value > 0, "numbers above 0")
_FLAG: _Rule = (lambda value: isinstance(value, bool), "true and false")

_RULES: dict[str, _Rule] = {
    "rank": _whole(1),
    "alpha": _POSITIVE,
    "dropout": (lambda value: _is_number(value) and 0 <= value < 1, "numbers from 0, below 1"),
    "target_modules": (
        lambda value: isinstance(value, tuple) and all(isinstance(name, str) and name for name in value),
        "names of linear layers, such as q_proj",
    ),
    "epochs": _whole(1),
    "batch_size": _whole(1),
    "gradient_accumulation": _whole(1),
    "learning_rate": _POSITIVE,
    "warmup_share": (lambda value: _is_number(value) and 0 <= value <= 1, "numbers from 0 to 1"),
    "weight_decay": (lambda value: _is_number(value) and value >= 0, "numbers from 0"),
    "max_gradient_norm": _POSITIVE,
    "max_length": _whole(SHORTEST),
    "answer_tokens": _whole(2),  # one token and the end
    "gradient_checkpointing": _FLAG,
    "precision": (lambda value: value in get_args(Precision), ", ".join(get_args(Precision))),
    "four_bit": _FLAG,
    "dev_questions": _whole(0),
    "evaluate_steps": _whole(0),
    "patience": _whole(0),
    "checkpoint_steps": _whole(1),
    "seed": _whole(0),
}
