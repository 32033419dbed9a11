"""What the API takes and gives, as its documentation shows it. Keys are only ever added within a major version.

Requests refuse keys they do not know and values of another type: a misspelt option would otherwise do nothing.
"""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from dmnrag.methods import METHODS, find_method
from dmnrag.service.events import AUTO, Evidence, Finished, Inferred, Outcome, Source, Sources, Started, Unsupported
from dmnrag.service.store import MAX_COMMENT_CHARACTERS, StoredAnswer
from dmnrag.types import LAYERS, FinishReason, Layer

QUESTION = "血压高早上头晕怎么办？"


class Strict(BaseModel):
    """A request: no unknown keys, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True)


MethodName = Annotated[
    str,
    AfterValidator(lambda name: find_method(name).name),
    WithJsonSchema({"type": "string", "enum": [method.name for method in METHODS]}),
]
DomainGiven = Annotated[
    str | list[str] | None,
    Field(
        description=f'"{AUTO}": infer it. null: none. Else a label, or labels from general to specific.',
        examples=[AUTO, ["内科", "心血管内科"]],
    ),
]
AnswerId = Annotated[str, Field(description="Names the answer in feedback, when it is shown again, and in deletion.")]


class AnswerRequest(Strict):
    """A question to be answered."""

    question: str = Field(min_length=1, examples=[QUESTION])
    domain: DomainGiven = AUTO
    method: MethodName | None = Field(
        None, description="How the domain acts. null: Dmn-ques-front where a domain is known, else no-Dmn."
    )
    k: int | None = Field(None, ge=1, description="Documents to answer from. null: the service's own.", examples=[3])
    max_tokens: int | None = Field(
        None, ge=1, description="Longest answer. null, or more than that: the service's own.", examples=[256]
    )
    temperature: float | None = Field(
        None, ge=0, le=10, allow_inf_nan=False, description="0: greedy. null: the service's own.", examples=[0]
    )
    stream: bool = Field(False, description="Answer as server-sent events while it is written.")


class SearchRequest(Strict):
    """A question whose documents are wanted, without an answer."""

    question: str = Field(min_length=1, examples=[QUESTION])
    domain: DomainGiven = AUTO
    method: MethodName | None = Field(None, description="Whether the domain joins the search, as for answers.")
    k: int | None = Field(None, ge=1, description="Documents to find. null: the service's own.", examples=[10])
    layer: Layer | None = Field(
        None, description="How the layers combine. null: the service's own.", examples=[LAYERS[0]]
    )


class FeedbackRequest(Strict):
    """What somebody thinks of an answer."""

    answer_id: AnswerId
    good: bool
    comment: str = Field("", max_length=MAX_COMMENT_CHARACTERS, examples=["The dose is out of date."])


class InferredBody(BaseModel):
    """The domain that was inferred because none was given."""

    domain: list[str] = Field(description="Labels from general to specific; empty where the service abstained.")
    probability: float
    abstained: bool = Field(description="No domain was likely enough; the question was searched without one.")
    alternatives: list[tuple[str, float]] = Field(description="Further labels with their probabilities.")


class SourceBody(BaseModel):
    """A retrieved document and what the LLM was given of it."""

    number: int = Field(description="As cited in the answer: [number].")
    doc_id: str
    domain: list[str]
    score: float = Field(description="Of the search; what it means depends on the layer.")
    question: str
    answers: list[str]
    metadata: dict[str, str] = Field(description="Further columns of the source.")
    excerpt: str = Field(description="Exactly as the LLM was given it; empty where it was given none.")
    cut: bool = Field(description="The excerpt was shortened to fit.")
    valid_until: str | None = Field(description="The date up to which it holds, where the data gives one.")
    outdated: bool = Field(description="That date has passed.")


class EvidenceBody(BaseModel):
    """Whether what was found is enough to answer from."""

    score: float = Field(description="Probability that the documents hold the answer.")
    threshold: float = Field(description="Below it the question is refused.")
    enough: bool


class UnsupportedBody(BaseModel):
    """A sentence of the answer that no excerpt supports."""

    start: int = Field(description="Its first character in `answer`, from 0.")
    end: int = Field(description="The character after its last.")


class UsageBody(BaseModel):
    """Tokens, as the LLM counts them."""

    prompt_tokens: int
    completion_tokens: int


class AnswerBody(BaseModel):
    """An answer and what it rests on."""

    answer_id: AnswerId
    question: str = Field(description="As searched: a follow-up is made whole from the conversation.")
    domain: list[str] = Field(description="As used, given or inferred; empty: none.")
    inferred: InferredBody | None = Field(description="null where a domain was given, or none was wanted.")
    method: str
    llm: str
    outcome: Outcome = Field(
        description="answered by the LLM; refused for want of evidence; notice: a fixed text for questions such as "
        "emergencies; withheld: cut off because it gave away the prompt."
    )
    answer: str
    citations: list[int] = Field(description="Numbers in the answer in the order of first use; each is a source.")
    unsupported: list[UnsupportedBody]
    sources: list[SourceBody]
    evidence: EvidenceBody | None = Field(description="null where the service judges none.")
    finish_reason: FinishReason
    usage: UsageBody
    timings_ms: dict[str, float]


class VoteBody(BaseModel):
    """What its asker thought of it."""

    good: bool
    comment: str


class StoredBody(AnswerBody):
    """An answer as it was shown when it was given."""

    asked_at: str = Field(description="UTC, ISO 8601.")
    asked: str = Field(description="The question as it was put; `question` is what was searched.")
    feedback: VoteBody | None


class SearchBody(BaseModel):
    """The documents for a question."""

    question: str
    domain: list[str]
    inferred: InferredBody | None
    method: str
    layer: str
    sources: list[SourceBody] = Field(description="Best first; without excerpts, as no LLM is given any.")
    evidence: EvidenceBody | None
    timings_ms: dict[str, float]


class DomainCount(BaseModel):
    """A domain of the index."""

    domain: list[str] = Field(description="Labels from general to specific.")
    documents: int


class DomainsBody(BaseModel):
    """The domains that this key may see."""

    domains: list[DomainCount]


class FeedbackBody(BaseModel):
    """It is kept: on the disk, not only in memory."""

    kept: Literal[True] = True


class DeletedBody(BaseModel):
    """What was deleted, for good."""

    deleted: int = Field(description="Questions with their answers, sources and feedback.")


class HealthBody(BaseModel):
    """The process is alive."""

    status: Literal["alive"] = "alive"


class ReadyBody(BaseModel):
    """Whether questions can be answered."""

    ready: bool
    index: str = Field(description="loading, ready or failed.")
    llm: str = Field(description="none (search only), loading, ready or down.")
    problem: str = Field(description="What is wrong, in plain words; empty where nothing is.")


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str = Field(description="What failed, what is allowed, what to do next.")
    type: str = Field(description="invalid_request_error, authentication_error, rate_limit_error, server_error ...")
    code: str = Field(description="A word for programs; listed in docs/service.md.")
    param: str | None = Field(description="The part of the request that is wrong, where it is one.")
    request_id: str = Field(description="Also in the header x-request-id and in the service's log.")


class ErrorBody(BaseModel):
    """Every error has this shape, which is also the one that OpenAI clients read."""

    error: ErrorDetail


def started_fields(started: Started) -> dict[str, Any]:
    """What an answer tells first, under the names of `AnswerBody`."""
    return {
        "answer_id": started.answer_id,
        "question": started.question,
        "domain": list(started.domain),
        "inferred": inferred_body(started.inferred),
        "method": started.method,
        "llm": started.llm,
    }


def sources_fields(sources: Sources) -> dict[str, Any]:
    """What an answer rests on, under the names of `AnswerBody`."""
    return {"sources": source_bodies(sources.sources), "evidence": evidence_body(sources.evidence)}


def finished_fields(finished: Finished) -> dict[str, Any]:
    """What an answer tells last, under the names of `AnswerBody`."""
    return {
        "answer_id": finished.answer_id,
        "outcome": finished.outcome,
        "answer": finished.text,
        "citations": list(finished.citations),
        "unsupported": [unsupported_body(sentence) for sentence in finished.unsupported],
        "finish_reason": finished.finish_reason,
        "usage": UsageBody(**asdict(finished.usage)),
        "timings_ms": dict(finished.timings_ms),
    }


def answer_body(started: Started, sources: Sources, finished: Finished) -> AnswerBody:
    """The whole answer."""
    return AnswerBody(**{**started_fields(started), **sources_fields(sources), **finished_fields(finished)})


def stored_body(stored: StoredAnswer) -> StoredBody:
    """An answer from the store."""
    vote = stored.feedback
    return StoredBody(
        **answer_body(stored.started, stored.sources, stored.finished).model_dump(),
        asked_at=stored.asked_at,
        asked=stored.question,
        feedback=None if vote is None else VoteBody(good=vote.good, comment=vote.comment),
    )


def inferred_body(inferred: Inferred | None) -> InferredBody | None:
    """As the API shows it."""
    return None if inferred is None else InferredBody(**_lists(asdict(inferred)))


def source_bodies(sources: tuple[Source, ...]) -> list[SourceBody]:
    """As the API shows them."""
    return [SourceBody(**_lists(asdict(source))) for source in sources]


def evidence_body(evidence: Evidence | None) -> EvidenceBody | None:
    """As the API shows it."""
    return None if evidence is None else EvidenceBody(**asdict(evidence))


def unsupported_body(sentence: Unsupported) -> UnsupportedBody:
    """As the API shows it."""
    return UnsupportedBody(start=sentence.start, end=sentence.end)


def _lists(values: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
