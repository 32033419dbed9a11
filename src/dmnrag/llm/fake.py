"""A generator without a model, for tests and for trying out everything around it.

Deterministic and without dependencies. By default it answers with the text of the first source of the prompt.
Scripted replies, a delay, and failures at chosen calls let tests of pipelines, experiments and services reach
every path.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from dmnrag.errors import ConfigError, EndpointError, PromptTooLongError
from dmnrag.llm.stopping import TextStream, never
from dmnrag.types import FinishReason, Generation, GenerationSettings, Prompt, Usage

NO_SOURCE = "现有资料不足以回答这个问题。"
"""The default reply to a prompt without sources."""

# Text becomes tokens as: a run of ASCII letters or digits, or any other single character.
_TOKEN = re.compile(r"[A-Za-z0-9]+|.", re.DOTALL)


class _FakeCounter:
    """Counts the fake's tokens."""

    def count(self, text: str) -> int:
        return len(_TOKEN.findall(text))


class FakeGenerator:
    """A `Generator` whose answers are known beforehand.

    `max_tokens`, `stop` and the prompt's stop strings act as in a real one; the other settings change nothing,
    as there is nothing to sample.
    """

    def __init__(
        self,
        replies: Sequence[str] | Callable[[Prompt], str] | None = None,
        *,
        delay_s: float = 0.0,
        context_tokens: int | None = 4096,
        failures: Mapping[int, Exception] | None = None,
        break_after: int | None = None,
    ) -> None:
        """Script the fake.

        Args:
            replies: Texts given in order and then again from the first, or a function of the prompt.
                None answers with the first source.
            delay_s: Waited before each piece of a stream, and once per prompt of a batch.
            context_tokens: The limit that it reports and keeps.
            failures: Errors to raise, by the number of the prompt, counted from 0 over all calls.
            break_after: A stream breaks with `EndpointError` after this many pieces.
        """
        if not callable(replies) and replies is not None and not replies:
            raise ConfigError("replies is empty: give at least one text, a function, or None")
        self._replies = replies
        self._delay_s = delay_s
        self._context_tokens = context_tokens
        self._failures = dict(failures or {})
        self._break_after = break_after
        self._lock = threading.Lock()
        self.prompts: list[Prompt] = []
        """Every prompt it was asked, in order."""
        self.settings: list[GenerationSettings] = []
        """The settings of each of them."""

    @property
    def name(self) -> str:
        """Always "fake"."""
        return "fake"

    @property
    def context_tokens(self) -> int | None:
        """As given to the constructor."""
        return self._context_tokens

    @property
    def counter(self) -> _FakeCounter:
        """A word or a character is a token."""
        return _FakeCounter()

    def prompt_tokens(self, prompt: Prompt) -> int:
        """Tokens of system and user text."""
        return self.counter.count(prompt.system) + self.counter.count(prompt.user)

    def generate(self, prompts: Sequence[Prompt], settings: GenerationSettings) -> list[Generation]:
        """One answer per prompt. Raises what `failures` says."""
        answers = []
        for prompt in prompts:
            *_, answer = self._pieces(prompt, settings, self._reply(prompt, settings), never)
            time.sleep(self._delay_s)
            assert isinstance(answer, Generation)
            answers.append(answer)
        return answers

    def stream(
        self, prompt: Prompt, settings: GenerationSettings, cancelled: Callable[[], bool] = never
    ) -> Iterator[str | Generation]:
        """The answer token by token, then the whole."""
        reply = self._reply(prompt, settings)
        for n_given, piece in enumerate(self._pieces(prompt, settings, reply, cancelled)):
            if isinstance(piece, str):
                if self._break_after is not None and n_given >= self._break_after:
                    raise EndpointError(f"the fake broke its stream after {self._break_after} pieces, as told")
                time.sleep(self._delay_s)
            yield piece

    def _pieces(
        self, prompt: Prompt, settings: GenerationSettings, reply: str, cancelled: Callable[[], bool]
    ) -> Iterator[str | Generation]:
        tokens = _TOKEN.findall(reply)
        text = TextStream((*prompt.stop, *settings.stop))
        reason: FinishReason = "length" if len(tokens) > settings.max_tokens else "stop"
        used = 0
        for _ in tokens[: settings.max_tokens]:
            if cancelled():
                reason = "cancelled"
                break
            used += 1
            if piece := text.feed("".join(tokens[:used])):
                yield piece
            if text.stopped:
                reason = "stop"
                break
        if piece := text.close():
            yield piece
        yield Generation(text.text, reason, Usage(self.prompt_tokens(prompt), used))

    def _reply(self, prompt: Prompt, settings: GenerationSettings) -> str:
        with self._lock:
            number = len(self.prompts)
            self.prompts.append(prompt)
            self.settings.append(settings)
        if number in self._failures:
            raise self._failures[number]
        needed = self.prompt_tokens(prompt) + settings.max_tokens
        if self._context_tokens is not None and needed > self._context_tokens:
            raise PromptTooLongError(
                f"prompt and max_tokens together are {needed} tokens; the fake's context is {self._context_tokens}"
            )
        if callable(self._replies):
            return self._replies(prompt)
        if self._replies is not None:
            return self._replies[number % len(self._replies)]
        return prompt.excerpts[0].text if prompt.excerpts else NO_SOURCE
