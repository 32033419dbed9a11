"""How a DPR is trained. Kept with the trained model, so that a run can be repeated.

What is known of the defaults, and which of them are not measured yet, stands in docs/decisions/0004.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from dmnrag._settings import FLAG, Rule, check_settings, number, one_of, or_none, refuse_unknown, whole

Precision = Literal["auto", "fp32", "bf16"]

LEAST_TOKENS = 16
"""Special tokens and a prompt take several; with fewer than this nothing is left for the text."""


@dataclass(frozen=True, slots=True)
class DprSettings:
    """Settings of one training of the second layer's encoder."""

    epochs: int = 1
    """Passes over the training questions. Most is gained early (docs/decisions/0004), and on a CPU each pass is the
    larger part of the time."""
    batch_size: int = 32
    """Questions per step. Every passage of the batch is a candidate for each of them."""
    learning_rate: float = 1e-4
    """Highest rate of AdamW; reached after the warm-up, then falling to 0 in a straight line."""
    warmup_share: float = 0.1
    """Share of all steps in which the rate rises from 0."""
    weight_decay: float = 0.01
    """AdamW's; biases and layer norms are not decayed."""
    max_gradient_norm: float = 1.0
    """Longer gradients are shortened to this length."""
    scale: float | None = None
    """Scores are multiplied by this before the softmax (1 / temperature). None: 50 for vectors of length 1,
    whose scores lie within -1 and 1, and 1 for others, as in DPR."""
    negatives: int = 0
    """Golds of other questions taken from a question's `negative_ctxs` in each epoch; the next ones in the next
    epoch. None by default: the golds of the batch are such negatives too, drawn at random as these are, and cost
    nothing, while each one taken here costs as much as the positive. 2 is the paper's ratio."""
    hard_negatives: int = 1
    """The same of `hard_negative_ctxs`. Those of one question serve the whole batch. 2 is the paper's ratio."""
    query_tokens: int = 96
    """Tokens read of a question, prompt and special tokens included; longer ones are cut."""
    passage_tokens: int = 192
    """Tokens read of a passage."""
    two_encoders: bool = False
    """Questions and passages get an encoder each, as in DPR. False: one for both, half the memory."""
    domain_in_question: bool = False
    """The question's labels, joined by `,`, stand in front of it; the search must ask in the same way."""
    frozen_share: float = 0.5
    """The lower layers, this share of all rounded down, stay as they are, and the embeddings with them."""
    freeze_words: bool = True
    """Word embeddings stay as they are also where `frozen_share` is 0. They are most of a small encoder's weights."""
    frozen_gb: float = 8.0
    """Outputs of the frozen layers are computed once per text and kept in a file up to this size; where they need
    more, and on a GPU, they are computed anew in each step. 0 turns it off. The result is the same but for rounding."""
    dropout: bool = False
    """The model's own dropout acts in the trained layers."""
    precision: Precision = "auto"
    """`auto`: bf16 on a GPU that has it, else fp32. Weights and the optimizer's state are fp32 always."""
    mini_batch: int = 16
    """Texts of like length that go through the encoder together."""
    gradient_cache: bool = False
    """Encode twice and hold the activations of one mini-batch only: memory no longer grows with `batch_size`, for
    about a third more time (Gao et al. 2021, "Scaling deep contrastive learning batch size")."""
    dev_questions: int = 300
    """Training questions held out to measure on, at most a fifth of all; re-posts stay together. 0: none, and the
    last weights are taken instead of the best."""
    dev_pool: int = 1000
    """Answers among which those of the dev questions are to be found, these included. 0: all there are."""
    evaluate_steps: int = 0
    """Measure every so many steps. 0: three times an epoch."""
    patience: int = 3
    """Stop after so many measurements without a better MRR@10. 0: never."""
    checkpoint_steps: int = 50
    """A killed run loses at most so many steps; the state is also kept at each measurement."""
    seed: int = 0
    """Of the dev questions, the order of the batches and the dropout."""

    def __post_init__(self) -> None:
        check_settings(self, _RULES, "training")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DprSettings":
        """The settings that `to_dict` described; what is left out keeps its default.

        Raises:
            ConfigError: an unknown name or an unusable value.
        """
        refuse_unknown(values, cls, "training")
        return cls(**values)


_POSITIVE = number(0, above=True)
_FROM_ZERO = number(0)
_SHARE = number(0, 1)

_RULES: dict[str, Rule] = {
    "epochs": whole(1),
    "batch_size": whole(2),  # one question alone has no other's gold to tell its own from
    "learning_rate": _POSITIVE,
    "warmup_share": _SHARE,
    "weight_decay": _FROM_ZERO,
    "max_gradient_norm": _POSITIVE,
    "scale": or_none(_POSITIVE),
    "negatives": whole(0),
    "hard_negatives": whole(0),
    "query_tokens": whole(LEAST_TOKENS),
    "passage_tokens": whole(LEAST_TOKENS),
    "two_encoders": FLAG,
    "domain_in_question": FLAG,
    "frozen_share": _SHARE,
    "freeze_words": FLAG,
    "frozen_gb": _FROM_ZERO,
    "dropout": FLAG,
    "precision": one_of(get_args(Precision)),
    "mini_batch": whole(1),
    "gradient_cache": FLAG,
    "dev_questions": whole(0),
    "dev_pool": whole(0),
    "evaluate_steps": whole(0),
    "patience": whole(0),
    "checkpoint_steps": whole(1),
    "seed": whole(0),
}
