"""What is kept of answers: the audit line before sources are given, the answer afterwards.

Disk work runs in one thread of its own, in the order in which it was asked for. Methods are called from the event loop.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

from dmnrag.service.audit import AuditLog
from dmnrag.service.events import Asked, Finished, Sources, Started
from dmnrag.service.store import Store, StoredAnswer, StoreError

_logger = logging.getLogger(__name__)

REMEMBERED = 1_000
"""Answers that a service without a store shows again after the page is reloaded."""

REMEMBERED_CHARACTERS = 20_000_000
"""Of all of them, sources included: 40 to 80 MB, however many documents and how long ones clients ask for."""

T = TypeVar("T")


class Records:
    """Keeps answers in the store, or the latest of them in memory where there is none."""

    def __init__(self, store: Store | None, audit: AuditLog | None) -> None:
        self._store = store
        self._audit = audit
        self._remembered: OrderedDict[str, StoredAnswer] = OrderedDict()
        self._n_characters = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dmnrag-records")
        self.failures = 0
        """Answers that the store could not take."""

    async def give(self, asked: Asked, started: Started, sources: Sources) -> None:
        """Before sources are shown: nobody sees any without a line in the audit log.

        Raises:
            OSError: the log cannot be written.
        """
        if self._audit is not None:
            await self._write(self._audit, "sources", asked, started, sources)

    async def keep(
        self, asked: Asked, started: Started, sources: Sources, finished: Finished, generation: int | None
    ) -> None:
        """Before the end is shown, so that feedback on the answer finds it.

        An answer that the store cannot take is shown all the same; the log and `failures` tell.

        Raises:
            OSError: the audit log cannot be written.
        """
        if self._audit is not None:
            await self._write(self._audit, "finished", asked, started, sources, outcome=finished.outcome)
        if self._store is None:
            self._remember(asked, started, sources, finished, generation)
            return
        store = self._store
        try:
            await self._run(lambda: store.add_question(asked, started, sources, finished, generation=generation))
        except StoreError as error:
            self.failures += 1
            _logger.error("answer %s is not kept: %s", started.answer_id, error)

    async def stored(self, answer_id: str, owner: str) -> StoredAnswer | None:
        """An answer as it was shown to this owner; None: there is none, or no longer."""
        if self._store is not None:
            store = self._store
            return await self._run(lambda: store.answer(answer_id, owner))
        found = self._remembered.get(answer_id)
        return found if found is not None and found.owner == owner else None

    async def forget(self, owner: str, answer_id: str | None) -> int:
        """Delete an owner's answer, or all of them (None); how many there were."""
        if self._store is not None:
            store = self._store
            if answer_id is None:
                return await self._run(lambda: store.delete_owner(owner))
            return await self._run(lambda: store.delete_answer(answer_id, owner))
        of_owner = {key for key, kept in self._remembered.items() if kept.owner == owner}
        gone = of_owner if answer_id is None else of_owner & {answer_id}
        for key in gone:
            self._drop(key)
        return len(gone)

    def close(self) -> None:
        """Finish what is being written, then close store and log."""
        self._pool.shutdown(wait=True)
        if self._store is not None:
            self._store.close()
        if self._audit is not None:
            self._audit.close()

    def _remember(
        self, asked: Asked, started: Started, sources: Sources, finished: Finished, generation: int | None
    ) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        kept = StoredAnswer(now, asked.owner, asked.question, generation, started, sources, finished)
        self._remembered[started.answer_id] = kept
        self._n_characters += _characters(kept)
        while len(self._remembered) > REMEMBERED or self._n_characters > REMEMBERED_CHARACTERS:
            self._drop(next(iter(self._remembered)))

    def _drop(self, answer_id: str) -> None:
        self._n_characters -= _characters(self._remembered.pop(answer_id))

    async def _write(
        self, audit: AuditLog, event: str, asked: Asked, started: Started, sources: Sources, outcome: str = ""
    ) -> None:
        await self._run(
            lambda: audit.write(
                asked.owner,
                started.answer_id,
                event,
                request_id=asked.request_id,
                doc_ids=[source.doc_id for source in sources.sources],
                domain=started.domain,
                outcome=outcome,
                question=asked.question,
            )
        )

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _characters(kept: StoredAnswer) -> int:
    of_sources = sum(
        len(source.excerpt)
        + len(source.question)
        + sum(map(len, source.answers))
        + sum(map(len, source.metadata.values()))
        for source in kept.sources.sources
    )
    return len(kept.question) + len(kept.finished.text) + of_sources
