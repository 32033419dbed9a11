"""Who is still there. The page's library notices a tab that was closed only when it has something to send; an LLM that
thinks for a minute would think for nobody."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Presence:
    """Open tabs. Used from one event loop."""

    def __init__(self) -> None:
        self._watches: dict[str, list[Callable[[], object]]] = {}

    @contextmanager
    def watch(self, tab: str, left: Callable[[], object]) -> Iterator[None]:
        """Have `left` called when the tab is closed meanwhile."""
        watches = self._watches.setdefault(tab, [])
        watches.append(left)
        try:
            yield
        finally:
            watches.remove(left)
            if not watches:
                self._watches.pop(tab, None)

    def left(self, tab: str) -> None:
        """The tab was closed, or its connection is lost."""
        for call in tuple(self._watches.get(tab, ())):
            call()
