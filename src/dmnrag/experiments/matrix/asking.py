"""Questions to one LLM: each once, local models in batches, servers several at a time, failures kept apart.

Knows prompts and answers, nothing of cells and folders.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from threading import Lock

from dmnrag.errors import EndpointError, GenerationError, PromptError
from dmnrag.protocols import Generator
from dmnrag.types import Generation, GenerationSettings, Prompt

_GIVE_UP_AFTER = 5
"""Failures of a server in a row, each after all its retries: it is down, and waiting for each question is in vain.
A request that it refuses is none of them: prompts that are too long for it come one after the other."""
_NOT_ASKED = "not asked, because the server does not answer"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the key that its answer is kept under."""

    key: str
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that came."""

    key: str
    generation: Generation
    ms: float


OnReplies = Callable[[Sequence[Reply]], None]
"""Called with answers that came together; when it returns they are safe."""


def ask(
    generator: Generator,
    questions: Sequence[Question],
    settings: GenerationSettings,
    *,
    batch_size: int,
    concurrent: bool,
    on_replies: OnReplies,
) -> dict[str, str]:
    """Ask everything, and what failed once more; returns the errors of what has no answer, by key.

    Longest prompts first: a batch holds prompts of like length, and what does not fit into memory shows at once. The
    order hangs on the questions alone, so what a kill left over is asked in the batches that it would have been in.

    Args:
        generator: the LLM.
        questions: different ones.
        settings: of decoding.
        batch_size: prompts of a batch, or requests at once.
        concurrent: ask one by one, so many at the same time, as servers batch by themselves.
        on_replies: takes the answers.
    """
    order = sorted(questions, key=lambda q: (-len(q.prompt.system) - len(q.prompt.user), q.key))
    asker = _Asker(generator, settings, on_replies)
    if concurrent:
        asker.ask_at_once(order, batch_size)
    else:
        asker.ask_in_batches(order, batch_size)
    again = [question for question in order if question.key in asker.failed and not asker.down]
    asker.ask_in_batches(again, 1)
    return asker.failed


class _Asker:
    def __init__(self, generator: Generator, settings: GenerationSettings, on_replies: OnReplies) -> None:
        self._generator = generator
        self._settings = settings
        self._on_replies = on_replies
        self._lock = Lock()
        self._in_a_row = 0
        self.failed: dict[str, str] = {}
        self.down = False

    def ask_in_batches(self, order: Sequence[Question], batch_size: int) -> None:
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            if len(batch) == 1 or not self._take(batch, *self._try(batch)):
                for question in batch:
                    self._take([question], *self._try([question]))

    def ask_at_once(self, order: Sequence[Question], concurrency: int) -> None:
        give_up_after = max(_GIVE_UP_AFTER, concurrency)
        with ThreadPoolExecutor(concurrency, thread_name_prefix="dmnrag-ask") as pool:
            jobs = {pool.submit(self._try_unless_down, question, give_up_after): question for question in order}
            try:
                for job in as_completed(jobs):
                    self._take([jobs[job]], *job.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _try_unless_down(self, question: Question, give_up_after: int) -> tuple[list[Reply], Exception | None]:
        """In a thread of the pool."""
        if self.down:
            return [], EndpointError(_NOT_ASKED)
        replies, error = self._try([question])
        with self._lock:
            silent = isinstance(error, EndpointError) and not error.answered
            self._in_a_row = self._in_a_row + 1 if silent else 0
            self.down = self.down or self._in_a_row >= give_up_after
        return replies, error

    def _try(self, batch: Sequence[Question]) -> tuple[list[Reply], Exception | None]:
        started = time.perf_counter()
        try:
            made = self._generator.generate([question.prompt for question in batch], self._settings)
        except (GenerationError, PromptError) as error:
            return [], error
        ms = (time.perf_counter() - started) * 1000 / len(batch)
        return [Reply(question.key, g, ms) for question, g in zip(batch, made, strict=True)], None

    def _take(self, batch: Sequence[Question], replies: list[Reply], error: Exception | None) -> bool:
        """Hand over what came; whether it came."""
        if error is not None:
            self.failed.update((question.key, f"{type(error).__name__}: {error}") for question in batch)
            return False
        for question in batch:
            self.failed.pop(question.key, None)
        self._on_replies(replies)
        return True
