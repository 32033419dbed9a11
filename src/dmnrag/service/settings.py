"""Everything an operator can set, checked at start. The command line is one way to fill it."""

from dataclasses import dataclass, field
from pathlib import Path

from dmnrag._settings import FLAG, Rule, check_settings, number, one_of, or_none, whole
from dmnrag.types import Layer

MASKING = ("external", "always", "never")


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """How questions are answered where a client does not say."""

    layer: Layer | None = None
    """None: the index's own."""
    k: int = 3
    max_k: int = 50
    """Most documents that a client may ask for."""
    max_tokens: int = 256
    """Of an answer; a client may ask for fewer."""
    temperature: float | None = None
    refuse: bool = True
    """Say so instead of answering where the evidence is too weak; needs a calibrated index (`dmnrag calibrate`)."""
    notices: str = "default"
    """Fixed notices by patterns: `default`, `none`, or a TOML file."""
    valid_until_column: str | None = None
    """Metadata column that holds the date up to which a document holds."""
    mask: str = "external"
    """Phone numbers, identity numbers, e-mails and bank cards in question and sources become markers before an LLM
    on another machine sees them (`external`), before any does (`always`), or `never`."""

    def __post_init__(self) -> None:
        rules: dict[str, Rule] = {
            "k": whole(1),
            "max_k": whole(1),
            "max_tokens": whole(1),
            "temperature": or_none(number(0, 10)),
            "refuse": FLAG,
            "mask": one_of(MASKING),
        }
        check_settings(self, rules, "answer")


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How much is done at once, and how long anything may take."""

    llm_concurrency: int = 8
    """Answers generated at once. A local model is asked one at a time whatever this says."""
    queue: int = 64
    """Answers that may wait for the LLM; one more is refused with 429."""
    queue_timeout_s: float = 30.0
    answer_timeout_s: float = 120.0
    """Longest generation of one answer; what is there by then is the answer."""
    search_timeout_s: float = 30.0
    shutdown_grace_s: float = 30.0
    """Running answers are finished for so long after a signal to stop."""
    reload_every_s: float = 2.0
    """How often the index folder is looked at for a new generation; 0: never."""

    def __post_init__(self) -> None:
        rules: dict[str, Rule] = {
            "llm_concurrency": whole(1),
            "queue": whole(0),
            "queue_timeout_s": number(0, above=True),
            "answer_timeout_s": number(0, above=True),
            "search_timeout_s": number(0, above=True),
            "shutdown_grace_s": number(0),
            "reload_every_s": number(0),
        }
        check_settings(self, rules, "load")


@dataclass(frozen=True, slots=True)
class TrustSettings:
    """Who may ask, how much, and what is kept of it."""

    rate_per_minute: int | None = None
    """Requests of a key, or of an address where there are no keys. A key's own rate goes before."""
    max_body_bytes: int = 65_536
    max_question_characters: int = 2_000
    cors_origins: tuple[str, ...] = ()
    log_questions: bool = False
    """Question text in the logs."""
    audit_file: Path | None = None
    """Who asked when, what sources were given; JSON lines. None: no audit."""
    store_file: Path | None = None
    """SQLite file of questions, answers and feedback. None: nothing is kept, and feedback is refused."""

    def __post_init__(self) -> None:
        rules: dict[str, Rule] = {
            "rate_per_minute": or_none(whole(1)),
            "max_body_bytes": whole(1_024),
            "max_question_characters": whole(1),
            "log_questions": FLAG,
        }
        check_settings(self, rules, "trust")


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """All of it."""

    answer: AnswerSettings = field(default_factory=AnswerSettings)
    load: LoadSettings = field(default_factory=LoadSettings)
    trust: TrustSettings = field(default_factory=TrustSettings)
