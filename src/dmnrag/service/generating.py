"""Answers at the LLM: how many at once, how many may wait, how long any may take.

An answer is written by a job, a synchronous generator that runs in a thread and is told by `cancelled()` to end. What
it yields is handed to the event loop in lists: whatever has gathered since the last look goes over together, so a fast
LLM costs few changes between threads. The buffer holds a whole ordinary answer; a job that outruns its reader further
than that waits until the reader takes something, leaves, or the time is over. The reader never waits for the job's lock
longer than an append takes.

There are places for `concurrency` jobs at work and `waiting` behind them, taken before the search so that a flood is
refused before it costs anything. A place is free as soon as its caller leaves; the turn of a job at work passes on when
the LLM has really stopped, because a local model cannot do two at once.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Generic, TypeVar

from dmnrag.service.faults import NotReady, QueueFull

BUFFERED = 4_096
"""Things that a job may be ahead of its reader; answers have a few hundred pieces."""

STOP_GRACE_S = 2.0
"""A job that was told to end at its time-out may hand over its last words for so long; then it is left behind."""

_RECENT = 50
"""Answers from which the waiting time is estimated."""

_RETRY_LIMITS_S = (1.0, 60.0)

Thing = TypeVar("Thing")
Job = Callable[[Callable[[], bool]], Iterator[Thing]]


class Running(Generic[Thing]):
    """One job at work: `take` what it yields, from the event loop."""

    def __init__(self, job: Job[Thing], timeout_s: float) -> None:
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._room = threading.Condition()
        self._buffer: list[Thing] = []
        self._cancelled = False
        self._news = asyncio.Event()
        self._told = False
        self._ended: asyncio.Future[None] | None = None
        self._timeout_s = timeout_s
        self._timers: list[asyncio.TimerHandle] = []
        self._left_behind = False
        self.timed_out = False
        """Whether its time ran out: what it has yielded is all there will be."""

    def start(self, pool: ThreadPoolExecutor, on_end: Callable[[], None]) -> None:
        """Begin in a thread of `pool`; `on_end` is called on the event loop when the thread is done with it."""
        self._ended = self._loop.run_in_executor(pool, self._work)
        self._timers.append(self._loop.call_later(self._timeout_s, self._expire))

        def end(ended: asyncio.Future[None]) -> None:
            if not ended.cancelled():
                ended.exception()  # seen: whoever has left does not ask for it
            self._stop_timers()
            self._news.set()
            on_end()

        self._ended.add_done_callback(end)

    async def take(self) -> list[Thing]:
        """What the job yielded since the last call, waiting for something; empty when it is over.

        Raises:
            Exception: what the job raised, once all that it yielded before was taken.
        """
        assert self._ended is not None  # started by the queue
        while True:
            self._news.clear()
            with self._room:  # held by the job for an append only
                things, self._buffer, self._told = self._buffer, [], False
                self._room.notify()
            if things:
                return things
            if self._ended.done():
                self._ended.result()
                return []
            if self._left_behind:
                return []
            await self._news.wait()

    def cancel(self) -> None:
        """Tell the job to end; safe from any thread, any number of times."""
        with self._room:
            self._cancelled = True
            self._room.notify()

    def is_cancelled(self) -> bool:
        """Whether the job should end."""
        return self._cancelled

    def _expire(self) -> None:
        self.timed_out = True
        self.cancel()
        self._timers.append(self._loop.call_later(STOP_GRACE_S, self._leave_behind))

    def _leave_behind(self) -> None:
        self._left_behind = True
        self._news.set()

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _work(self) -> None:
        """In the thread."""
        for thing in self._job(self.is_cancelled):
            if not self._put(thing):
                break

    def _put(self, thing: Thing) -> bool:
        """False where nobody will take it."""
        with self._room:
            self._room.wait_for(lambda: len(self._buffer) < BUFFERED or self._cancelled)
            if len(self._buffer) >= BUFFERED:
                return False
            self._buffer.append(thing)
            tell, self._told = not self._told, True
        if tell and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)
        return True


class LlmQueue:
    """The places at one LLM."""

    def __init__(self, concurrency: int, waiting: int, *, queue_timeout_s: float, answer_timeout_s: float) -> None:
        """`concurrency` jobs run at once, `waiting` more may wait, each at most `queue_timeout_s`."""
        self._concurrency = concurrency
        self._most_waiting = waiting
        self._queue_timeout_s = queue_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="dmnrag-llm")
        self._turn = asyncio.Semaphore(concurrency)
        self._at_work: set[Running] = set()  # type: ignore[type-arg]  # of whatever they yield
        self._n_admitted = 0
        self._n_waiting = 0
        self._durations_s: deque[float] = deque(maxlen=_RECENT)
        self._all_left: asyncio.Future[None] | None = None
        self._closed = False
        """No more places are given."""
        self._stopped = False
        """No more jobs are begun."""

    @property
    def admitted(self) -> int:
        """Places that are taken."""
        return self._n_admitted

    @property
    def waiting(self) -> int:
        """Jobs that wait for their turn."""
        return self._n_waiting

    @property
    def running(self) -> int:
        """Jobs at work, those included that were told to end and have not yet."""
        return len(self._at_work)

    def retry_after_s(self) -> float:
        """When there should be a place again, from how long recent jobs took."""
        low, high = _RETRY_LIMITS_S
        if not self._durations_s:
            return low
        mean_s = sum(self._durations_s) / len(self._durations_s)
        return min(high, max(low, mean_s * (self._n_waiting + 1) / self._concurrency))

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for a question from before it is searched: who would find the queue full is told so at once.

        Raises:
            QueueFull: all places are taken.
            NotReady: the service stops.
        """
        _refuse_if(self._closed)
        if self._n_admitted >= self._concurrency + self._most_waiting:
            raise QueueFull(
                f"{self._n_admitted} questions are being answered or wait for it: ask again in a moment",
                self.retry_after_s(),
            )
        self._n_admitted += 1
        try:
            yield
        finally:
            self._n_admitted -= 1
            if not self._n_admitted and self._all_left is not None and not self._all_left.done():
                self._all_left.set_result(None)

    @asynccontextmanager
    async def run(self, job: Job[Thing]) -> AsyncIterator[Running[Thing]]:
        """The job at work, when its turn comes. Leaving the context tells it to end.

        Raises:
            NotReady: its turn did not come in time, or the service stops.
        """
        await self._wait_for_turn()
        running = Running(job, self._answer_timeout_s)
        self._at_work.add(running)
        started = time.monotonic()

        def free() -> None:
            self._durations_s.append(time.monotonic() - started)
            self._at_work.discard(running)
            self._turn.release()

        running.start(self._pool, free)
        try:
            yield running
        finally:
            running.cancel()

    async def drain(self, grace_s: float) -> None:
        """Give no more places and wait until all are free; what is not finished after `grace_s` is told to end.

        What an answer that is cut off has by then is still handed over.
        """
        self._closed = True
        if not await self._all_free(grace_s):
            self._stopped = True
            for running in self._at_work:
                running.cancel()
            await self._all_free(STOP_GRACE_S)

    def stop(self) -> None:
        """Take no more jobs; those still at work are told to end and left behind."""
        self._closed = self._stopped = True
        for running in self._at_work:
            running.cancel()
        self._pool.shutdown(wait=False)

    async def _all_free(self, timeout_s: float) -> bool:
        if not self._n_admitted:
            return True
        if self._all_left is None or self._all_left.done():
            self._all_left = asyncio.get_running_loop().create_future()
        return bool((await asyncio.wait((self._all_left,), timeout=timeout_s))[0])

    async def _wait_for_turn(self) -> None:
        _refuse_if(self._stopped)
        self._n_waiting += 1
        try:
            async with asyncio.timeout(self._queue_timeout_s):
                await self._turn.acquire()
        except TimeoutError:
            raise NotReady(
                f"the LLM had no time for this question within {self._queue_timeout_s:g} s: ask again later",
                self.retry_after_s(),
            ) from None
        finally:
            self._n_waiting -= 1
        if self._stopped:
            self._turn.release()
            _refuse_if(self._stopped)


def _refuse_if(stopping: bool) -> None:
    if stopping:
        raise NotReady("the service is stopping: ask again in a moment", _RETRY_LIMITS_S[0])
