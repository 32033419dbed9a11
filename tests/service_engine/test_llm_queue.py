import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
from engine_parts import run, until

from dmnrag.service import generating
from dmnrag.service.faults import NotReady, QueueFull
from dmnrag.service.generating import Job, LlmQueue


def queue_of(
    concurrency: int = 1, waiting: int = 4, queue_timeout_s: float = 30, answer_timeout_s: float = 30
) -> LlmQueue:
    return LlmQueue(concurrency, waiting, queue_timeout_s=queue_timeout_s, answer_timeout_s=answer_timeout_s)


def numbers(n: int) -> Job[int]:
    return lambda cancelled: iter(range(n))


class Held:
    """A job that yields `first`, waits until it is released or told to end, and yields `last`."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.was_cancelled = False

    def __call__(self, cancelled: Callable[[], bool]) -> Iterator[str]:
        yield "first"
        while not self.released.wait(0.002) and not cancelled():
            pass
        self.was_cancelled = cancelled()
        yield "last"


async def all_of(queue: LlmQueue, job: Job[int]) -> list[int]:
    taken = []
    async with queue.run(job) as running:
        while things := await running.take():
            taken += things
    return taken


def test_everything_arrives_once_and_in_order_however_far_the_job_is_ahead() -> None:
    n = 3 * generating.BUFFERED

    async def work() -> None:
        queue = queue_of()
        assert await all_of(queue, numbers(n)) == list(range(n))
        queue.stop()

    run(work())


def test_a_job_waits_for_a_reader_who_takes_nothing_and_ends_when_he_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generating, "BUFFERED", 10)
    n_yielded = 0

    def endless(cancelled: Callable[[], bool]) -> Iterator[int]:
        nonlocal n_yielded
        while not cancelled():
            n_yielded += 1
            yield n_yielded

    async def work() -> None:
        queue = queue_of()
        async with queue.run(endless):
            await until(lambda: n_yielded == 11)  # ten in the buffer, one in hand
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert n_yielded == 11
        await until(lambda: queue.running == 0)
        queue.stop()

    run(work())


def test_a_job_that_does_not_listen_is_ended_when_nobody_has_room_for_what_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generating, "BUFFERED", 10)

    def deaf(cancelled: Callable[[], bool]) -> Iterator[int]:
        while True:
            yield 1

    async def work() -> None:
        queue = queue_of()
        async with queue.run(deaf):
            pass
        await until(lambda: queue.running == 0)
        queue.stop()

    run(work())


def test_what_the_job_raises_comes_after_what_it_yielded() -> None:
    def breaking(cancelled: Callable[[], bool]) -> Iterator[int]:
        yield 1
        raise RuntimeError("broken")

    async def work() -> None:
        queue = queue_of()
        async with queue.run(breaking) as running:
            assert await running.take() == [1]
            with pytest.raises(RuntimeError, match="broken"):
                await running.take()
        assert await all_of(queue, numbers(3)) == [0, 1, 2]
        queue.stop()

    run(work())


def test_no_more_run_at_once_than_may() -> None:
    async def work() -> None:
        queue, most = queue_of(concurrency=2), 0
        release = threading.Event()

        def counting(cancelled: Callable[[], bool]) -> Iterator[int]:
            nonlocal most
            most = max(most, queue.running)
            release.wait(30)
            yield 1

        tasks = [asyncio.create_task(all_of(queue, counting)) for _ in range(5)]
        await until(lambda: queue.waiting == 3)
        assert queue.running == 2
        release.set()
        assert await asyncio.gather(*tasks) == [[1]] * 5
        assert most == 2
        queue.stop()

    run(work())


def test_places_are_for_those_who_run_and_those_who_may_wait() -> None:
    queue = queue_of(concurrency=1, waiting=1)
    with queue.place(), queue.place():
        assert queue.admitted == 2
        with pytest.raises(QueueFull) as caught, queue.place():
            pass
        assert caught.value.retry_after_s >= 1
    with queue.place():
        assert queue.admitted == 1
    queue.stop()


def test_the_waiting_time_is_estimated_from_recent_answers() -> None:
    queue = queue_of(concurrency=2)
    assert queue.retry_after_s() == 1  # nothing is known
    queue._durations_s.extend([10, 20])
    assert queue.retry_after_s() == 7.5  # 15 s for each of 1 / 2 rounds
    queue._durations_s.extend([1000] * 20)
    assert queue.retry_after_s() == 60
    queue.stop()


def test_who_leaves_stops_the_job_and_frees_the_turn() -> None:
    async def work() -> None:
        queue, held = queue_of(), Held()
        async with queue.run(held) as running:
            assert await running.take() == ["first"]
        assert await all_of(queue, numbers(1)) == [0]
        assert held.was_cancelled
        queue.stop()

    run(work())


def test_who_leaves_while_waiting_frees_the_place_at_once() -> None:
    async def work() -> None:
        queue, held = queue_of(), Held()
        async with queue.run(held):
            waiting = asyncio.create_task(all_of(queue, numbers(1)))
            await until(lambda: queue.waiting == 1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert queue.waiting == 0
            held.released.set()
        assert await all_of(queue, numbers(1)) == [0]
        queue.stop()

    run(work())


def test_whose_turn_does_not_come_is_told_when_to_come_back() -> None:
    async def work() -> None:
        queue, held = queue_of(queue_timeout_s=0.01), Held()
        async with queue.run(held):
            with pytest.raises(NotReady, match="had no time") as caught:
                await all_of(queue, numbers(1))
            assert caught.value.retry_after_s >= 1
        queue.stop()

    run(work())


def test_at_the_time_out_a_job_hands_over_its_last_words() -> None:
    async def work() -> None:
        queue, held = queue_of(answer_timeout_s=0.05), Held()
        async with queue.run(held) as running:
            taken = []
            while things := await running.take():
                taken += things
            assert (taken, running.timed_out) == (["first", "last"], True)
        queue.stop()

    run(work())


def test_a_job_that_ignores_its_time_out_is_left_behind_and_keeps_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generating, "STOP_GRACE_S", 0.01)
    release = threading.Event()

    def deaf(cancelled: Callable[[], bool]) -> Iterator[int]:
        release.wait(30)
        yield 1

    async def work() -> None:
        queue = queue_of(answer_timeout_s=0.01)
        async with queue.run(deaf) as running:
            assert await running.take() == []
            assert running.timed_out
        assert queue.running == 1
        release.set()
        await until(lambda: queue.running == 0)
        assert await all_of(queue, numbers(1)) == [0]
        queue.stop()

    run(work())


def test_draining_lets_those_who_have_a_place_finish() -> None:
    async def work() -> None:
        queue, held = queue_of(), Held()

        async def one() -> list[str]:
            taken: list[str] = []
            with queue.place():
                async with queue.run(held) as running:
                    while things := await running.take():
                        taken += things
            return taken

        first, second = asyncio.create_task(one()), asyncio.create_task(one())
        await until(lambda: queue.waiting == 1)
        draining = asyncio.create_task(queue.drain(30))
        await asyncio.sleep(0)
        with pytest.raises(NotReady), queue.place():
            pass
        held.released.set()
        await draining
        assert (first.done(), second.done(), held.was_cancelled) == (True, True, False)
        assert [first.result(), second.result()] == [["first", "last"]] * 2
        queue.stop()

    run(work())


def test_after_the_grace_what_runs_is_told_to_end_and_what_waits_is_refused() -> None:
    async def work() -> None:
        queue, held = queue_of(), Held()

        async def one() -> list[str]:
            taken: list[str] = []
            with queue.place():
                async with queue.run(held) as running:
                    while things := await running.take():
                        taken += things
            return taken

        first, second = asyncio.create_task(one()), asyncio.create_task(one())
        await until(lambda: queue.waiting == 1)
        await queue.drain(0)
        assert await first == ["first", "last"]
        assert held.was_cancelled
        with pytest.raises(NotReady):
            await second
        queue.stop()

    run(work())
