"""Searches of many callers together: while one batch is searched, newcomers gather for the next.

Encoding 16 questions at once costs far less than 16 times one, so a busy service searches in batches without ever
waiting for a batch to fill. One thread works; no LLM comes near it. Everything here is called from the event loop, only
`work` runs in the thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from dmnrag.errors import DmnragError
from dmnrag.service.faults import AnswerTimeout, NotReady, QueueFull

MOST_AT_ONCE = 32
"""Requests of a batch. More gain nothing on a CPU, where the encoder cuts batches of 16, and all wait for the last."""

MOST_WAITING = 512
"""Requests that may gather while a batch is searched; each is a question, a few kB."""

_RETRY_AFTER_S = 1.0

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Batch(Generic[Item, Result]):
    """Requests that are worked on together."""

    def __init__(self) -> None:
        self.items: list[Item | None] = []
        """None where the caller has left."""
        self.done: asyncio.Future[list[Result | DmnragError | None]] = asyncio.get_running_loop().create_future()
        self.done.add_done_callback(_see)


class SearchBatcher(Generic[Item, Result]):
    """Gathers requests into batches for one worker thread."""

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Result | DmnragError]],
        *,
        most_at_once: int = MOST_AT_ONCE,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        """`work` gets a batch in the thread and gives one result, or the error of that request alone, for each.

        What it raises fails the whole batch.
        """
        self._work = work
        self._most_at_once = most_at_once
        self._most_waiting = most_waiting
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dmnrag-search")
        self._gathering: list[_Batch[Item, Result]] = []
        self._busy = False
        self._stopped = False

    @property
    def waiting(self) -> int:
        """Requests that no batch has taken yet."""
        return sum(item is not None for batch in self._gathering for item in batch.items)

    async def search(self, item: Item, timeout_s: float) -> Result:
        """The result of one request. A caller who is cancelled is left out of the batch if that has not begun.

        Raises:
            AnswerTimeout: not there in time.
            QueueFull: too many gather.
            NotReady: stopped.
            DmnragError: what `work` gave for this request or raised for its batch.
        """
        if self._stopped:
            raise NotReady("the service is stopping: ask again in a moment", _RETRY_AFTER_S)
        if self.waiting >= self._most_waiting:
            raise QueueFull(f"{self._most_waiting} searches wait already: ask again in a moment", _RETRY_AFTER_S)
        batch = self._open_batch()
        place = len(batch.items)
        batch.items.append(item)
        if not self._busy:
            self._start_next()
        try:
            found, _ = await asyncio.wait((batch.done,), timeout=timeout_s)
        finally:
            batch.items[place] = None
        if not found:
            raise AnswerTimeout(
                f"searching took longer than {timeout_s:g} s: the machine is overloaded or the cluster slow; "
                "ask again later, or allow more with search_timeout_s"
            )
        result = batch.done.result()[place]
        if isinstance(result, DmnragError):
            raise result
        assert result is not None  # only who left gets nothing
        return result

    def stop(self) -> None:
        """Take no more requests; those that wait are told. A batch that is being searched is finished."""
        self._stopped = True
        for batch in self._gathering:
            batch.done.set_exception(NotReady("the service is stopping: ask again in a moment", _RETRY_AFTER_S))
        self._gathering.clear()
        self._pool.shutdown(wait=False)

    def _open_batch(self) -> _Batch[Item, Result]:
        if not self._gathering or len(self._gathering[-1].items) >= self._most_at_once:
            self._gathering.append(_Batch())
        return self._gathering[-1]

    def _start_next(self) -> None:
        while self._gathering:
            batch = self._gathering.pop(0)
            wanted = [place for place, item in enumerate(batch.items) if item is not None]
            if wanted:
                self._start(batch, wanted)
                return

    def _start(self, batch: _Batch[Item, Result], wanted: list[int]) -> None:
        self._busy = True
        items = [item for item in batch.items if item is not None]
        found = asyncio.get_running_loop().run_in_executor(self._pool, self._work, items)

        def finish(done: asyncio.Future[Sequence[Result | DmnragError]]) -> None:
            self._busy = False
            if error := done.exception():
                batch.done.set_exception(error)
            else:
                results: list[Result | DmnragError | None] = [None] * len(batch.items)
                for place, result in zip(wanted, done.result(), strict=True):
                    results[place] = result
                batch.done.set_result(results)
            if not self._stopped:
                self._start_next()

        found.add_done_callback(finish)


def _see(done: "asyncio.Future[Any]") -> None:
    """Where every caller has left, nobody looks at the error; asyncio would complain of it."""
    if not done.cancelled():
        done.exception()
