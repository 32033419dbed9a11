"""How often one key, or one address, may ask: a token bucket each.

A bucket is one number (the generic cell rate algorithm): when it will be full. It holds a minute's worth, so whoever
was quiet may ask that often at once, and then steadily at the rate.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

_BURST_S = 60.0
"""A full bucket is what a minute brings."""
_ROUNDING_S = 1e-6
"""Who waits exactly as long as told must not be refused for the last bit of a float."""
MAX_REMEMBERED = 100_000
"""Askers, some 15 MB. Beyond, the one who asked least recently is forgotten, which only gives him a full bucket."""


class RateLimiter:
    """Any thread may ask. Whoever has a full bucket again takes no memory."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """A limit for everyone; None: only those with a rate of their own are limited."""
        self._per_minute = per_minute
        self._clock = clock
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """When each bucket will be full again; least recent asker first."""
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._full_at)

    def wait_s(self, who: str, per_minute: int | None = None) -> float:
        """Take one request from the bucket of `who`: 0.0, or the seconds until there is one, and nothing is taken.

        `per_minute` goes before the limit for everyone.
        """
        rate = per_minute if per_minute is not None else self._per_minute
        if rate is None:
            return 0.0
        with self._lock:
            now = self._clock()
            full_at = max(self._full_at.get(who, now), now) + 60.0 / rate
            wait = full_at - now - _BURST_S
            if wait > _ROUNDING_S:
                return wait
            self._full_at[who] = full_at
            self._full_at.move_to_end(who)
            self._forget(now)
            return 0.0

    def _forget(self, now: float) -> None:
        """Full buckets at the head, and what is too much. Who just asked stands at the end and stays."""
        while len(self._full_at) > 1:
            who, full_at = next(iter(self._full_at.items()))
            if full_at > now and len(self._full_at) <= MAX_REMEMBERED:
                return
            del self._full_at[who]
