"""What the service knows of a question and yields on the way to its answer. Plain values.

One question yields, in this order: `Started`, `Sources`, any number of `Delta` and `Unsupported`, `Finished`. A notice
or a refusal yields them too, its fixed text as one `Delta`. Joined deltas are exactly `Finished.text`.
"""

from dataclasses import dataclass, field
from typing import Literal

from dmnrag.types import Domain, FinishReason, Usage

AUTO = "auto"
"""As a domain: infer it."""

Outcome = Literal["answered", "refused", "notice", "withheld"]
"""answered by the LLM; refused for want of evidence; a fixed notice; cut off because it gave away
the prompt."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One earlier message of a conversation."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as a client puts it."""

    question: str
    domain: str | Domain | None = AUTO
    """`AUTO`, labels, or None: none."""
    method: str | None = None
    """None: the default for what is known of the domain."""
    k: int | None = None
    """None: the service's own."""
    history: tuple[Turn, ...] = ()
    """Earlier messages, oldest first."""
    max_tokens: int | None = None
    temperature: float | None = None
    allowed_domains: frozenset[str] | None = None
    """Labels that the client's key may see: hits of others are left out before ranking. None: all."""
    owner: str = ""
    """Name of the key, for limits, audit and deletion; never the key itself."""
    request_id: str = ""
    """Of the request it came with, for the audit log."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """The domain that was inferred where none was given."""

    domain: Domain
    probability: float
    abstained: bool
    alternatives: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A retrieved document, with the excerpt of it that the LLM was given."""

    number: int
    """As cited: [number]."""
    doc_id: str
    domain: Domain
    score: float
    question: str
    answers: tuple[str, ...]
    metadata: dict[str, str]
    excerpt: str
    """Exactly as it stands in the prompt; empty where it did not fit in, or no prompt was made."""
    cut: bool = False
    valid_until: str | None = None
    """Its validity date, where the data gives one."""
    outdated: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """Whether what was retrieved is enough to answer from."""

    score: float
    """Probability that the k documents hold the answer."""
    threshold: float
    """Below it the question is refused."""
    enough: bool


@dataclass(frozen=True, slots=True)
class Started:
    """Known before the LLM is asked."""

    answer_id: str
    question: str
    """As searched: a follow-up is whole."""
    domain: Domain
    inferred: Inferred | None
    method: str
    llm: str


@dataclass(frozen=True, slots=True)
class Sources:
    """What the answer rests on; empty for a notice."""

    sources: tuple[Source, ...]
    evidence: Evidence | None = None
    """None where the service judges none (no model, or told not to)."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of the answer, never part of a citation alone, never a dangling one."""

    text: str


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A finished sentence that no excerpt supports: characters `start` to `end` of the text so far."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The whole answer."""

    answer_id: str
    text: str
    outcome: Outcome
    finish_reason: FinishReason
    citations: tuple[int, ...]
    """Numbers in the text, in the order of their first use; each is a source with an excerpt."""
    unsupported: tuple[Unsupported, ...] = ()
    usage: Usage = field(default_factory=lambda: Usage(0, 0))
    timings_ms: dict[str, float] = field(default_factory=dict)


Event = Started | Sources | Delta | Unsupported | Finished
