"""What the OpenAI-compatible endpoints take and give.

Of OpenAI's parameters some are ignored, as the answer is not wrong without them, and some are refused, as the client
would build on what it does not get. `docs/service.md` lists both.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dmnrag.methods import METHODS
from dmnrag.service.events import AUTO, Outcome
from dmnrag.service.schemas import AnswerBody, DomainGiven, Strict
from dmnrag.types import FinishReason

DEFAULT_MODEL = "dmnrag"
"""Whose method is the default for what is known of the domain."""
MODELS = {DEFAULT_MODEL: None, **{method.name: method.name for method in METHODS}}
"""Names of models, and the methods they are."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "stop": ([],),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
}
"""Parameters that are refused, and values of them that ask for nothing; null does not either."""

ChatFinishReason = Literal["stop", "length", "content_filter"]


class TextPart(BaseModel):
    """A piece of a message; only text is understood."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A message of the conversation; what else OpenAI's has is ignored."""

    model_config = ConfigDict(strict=True)

    role: Literal["system", "developer", "user", "assistant"] = Field(
        description="system and developer messages are ignored: instructions to the LLM are the service's own."
    )
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        """Its text, pieces joined."""
        return "\n".join(part.text for part in self.content) if isinstance(self.content, list) else self.content or ""


class StreamOptions(Strict):
    """Of a stream."""

    include_usage: bool = False
    include_obfuscation: bool | None = None


class _Ignored(Strict):
    """Accepted so that clients which always send them work; they change nothing."""

    user: Any = None
    metadata: Any = None
    store: Any = None
    seed: Any = None
    top_p: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    parallel_tool_calls: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None


class _Refused(_Ignored):
    """Refused, unless they ask for nothing."""

    n: Any = Field(None, description="Only 1.")
    stop: Any = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    logit_bias: Any = None
    response_format: Any = Field(None, description="Only text.")
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None


class ChatRequest(_Refused):
    """A conversation whose last message is the question."""

    model: str = Field(description="dmnrag, or the name of a method.", examples=[DEFAULT_MODEL])
    messages: list[Message] = Field(min_length=1, examples=[[{"role": "user", "content": "血压高早上头晕怎么办？"}]])
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=10, allow_inf_nan=False)
    domain: DomainGiven = AUTO
    k: int | None = Field(None, ge=1, description="Not OpenAI's: documents to answer from.", examples=[3])
    mark_unsupported: bool = Field(
        True, description="Not OpenAI's: put 〔未见依据〕 behind each sentence that no source supports."
    )


class ChatMessage(BaseModel):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    """The one choice."""

    index: Literal[0] = 0
    message: ChatMessage
    finish_reason: ChatFinishReason
    logprobs: None = None


class ChatUsage(BaseModel):
    """Tokens, as the LLM counts them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(BaseModel):
    """OpenAI's response, and beside it everything that `/v1/answer` tells."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    dmnrag: AnswerBody = Field(description="Not OpenAI's: sources, citations, evidence; its text is without marks.")


class Model(BaseModel):
    """A method, as a model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["dmnrag"] = "dmnrag"


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[Model]


def chat_finish_reason(outcome: Outcome, reason: FinishReason) -> ChatFinishReason:
    """In OpenAI's words; an answer that its time limit cut off is too long for it."""
    if outcome == "withheld":
        return "content_filter"
    return "stop" if reason == "stop" else "length"
