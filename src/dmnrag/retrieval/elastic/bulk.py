"""Writes a stream of documents in batches of bytes, several at once, in constant memory.

What the server turns away for the moment (429, 503), or what is lost with a connection, is sent again until
the batch's deadline. Ids are document ids, so a batch that arrives twice changes nothing. What the server
will never take is collected and reported at the end.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from dmnrag.errors import DocumentsRefusedError
from dmnrag.retrieval.elastic import faults
from dmnrag.retrieval.elastic.connection import Attempts, Cluster

BATCH_BYTES = 4 * 2**20
"""Some 600 documents with a vector of 384 numbers; twice `concurrency` of them must fit a small server's heap."""

_LISTED = 1000
"""Refused documents kept with their reasons."""
_SHOWN = 5
_TAKEN = ("errors", "items.*.status", "items.*.error", "items.*.result")


class Action(NamedTuple):
    """One document to write."""

    doc_id: str
    content: bytes
    """The lines of the bulk protocol, each ended by a line break."""


@dataclass(slots=True)
class BulkReport:
    """What became of a stream."""

    n_sent: int = 0
    n_missing: int = 0
    """Documents to be deleted that were not there."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """(doc_id, reason), up to a thousand."""
    n_refused: int = 0

    def raise_refused(self, what: str) -> None:
        """Raise DocumentsRefusedError where documents were refused."""
        if not self.n_refused:
            return
        shown = "; ".join(f"{doc_id!r}: {reason}" for doc_id, reason in self.refused[:_SHOWN])
        more = f"; and {self.n_refused - _SHOWN} more" if self.n_refused > _SHOWN else ""
        raise DocumentsRefusedError(
            f"{what}: the server refuses {self.n_refused} of {self.n_sent} documents for good: {shown}{more}. "
            "Correct or drop them, then try again",
            tuple(self.refused),
        )


def write_bulk(
    cluster: Cluster,
    alias: str,
    actions: Iterable[Action],
    *,
    on_progress: Callable[[int], None] | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> BulkReport:
    """Send all actions to the index behind `alias`.

    Args:
        cluster: `concurrency` of its settings says how many batches are on the way at once.
        alias: where to; an alias, so that the server never makes an index by itself.
        actions: read once; at most twice `concurrency` batches of them are in memory.
        on_progress: called with the number of documents done since the last call, from this thread.
        batch_bytes: of a request; one longer document makes a longer request.

    Raises:
        ClusterError: a batch did not arrive within its deadline, or the index is gone or blocked.
    """
    report, lock = BulkReport(), Lock()
    workers = cluster.settings.concurrency
    pending: set[Future[int]] = set()
    with ThreadPoolExecutor(workers, thread_name_prefix="dmnrag-bulk") as pool:
        try:
            for batch in _batches(actions, batch_bytes):
                pending.add(pool.submit(_send, cluster, alias, batch, report, lock))
                if len(pending) >= 2 * workers:
                    pending = _collect(pending, on_progress)
            while pending:
                pending = _collect(pending, on_progress)
        except BaseException:
            for future in pending:
                future.cancel()
            raise
    return report


def _collect(pending: set[Future[int]], on_progress: Callable[[int], None] | None) -> set[Future[int]]:
    done, waiting = wait(pending, return_when=FIRST_COMPLETED)
    for future in done:
        n_sent = future.result()
        if on_progress is not None:
            on_progress(n_sent)
    return waiting


def _batches(actions: Iterable[Action], batch_bytes: int) -> Iterator[list[Action]]:
    batch: list[Action] = []
    size = 0
    for action in actions:
        if batch and size + len(action.content) > batch_bytes:
            yield batch
            batch, size = [], 0
        batch.append(action)
        size += len(action.content)
    if batch:
        yield batch


def _send(cluster: Cluster, alias: str, batch: list[Action], report: BulkReport, lock: Lock) -> int:
    """Send until the server has taken or refused every document; returns how many there were."""
    what = f"writing of {len(batch)} documents to {alias}"
    attempts = Attempts(cluster.new_deadline())
    waiting = batch
    while waiting:
        body = b"".join(action.content for action in waiting)
        answer = cluster.call(what, partial(_ask, body, alias), deadline=attempts.deadline)
        again, last = [], None
        for action, item in zip(waiting, answer["items"], strict=True):
            fault = _settle(action, next(iter(item.values())), report, lock)
            if fault is None:
                continue
            if not fault.passing:
                raise fault.to_error(f"{cluster.where}: {what}")
            again.append(action)
            last = fault
        if last is not None and not attempts.wait():
            raise last.to_error(f"{cluster.where}: {what}")
        waiting = again
    with lock:
        report.n_sent += len(batch)
    return len(batch)


def _ask(body: bytes, alias: str, es: Any) -> Mapping[str, Any]:
    answer: Mapping[str, Any] = es.bulk(operations=body, index=alias, require_alias=True, filter_path=_TAKEN)
    return answer


def _settle(action: Action, result: Mapping[str, Any], report: BulkReport, lock: Lock) -> faults.Fault | None:
    """Note what became of one document; a fault that is not the document's own is given back."""
    if "error" not in result:
        if result.get("result") == "not_found":
            with lock:
                report.n_missing += 1
        return None
    fault = faults.of_item(result)
    if fault.passing or fault.of_block or fault.of_index or fault.of_access:
        return fault
    with lock:
        report.n_refused += 1
        if len(report.refused) < _LISTED:
            report.refused.append((action.doc_id, str(fault)))
    return None
