"""Any server that speaks OpenAI's chat completions: vLLM, llama.cpp, Ollama, SGLang, hosted services.

The official client does HTTP, retries (429, 408, 409, 5xx and lost connections, with growing pauses or as long as
Retry-After says) and event streams. Here: parameters in, errors out, stop strings held even where a server
ignores them. The key comes from the environment and goes nowhere but to the server.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import SplitResult, urlsplit

from dmnrag._optional import require
from dmnrag.errors import ConfigError, EndpointError, GenerationError
from dmnrag.llm.approximate_tokens import ApproximateCounter
from dmnrag.llm.control_text import KNOWN_SPELLINGS, break_spellings
from dmnrag.llm.endpoint_errors import endpoint_error, transport_errors, unusable
from dmnrag.llm.stopping import TextStream, never
from dmnrag.types import FinishReason, Generation, GenerationSettings, Prompt, Usage

_NO_KEY = "none"
"""Sent where no key is set: the client wants one, local servers do not look at it."""

_MODELS_TIMEOUT_S = 5.0
"""For the question how long the model's context is, which a server need not answer."""

_CANCEL_POLL_S = 0.05


@dataclass(frozen=True)
class EndpointSettings:
    """Where the server is and how patient we are with it."""

    url: str
    """Base URL of the API, usually ending in /v1."""
    timeout_s: float = 60.0
    """Longest wait for a connection, and for the next bytes of an answer."""
    retries: int = 4
    """Further tries after a failure that may pass."""
    concurrency: int = 4
    """Requests at once for a batch."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; unset means a server without keys."""
    context_tokens: int | None = None
    """Context length of the model; None asks the server (vLLM says), and may remain unknown."""

    def __post_init__(self) -> None:
        parts = _split_url(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"LLM URL has to look like http://host:port/v1, found scheme {parts.scheme!r}")
        if parts.username or parts.password or parts.query:
            raise ConfigError(
                f"the LLM URL of {parts.hostname} carries a user, password or query: put the key into the environment "
                f"variable {self.api_key_env} and leave it out of the URL"
            )
        if self.timeout_s <= 0 or self.retries < 0 or self.concurrency < 1:
            raise ConfigError(
                f"timeout_s {self.timeout_s}, retries {self.retries}, concurrency {self.concurrency}: "
                "allowed are above 0, from 0, from 1"
            )


class OpenAIGenerator:
    """A model behind an OpenAI-compatible server as a `Generator`.

    That a batch equals one prompt at a time is up to the server. Token counts are estimates (see
    `ApproximateCounter`), usage is what the server reports, estimated where it reports none.
    """

    def __init__(self, model: str, endpoint: EndpointSettings) -> None:
        openai = require("openai", "openai")
        self._model = model
        self._endpoint = endpoint
        self._key = os.environ.get(endpoint.api_key_env, "")
        if not self._key.isascii():
            raise ConfigError(f"the key in {endpoint.api_key_env} holds characters that no key has: copy it again")
        self._client = openai.OpenAI(
            api_key=self._key or _NO_KEY,
            base_url=endpoint.url,
            timeout=endpoint.timeout_s,
            max_retries=endpoint.retries,
        )
        self._caught = (openai.OpenAIError, *transport_errors(), ValueError)
        self._counter = ApproximateCounter()
        self._asked_context = False
        self._served_context: int | None = None
        # What this server turned out not to accept; learnt from its refusals.
        self._new_max_tokens_name = False
        self._no_system_role = False

    @property
    def name(self) -> str:
        """The spec: openai:MODEL@URL."""
        return f"openai:{self._model}@{self._endpoint.url}"

    @property
    def context_tokens(self) -> int | None:
        """As set, else as the server's list of models says, else None."""
        if self._endpoint.context_tokens is not None:
            return self._endpoint.context_tokens
        if not self._asked_context:
            self._ask_context()
        return self._served_context

    @property
    def counter(self) -> ApproximateCounter:
        """An estimate, rather too high."""
        return self._counter

    def prompt_tokens(self, prompt: Prompt) -> int:
        """An estimate, rather too high."""
        return self._counter.prompt_tokens(prompt)

    def generate(self, prompts: Sequence[Prompt], settings: GenerationSettings) -> list[Generation]:
        """One answer per prompt, in order, several requests at once.

        Raises:
            EndpointError: the server is down, too slow, refuses, or answers with something unusable.
            GenerationError: the server withheld an answer.
        """
        pool = ThreadPoolExecutor(self._endpoint.concurrency, thread_name_prefix="dmnrag-llm")
        try:
            jobs = [pool.submit(self._complete, prompt, settings) for prompt in prompts]
            return [job.result() for job in jobs]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # After a failure nobody waits for the others.

    def stream(
        self, prompt: Prompt, settings: GenerationSettings, cancelled: Callable[[], bool] = never
    ) -> Iterator[str | Generation]:
        """Pieces as they come, then the whole. A cancelled stream returns at once; its connection is closed.

        Raises:
            EndpointError: as `generate`, also when the stream ends half way; pieces given out stay valid.
        """
        reply = _Reply(TextStream((*prompt.stop, *settings.stop)))
        closed = threading.Event()
        chunks: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(
            target=self._read_stream, args=(prompt, settings, chunks, closed), name="dmnrag-stream", daemon=True
        ).start()
        try:
            while (chunk := _next_chunk(chunks, cancelled)) is not None:
                if isinstance(chunk, Exception):
                    raise chunk
                if piece := reply.take(chunk):
                    yield piece
                if reply.text.stopped:
                    break
            cancelled_now = chunk is None and not reply.finish_reason and cancelled()
            if piece := reply.text.close():
                yield piece
            yield self._generation(prompt, reply, cancelled=cancelled_now)
        finally:
            closed.set()

    def _complete(self, prompt: Prompt, settings: GenerationSettings) -> Generation:
        try:
            completion = self._create(self._request(prompt, settings))
        except self._caught as error:
            raise self._translated(error) from None  # The client's error may quote the key.
        choice = _first_choice(completion)
        if choice is None:
            raise unusable(self._endpoint.url, "answered without a choice; is it a chat completions API?")
        reply = _Reply(TextStream((*prompt.stop, *settings.stop)))
        content = getattr(getattr(choice, "message", None), "content", None)
        if not isinstance(content, str):
            raise unusable(
                self._endpoint.url,
                "answered without text; a model that thinks first may need a larger max_tokens",
            )
        reply.add(content, getattr(choice, "finish_reason", None) or "stop", getattr(completion, "usage", None))
        reply.text.close()
        return self._generation(prompt, reply, cancelled=False)

    def _read_stream(
        self, prompt: Prompt, settings: GenerationSettings, chunks: "SimpleQueue[Any]", closed: threading.Event
    ) -> None:
        """In a thread of its own, so that cancelling need not wait for the server's next bytes."""
        try:
            request = {**self._request(prompt, settings), "stream": True}
            with self._create({**request, "stream_options": {"include_usage": True}}) as events:
                for event in events:
                    if closed.is_set():
                        return
                    chunks.put(event)
        except self._caught as error:
            chunks.put(self._translated(error))
        except EndpointError as error:
            chunks.put(error)
        finally:
            chunks.put(None)

    def _create(self, request: dict[str, Any]) -> Any:
        import openai

        while True:
            try:
                return self._client.chat.completions.create(**request)
            except openai.BadRequestError as error:
                self._learn(str(error).lower())
                adapted = self._adapted(request)
                # Compared with this request, not with what was known before: of requests that are refused
                # together only the first learns anything, and all have to ask again.
                if adapted == request:
                    raise
                request = adapted
            except (AttributeError, TypeError, RecursionError):
                # The client fails in its own ways on a body that is no object of its API.
                raise unusable(self._endpoint.url, "answered with something that is not a chat completion") from None

    def _learn(self, refusal: str) -> None:
        """What the refusal names that can be asked for in another way."""
        self._new_max_tokens_name |= "max_completion_tokens" in refusal
        self._no_system_role |= "system role" in refusal

    def _request(self, prompt: Prompt, settings: GenerationSettings) -> dict[str, Any]:
        stop = list(dict.fromkeys((*prompt.stop, *settings.stop)))
        optional = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": settings.seed,
            "stop": stop or None,
        }
        # Not part of OpenAI's API; vLLM, SGLang and others take them beside it.
        extra = {"top_k": settings.top_k, "repetition_penalty": settings.repetition_penalty}
        request = {
            "model": self._model,
            "messages": _messages(prompt),
            "max_tokens": settings.max_tokens,
            "extra_body": {name: value for name, value in extra.items() if value is not None},
            **{name: value for name, value in optional.items() if value is not None},
        }
        return self._adapted(request)

    def _adapted(self, request: dict[str, Any]) -> dict[str, Any]:
        request = dict(request)
        if self._new_max_tokens_name and "max_tokens" in request:
            request["max_completion_tokens"] = request.pop("max_tokens")
        if self._no_system_role and len(request["messages"]) > 1:
            text = "\n\n".join(message["content"] for message in request["messages"])
            request["messages"] = [{"role": "user", "content": text}]
        return request

    def _generation(self, prompt: Prompt, reply: "_Reply", *, cancelled: bool) -> Generation:
        reason: FinishReason = "stop"
        if cancelled:
            reason = "cancelled"
        elif not reply.text.stopped:
            if reply.finish_reason is None:
                raise unusable(
                    self._endpoint.url,
                    f"ended its stream half way, after {len(reply.text.text)} characters: try again",
                )
            if reply.finish_reason in ("content_filter", "abort"):
                raise GenerationError(f"{self.name} withheld its answer ({reply.finish_reason})")
            reason = "length" if reply.finish_reason == "length" else "stop"
        usage = reply.usage or Usage(self.prompt_tokens(prompt), self._counter.count(reply.text.text))
        return Generation(reply.text.text, reason, usage)

    def _ask_context(self) -> None:
        import openai

        client = self._client.with_options(timeout=_MODELS_TIMEOUT_S, max_retries=0)
        try:
            models = {model.id: model for model in client.models.list().data or ()}
        except openai.APIStatusError:
            models = {}  # A server without a list of models will not have one later either.
        except self._caught:
            return  # Down or slow just now: unknown, and asked again next time.
        found = getattr(models.get(self._model), "max_model_len", None)
        self._served_context = int(found) if isinstance(found, int) else None
        self._asked_context = True

    def _translated(self, error: Exception) -> Exception:
        end = self._endpoint
        return endpoint_error(error, url=end.url, key=self._key, key_env=end.api_key_env, timeout_s=end.timeout_s)


@dataclass
class _Reply:
    """What has arrived of an answer."""

    text: TextStream
    whole: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None

    def take(self, chunk: Any) -> str:
        """Add a chunk of a stream; return the text that is new and certain."""
        choice = _first_choice(chunk)
        content = getattr(getattr(choice, "delta", None), "content", None)
        text = content if isinstance(content, str) else ""
        return self.add(text, getattr(choice, "finish_reason", None), getattr(chunk, "usage", None))

    def add(self, content: str, finish_reason: str | None, usage: Any) -> str:
        self.whole += _mended(content)
        self.finish_reason = finish_reason or self.finish_reason
        counts = (getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None))
        if isinstance(counts[0], int) and isinstance(counts[1], int):
            self.usage = Usage(counts[0], counts[1])
        return self.text.feed(self.whole) if content else ""


def _split_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # checked only when it is read
        return parts
    except ValueError as error:
        raise ConfigError(f"the LLM URL has to look like http://host:port/v1: {error}") from None


def _mended(text: str) -> str:
    """Text without halves of surrogate pairs, which JSON can spell and no file or terminal takes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _first_choice(reply: Any) -> Any:
    """The client does not check what it parses: any JSON value may be anywhere."""
    choices = getattr(reply, "choices", None)
    return choices[0] if isinstance(choices, list) and choices else None


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    # The server's tokenizer is not at hand: spellings that common models take for control tokens are broken.
    parts = (("system", prompt.system), ("user", prompt.user))
    return [
        {"role": role, "content": break_spellings(_mended(text), KNOWN_SPELLINGS)}
        for role, text in parts
        if text or role == "user"
    ]


def _next_chunk(chunks: "SimpleQueue[Any]", cancelled: Callable[[], bool]) -> Any:
    """The next chunk; None at the end and when the caller cancels."""
    while not cancelled():
        try:
            return chunks.get(timeout=_CANCEL_POLL_S)
        except Empty:
            continue
    return None
