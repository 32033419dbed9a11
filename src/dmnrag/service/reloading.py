"""The index that answers, and the change to a newer generation while questions are answered.

`dmnrag add`, `remove`, `train` and `calibrate` write beside what is open. `IndexKeeper.refresh` looks whether there is
something newer, opens and warms it beside the old one and swaps it in; who is at work keeps what they started with, and
the last of them closes it. What cannot be opened changes nothing, and `problem` says so.

`refresh` blocks and belongs into a thread of its own, one call at a time. All else is safe from any thread.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from dmnrag.errors import DmnragError
from dmnrag.index import Index
from dmnrag.index.generations import current_generation
from dmnrag.pipeline import Pipeline
from dmnrag.protocols import Encoder
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.service.faults import NotReady
from dmnrag.types import JOINT, PLAIN, Layer, Query

_logger = logging.getLogger(__name__)

RETRY_S = 30.0
"""What could not be opened is tried again after so long: a cluster comes back, a permission is given."""

_RETRY_AFTER_S = 5.0
"""What clients are told while the index loads."""

_WARM_QUESTION = "问题 question"


class Closing(Protocol):
    """What an opened generation must do."""

    def close(self) -> None:
        """Free it; nobody uses it any more."""


Opened = TypeVar("Opened", bound=Closing)


class _Held(Generic[Opened]):
    """An opened generation and how many use it."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self.users = 0
        self.retired = False


class IndexKeeper(Generic[Opened]):
    """Holds the open generation of a folder."""

    def __init__(
        self,
        folder: Path,
        open_current: Callable[[Opened | None], Opened],
        *,
        mark: Callable[[Path], object] = current_generation,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is opened yet.

        Args:
            folder: of the index.
            open_current: opens and warms what the folder holds now, given what is open (None at first), whose parts
                it may take over.
            mark: tells one state of the folder from another, cheaply.
            clock: seconds, for trying again.
        """
        self._folder = folder
        self._open_current = open_current
        self._mark = mark
        self._clock = clock
        self._lock = threading.Lock()
        self._held: _Held[Opened] | None = None
        self._opened_mark: object = None
        self._failed_mark: object = None
        self._retry_at = 0.0
        self.reloads = 0
        """Changes to something newer since the start."""
        self.problem = ""
        """Why what the folder holds now is not in use; empty where it is."""

    @property
    def ready(self) -> bool:
        """Whether there is something to answer from."""
        return self._held is not None

    @contextmanager
    def use(self) -> Iterator[Opened]:
        """What is open now, kept open until the context is left.

        Raises:
            NotReady: nothing is open yet. Its words are for clients; `problem`, which names files and servers, is not.
        """
        with self._lock:
            held = self._held
            if held is None:
                words = "cannot be used; the operator's log says why" if self.problem else "is being loaded"
                raise NotReady(f"the index {words}: ask again in a moment", _RETRY_AFTER_S)
            held.users += 1
        try:
            yield held.opened
        finally:
            self._leave(held)

    def peek(self) -> Opened | None:
        """What is open now, for a look that does not outlast the call; None before the first."""
        held = self._held
        return None if held is None else held.opened

    def refresh(self) -> bool:
        """Open what the folder holds if that is not open; whether something was swapped in.

        What is wrong becomes `problem`. What failed is tried again when the folder changes, else every `RETRY_S`.
        """
        mark: object = None
        try:
            mark = self._mark(self._folder)
            if self._held is not None and mark == self._opened_mark:
                self.problem = ""
                return False
            if mark == self._failed_mark and self._clock() < self._retry_at:
                return False
            opened = self._open_current(self.peek())
        except (DmnragError, OSError) as error:
            self._keep(mark, error)
            return False
        self._swap(opened, mark)
        return True

    def close(self) -> None:
        """Close what is open as soon as nobody uses it."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            self._retire(held)

    def _keep(self, mark: object, error: Exception) -> None:
        problem = str(error)
        if self._held is not None:
            problem = f"the index has changed and cannot be used as it is now; the former state still answers: {error}"
        if problem != self.problem:
            _logger.error("%s", problem)
        self.problem = problem
        self._failed_mark, self._retry_at = mark, self._clock() + RETRY_S

    def _swap(self, opened: Opened, mark: object) -> None:
        with self._lock:
            former, self._held = self._held, _Held(opened)
        self._opened_mark, self._failed_mark = mark, None
        self.problem = ""
        if former is not None:
            self.reloads += 1
            self._retire(former)

    def _retire(self, held: _Held[Opened]) -> None:
        with self._lock:
            held.retired = True
            last = held.users == 0
        if last:
            held.opened.close()

    def _leave(self, held: _Held[Opened]) -> None:
        with self._lock:
            held.users -= 1
            last = held.retired and held.users == 0
        if last:
            held.opened.close()


def reusable_encoders(former: Pipeline | None, index: Index) -> Mapping[str, Encoder]:
    """Encoders of a former generation that serve an index, by the names of its retrievers.

    A trained retriever's model has a folder of its own that never changes, so an encoder's name tells it.
    """
    if former is None:
        return {}
    known = {former.index.dense_settings(name).encoder: encoder for name, encoder in former.encoders.items()}
    wanted = {name: index.dense_settings(name).encoder for name in index.manifest.retrievers}
    return {name: known[encoder] for name, encoder in wanted.items() if encoder in known}


def warm(pipeline: Pipeline, layer: Layer) -> None:
    """Read and load now what the first questions would wait for: both ways of searching, encoder, labels, documents."""
    query = Query("warm", _WARM_QUESTION, next(iter(pipeline.index.domains), ()))
    settings = RetrievalSettings(k=1, layer=layer)
    for use in (JOINT, PLAIN):
        for hits in pipeline.search([query], replace(settings, use=use)):
            pipeline.index.documents([hit.doc_id for hit in hits])
    pipeline.infer([query.text])
