"""The data types that every module shares. Plain values: no files, no models, no I/O.

Names follow the field: `query_id, doc_id, score, rank, k`. A domain is a tuple of labels,
general to specific as the data gives it; `()` means that none is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dmnrag.errors import ConfigError

Domain = tuple[str, ...]
"""Labels of a question or document, general to specific (`("内科", "心血管内科")`)."""

Layer = Literal["sparse", "dense", "cascade", "hybrid"]
"""How the two layers combine at question time (PAPER: what is left open)."""

LAYERS: tuple[Layer, ...] = ("sparse", "dense", "cascade", "hybrid")

Position = Literal["none", "front", "rear"]
"""Where the domain stands in the prompt: eq. 3 (front), eq. 4 (rear) or not at all."""

FinishReason = Literal["stop", "length", "cancelled"]
"""Why generation ended: by itself or a stop string, at `max_tokens`, or by the caller."""


@dataclass(frozen=True, slots=True)
class Document:
    """A question-answer pair of the knowledge base."""

    doc_id: str
    question: str
    answers: tuple[str, ...]
    domain: Domain = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Further columns of the source, shown with a hit and never searched."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question to be answered, with the domain it belongs to where that is known."""

    query_id: str
    text: str
    domain: Domain = ()


@dataclass(frozen=True, slots=True)
class Example:
    """A question of the test split with its right answers."""

    query: Query
    references: tuple[str, ...]
    gold_doc_ids: tuple[str, ...] = ()
    """Documents of the index that answer it; empty where the split holds none in the index."""
    cluster: str = ""
    """Group of near-identical posts it belongs to, the unit of the cluster bootstrap."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved document. `rank` counts from 1; what `score` means depends on the layer."""

    doc_id: str
    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class DomainUse:
    """How domain knowledge acts in the first layer (eq. 2)."""

    in_query: bool = True
    """The domain's terms join the question's terms: SCORE(Dmn+q, D)."""
    in_document: bool = True
    """The searched text of a document includes its domain labels."""
    weight: float = 1.0
    """Each domain term of the query counts this many times; 0 turns the domain off."""

    def __post_init__(self) -> None:
        if not 0 <= self.weight < float("inf"):
            raise ConfigError(f"domain weight {self.weight!r} is not usable: allowed are numbers from 0 (off) upwards")


JOINT = DomainUse()
"""Joint retrieval as the methods named Dmn-* use it."""

PLAIN = DomainUse(in_query=False, in_document=False)
"""The question alone against the text alone."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What the prompt shows of one document."""

    number: int
    """The source number in the prompt, from 1."""
    doc_id: str
    text: str
    """Exactly as it stands in the prompt."""
    cut: bool = False
    """True when the token budget shortened it."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an LLM is asked. `user` is the whole prompt for models without roles."""

    user: str
    system: str = ""
    excerpts: tuple[Excerpt, ...] = ()
    stop: tuple[str, ...] = ()
    """Stop strings that the template asks for, beside those of the caller."""


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """Decoding parameters. `None` leaves a parameter at the model's own default."""

    max_tokens: int = 256
    temperature: float | None = None
    """0 is greedy decoding."""
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        checks = (
            ("max_tokens", self.max_tokens, self.max_tokens >= 1, "whole numbers from 1"),
            (
                "temperature",
                self.temperature,
                self.temperature is None or 0 <= self.temperature <= 10,
                "0 to 10",
            ),
            ("top_k", self.top_k, self.top_k is None or self.top_k >= 1, "whole numbers from 1"),
            ("top_p", self.top_p, self.top_p is None or 0 < self.top_p <= 1, "above 0, at most 1"),
            (
                "repetition_penalty",
                self.repetition_penalty,
                self.repetition_penalty is None or 0 < self.repetition_penalty <= 10,
                "above 0, at most 10",
            ),
        )
        for name, value, usable, allowed in checks:
            if not usable:
                raise ConfigError(f"{name} is {value!r}: allowed is {allowed}")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens counted by the model's own tokenizer (or reported by its server)."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Generation:
    """What an LLM answered to one prompt."""

    text: str
    finish_reason: FinishReason
    usage: Usage


@dataclass(frozen=True, slots=True)
class Answer:
    """An answered question with everything it rests on."""

    text: str
    hits: tuple[Hit, ...]
    domain: Domain
    prompt: Prompt
    method: str
    llm: str
    refused: bool = False
    citations: tuple[int, ...] = ()
    """Source numbers that the text refers to, each the number of an excerpt in the prompt."""
    unsupported: tuple[tuple[int, int], ...] = ()
    """Characters `start` to `end` of each sentence that no excerpt supports; of streamed answers."""
    withheld: bool = False
    """The text was cut because it gave away the prompt; of streamed answers."""
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage(0, 0)
    timings_ms: Mapping[str, float] = field(default_factory=dict)
