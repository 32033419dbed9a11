"""What a training of an adapter came to."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DevLosses:
    """Mean cross entropy per answer token over the dev slice, in nats. None where nothing was measured."""

    untrained: float | None = None
    """Of the base model."""
    best: float | None = None
    """Of the adapter that was kept."""
    untrained_shuffled: float | None = None
    """Of the base model, each question with the documents of another one."""
    best_shuffled: float | None = None
    """The same of the adapter."""


@dataclass(frozen=True, slots=True)
class LoraResult:
    """A trained adapter's figures."""

    n_questions: int
    n_dev: int
    n_steps: int
    best_step: int
    """The step whose weights were kept."""
    seconds: float
    """Time spent, former starts of a resumed run included."""
    answer_tokens: int
    """Learnt in one pass."""
    trained_weights: int
    all_weights: int
    target_modules: tuple[str, ...]
    """The layers that have an update, by their last names."""
    losses: DevLosses
    history: tuple[dict[str, Any], ...] = ()
    """One entry per measurement."""
    warnings: tuple[str, ...] = ()
    """What the doctor found."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self) | {"seconds": round(self.seconds, 1)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "LoraResult":
        """What `to_dict` gave, read back from JSON."""
        lists = {name: tuple(values[name]) for name in ("target_modules", "history", "warnings")}
        return cls(**{**values, **lists, "losses": DevLosses(**values["losses"])})
