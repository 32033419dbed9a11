"""How many tokens a second an LLM writes, reading its prompts included."""

import time
from collections.abc import Callable, Iterator, Sequence

from dmnrag.llm.stopping import never
from dmnrag.protocols import Generator, TokenCounter
from dmnrag.types import Generation, GenerationSettings, Prompt


def tokens_per_second(completion_tokens: int, seconds: float) -> float | None:
    """None where nothing was written or no time passed."""
    return completion_tokens / seconds if completion_tokens and seconds > 0 else None


class Metered:
    """A generator that counts what `generate` writes and how long it takes; otherwise the one inside."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self.completion_tokens = 0
        self.seconds = 0.0

    @property
    def name(self) -> str:
        """The generator's."""
        return self._generator.name

    @property
    def context_tokens(self) -> int | None:
        """The generator's."""
        return self._generator.context_tokens

    @property
    def counter(self) -> TokenCounter:
        """The generator's."""
        return self._generator.counter

    def prompt_tokens(self, prompt: Prompt) -> int:
        """The generator's."""
        return self._generator.prompt_tokens(prompt)

    def generate(self, prompts: Sequence[Prompt], settings: GenerationSettings) -> list[Generation]:
        """The generator's, counted."""
        started = time.perf_counter()
        answers = self._generator.generate(prompts, settings)
        self.seconds += time.perf_counter() - started
        self.completion_tokens += sum(answer.usage.completion_tokens for answer in answers)
        return answers

    def stream(
        self, prompt: Prompt, settings: GenerationSettings, cancelled: Callable[[], bool] = never
    ) -> Iterator[str | Generation]:
        """The generator's."""
        return self._generator.stream(prompt, settings, cancelled)
