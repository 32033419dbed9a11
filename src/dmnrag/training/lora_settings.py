"""How a LoRA adapter is trained. Kept with the adapter, so that a run can be repeated."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

from dmnrag._settings import FLAG, Rule, check_settings, number, one_of, refuse_unknown, whole
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
        check_settings(self, _RULES, "fine-tuning")
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
        refuse_unknown(values, cls, "fine-tuning")
        return cls(**{**values, "target_modules": tuple(values.get("target_modules", ()))})


_POSITIVE = number(0, above=True)

_RULES: dict[str, Rule] = {
    "rank": whole(1),
    "alpha": _POSITIVE,
    "dropout": number(0, 1, below=True),
    "target_modules": (
        lambda value: isinstance(value, tuple) and all(isinstance(name, str) and name for name in value),
        "names of linear layers, such as q_proj",
    ),
    "epochs": whole(1),
    "batch_size": whole(1),
    "gradient_accumulation": whole(1),
    "learning_rate": _POSITIVE,
    "warmup_share": number(0, 1),
    "weight_decay": number(0),
    "max_gradient_norm": _POSITIVE,
    "max_length": whole(SHORTEST),
    "answer_tokens": whole(2),  # one token and the end
    "gradient_checkpointing": FLAG,
    "precision": one_of(get_args(Precision)),
    "four_bit": FLAG,
    "dev_questions": whole(0),
    "evaluate_steps": whole(0),
    "patience": whole(0),
    "checkpoint_steps": whole(1),
    "seed": whole(0),
}
