"""Rate limits against a clock that stands still until it is moved."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.service import limits
from dmnrag.service.limits import RateLimiter


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_minutes_worth_at_once_then_one_per_interval() -> None:
    clock = Clock()
    limiter = RateLimiter(6, clock)
    assert [limiter.wait_s("a") for _ in range(6)] == [0.0] * 6
    assert limiter.wait_s("a") == pytest.approx(10)  # 60 s / 6
    clock.now += 4
    assert limiter.wait_s("a") == pytest.approx(6)  # asking too early costs nothing
    clock.now += 6
    assert limiter.wait_s("a") == 0.0
    assert limiter.wait_s("a") == pytest.approx(10)


def test_askers_have_buckets_of_their_own() -> None:
    limiter = RateLimiter(1, Clock())
    assert limiter.wait_s("a") == 0.0
    assert limiter.wait_s("b") == 0.0
    assert limiter.wait_s("a") == pytest.approx(60)


def test_a_rate_of_its_own_goes_before_the_common_one() -> None:
    limiter = RateLimiter(1, Clock())
    assert [limiter.wait_s("a", 3) for _ in range(3)] == [0.0] * 3
    assert limiter.wait_s("a", 3) == pytest.approx(20)


def test_no_limit() -> None:
    limiter = RateLimiter(None, Clock())
    assert [limiter.wait_s("a") for _ in range(1_000)] == [0.0] * 1_000
    assert len(limiter) == 0


@given(rate=st.integers(1, 10_000), steps=st.lists(st.floats(0, 90), max_size=50))
def test_whoever_waits_as_told_goes_on(rate: int, steps: list[float]) -> None:
    clock = Clock()
    limiter = RateLimiter(rate, clock)
    for step in steps:
        clock.now += step
        wait = limiter.wait_s("a")
        assert 0 <= wait <= 60 / rate + 1e-9
        if wait:
            clock.now += wait
            assert limiter.wait_s("a") == 0.0


@given(rate=st.integers(1, 50), steps=st.lists(st.floats(0, 5), min_size=1, max_size=200))
def test_never_more_than_a_bucket_and_the_rate(rate: int, steps: list[float]) -> None:
    clock = Clock()
    limiter = RateLimiter(rate, clock)
    passed = 0
    for step in steps:
        clock.now += step
        passed += limiter.wait_s("a") == 0.0
    assert passed <= rate + (sum(steps) * rate / 60) + 1e-3


def test_full_buckets_are_forgotten() -> None:
    clock = Clock()
    limiter = RateLimiter(60, clock)
    for number in range(500):
        limiter.wait_s(str(number))
    assert len(limiter) == 500
    clock.now += 1.5  # each took one of 60, which is back after a second
    limiter.wait_s("next")
    assert len(limiter) == 1


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 100)
    limiter = RateLimiter(1, Clock())
    limiter.wait_s("first")
    for number in range(1_000):
        assert limiter.wait_s(str(number)) == 0.0
    assert len(limiter) == 100
    assert limiter.wait_s("999") > 0
    assert limiter.wait_s("first") == 0.0  # forgotten


def test_threads_share_a_bucket() -> None:
    limiter = RateLimiter(1_000, Clock())
    passed = []

    def ask() -> None:
        passed.append(sum(limiter.wait_s("a") == 0.0 for _ in range(500)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(passed) == 1_000


def test_the_one_who_asked_least_recently_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 2)
    limiter = RateLimiter(2, Clock())
    for who in ("a", "b", "a", "c"):
        assert limiter.wait_s(who) == 0.0
    assert limiter.wait_s("a") > 0  # both of its requests are remembered
