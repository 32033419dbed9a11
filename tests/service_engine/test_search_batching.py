import asyncio
import threading
from collections.abc import Sequence

import pytest
from engine_parts import run, until

from dmnrag.errors import DmnragError, QueryError
from dmnrag.service.faults import AnswerTimeout, NotReady, QueueFull
from dmnrag.service.searching import SearchBatcher


class Worker:
    """Doubles numbers; the first batch waits until it is let go."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.fail: Exception | None = None

    def __call__(self, items: Sequence[int]) -> list[int | DmnragError]:
        self.batches.append(list(items))
        assert self.go.wait(30)
        if self.fail is not None:
            raise self.fail
        return [QueryError(f"{item} is odd") if item % 2 else 2 * item for item in items]


async def ask(batcher: SearchBatcher[int, int], *numbers: int, timeout_s: float = 30) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(batcher.search(number, timeout_s)) for number in numbers]
    await asyncio.sleep(0)
    return tasks


def test_who_comes_while_a_batch_runs_is_searched_together() -> None:
    async def work() -> None:
        worker = Worker()
        batcher = SearchBatcher(worker, most_at_once=3)
        tasks = await ask(batcher, 0, 2, 4, 6, 8)
        assert batcher.waiting == 4
        worker.go.set()
        assert [await task for task in tasks] == [0, 4, 8, 12, 16]
        assert worker.batches == [[0], [2, 4, 6], [8]]
        batcher.stop()

    run(work())


def test_what_is_wrong_with_one_request_fails_no_other() -> None:
    async def work() -> None:
        worker = Worker()
        worker.go.set()
        batcher = SearchBatcher(worker)
        results = await asyncio.gather(*(await ask(batcher, 0, 1, 2)), return_exceptions=True)
        assert (results[0], results[2]) == (0, 4)
        assert isinstance(results[1], QueryError)
        batcher.stop()

    run(work())


def test_a_failing_batch_fails_its_requests_and_the_next_one_works() -> None:
    async def work() -> None:
        worker = Worker()
        worker.fail = RuntimeError("broken")
        worker.go.set()
        batcher = SearchBatcher(worker)
        with pytest.raises(RuntimeError, match="broken"):
            await batcher.search(2, 30)
        worker.fail = None
        assert await batcher.search(2, 30) == 4
        batcher.stop()

    run(work())


def test_who_has_left_is_not_searched_for() -> None:
    async def work() -> None:
        worker = Worker()
        batcher = SearchBatcher(worker)
        first, second, third = await ask(batcher, 0, 2, 4)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        worker.go.set()
        assert (await first, await third) == (0, 8)
        assert worker.batches == [[0], [4]]
        batcher.stop()

    run(work())


def test_a_batch_that_all_have_left_is_not_begun_and_its_failure_troubles_nobody() -> None:
    async def work() -> None:
        worker = Worker()
        worker.fail = RuntimeError("nobody sees this")
        batcher = SearchBatcher(worker)
        tasks = await ask(batcher, 0, 2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        worker.go.set()
        await until(lambda: not batcher._busy)
        assert worker.batches == [[0]]
        worker.fail = None
        assert await batcher.search(6, 30) == 12
        batcher.stop()

    run(work())


def test_a_search_that_takes_too_long_is_given_up_and_blocks_no_later_one() -> None:
    async def work() -> None:
        worker = Worker()
        batcher = SearchBatcher(worker)
        with pytest.raises(AnswerTimeout, match="search_timeout_s"):
            await batcher.search(2, 0.01)
        worker.go.set()
        assert await batcher.search(4, 30) == 8
        batcher.stop()

    run(work())


def test_too_many_that_wait_are_refused() -> None:
    async def work() -> None:
        worker = Worker()
        batcher = SearchBatcher(worker, most_waiting=2)
        tasks = await ask(batcher, 0, 2, 4)
        with pytest.raises(QueueFull) as caught:
            await batcher.search(6, 30)
        assert caught.value.retry_after_s > 0
        worker.go.set()
        assert await asyncio.gather(*tasks) == [0, 4, 8]
        batcher.stop()

    run(work())


def test_stopping_tells_who_waits_and_finishes_what_runs() -> None:
    async def work() -> None:
        worker = Worker()
        batcher = SearchBatcher(worker)
        first, second = await ask(batcher, 0, 2)
        batcher.stop()
        with pytest.raises(NotReady):
            await second
        worker.go.set()
        assert await first == 0
        with pytest.raises(NotReady):
            await batcher.search(4, 30)

    run(work())
