"""How the domain of a question is learnt and when it is given."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from dmnrag.errors import ConfigError

DomainKind = Literal["path", "set"]


@dataclass(frozen=True, slots=True)
class DomainSettings:
    """Settings of a domain model; all but the threshold act in training alone."""

    kind: DomainKind = "path"
    """`path`: labels go from general to specific; `set`: labels have no order."""
    threshold: float = 0.5
    """A label is given when it is at least this probable, both beside its rivals and by its score alone; chosen by
    measurement (docs/results.md)."""
    simplify: bool = False
    """Traditional characters are read as simplified ones, as the index's segmenter does it."""
    min_documents: int = 3
    """A label on fewer documents is never inferred: none would be left to calibrate it with."""
    max_documents: int = 20_000
    """More documents are thinned out, those of the most frequent domains first; bounds time and memory."""
    max_terms: int = 20_000
    """Terms that are weighed, the most frequent ones. 10,000 to 60,000 differ by less than the noise."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(DomainKind):
            raise ConfigError(f"domain kind is {self.kind!r}: allowed are {', '.join(get_args(DomainKind))}")
        check_threshold(self.threshold)
        for name, value in (
            ("min_documents", self.min_documents),
            ("max_documents", self.max_documents),
            ("max_terms", self.max_terms),
        ):
            if value < 1:
                raise ConfigError(f"{name} is {value!r}: allowed are whole numbers from 1")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)


def check_threshold(threshold: float) -> None:
    """Refuse what is no probability.

    Raises:
        ConfigError: outside 0 to 1.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(
            f"the threshold of domain inference is {threshold!r}: allowed is 0 (always give one) to 1, as a probability"
        )
