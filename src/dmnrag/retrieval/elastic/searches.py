"""Many searches in few requests, and never a partial answer.

Searches travel by the hundred (`msearch`), several requests at once. A search whose answer lacks a shard or
ran out of time is asked again until the deadline and is then an error.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from dmnrag._optional import require
from dmnrag.retrieval.elastic import faults
from dmnrag.retrieval.elastic.connection import Attempts, Cluster

SEARCHES_PER_REQUEST = 100
_REQUEST_BYTES = 4 * 2**20

Answer = Mapping[str, Any]


def dump(value: Any) -> bytes:
    """JSON in one line; numpy arrays become lists, float32 as short as they can be read back."""
    orjson = require("orjson", "elastic")
    line: bytes = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
    return line


def search_all(
    cluster: Cluster,
    physical: str,
    bodies: Sequence[bytes],
    keep: Sequence[str],
    *,
    search_type: str = "query_then_fetch",
) -> list[Answer]:
    """The answers to all searches, in their order.

    Args:
        cluster: `concurrency` of its settings says how many requests are on the way at once.
        physical: the index.
        bodies: one search each, see `dump`.
        keep: what is wanted of an answer: `hits.hits._score`.
        search_type: `dfs_query_then_fetch` counts terms over all shards before scoring.

    Raises:
        ClusterError: a search did not succeed within the deadline, or the index is gone.
    """
    head = dump({"index": physical, "search_type": search_type, "allow_partial_search_results": False})
    wanted = ["responses.status", "responses.error", "responses.timed_out", "responses._shards.failed"]
    wanted += [f"responses.{name}" for name in keep]
    batches = list(_batches(bodies))
    if len(batches) == 1:
        return _ask(cluster, physical, head, batches[0], wanted)
    if not batches:
        return []
    with ThreadPoolExecutor(min(cluster.settings.concurrency, len(batches)), "dmnrag-search") as pool:
        answers = pool.map(lambda batch: _ask(cluster, physical, head, batch, wanted), batches)
        return [answer for batch in answers for answer in batch]


def _batches(bodies: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    start, size = 0, 0
    for end, body in enumerate(bodies):
        if end - start == SEARCHES_PER_REQUEST or (end > start and size + len(body) > _REQUEST_BYTES):
            yield bodies[start:end]
            start, size = end, 0
        size += len(body)
    if start < len(bodies):
        yield bodies[start:]


def _ask(cluster: Cluster, physical: str, head: bytes, bodies: Sequence[bytes], wanted: list[str]) -> list[Answer]:
    what = f"search of {physical}"
    attempts = Attempts(cluster.new_deadline())
    answers: dict[int, Answer] = {}
    waiting = list(range(len(bodies)))
    while waiting:
        request = b"".join(head + bodies[i] for i in waiting)
        reply = cluster.call(what, partial(_send, request, wanted), deadline=attempts.deadline)
        last = None
        for i, answer in zip(waiting, reply["responses"], strict=True):
            fault = _fault(answer)
            if fault is None:
                answers[i] = answer
            elif fault.passing:
                last = fault
            else:
                raise fault.to_error(f"{cluster.where}: {what}")
        waiting = [i for i in waiting if i not in answers]
        if last is not None and not attempts.wait():
            raise last.to_error(f"{cluster.where}: {what}")
    return [answers[i] for i in range(len(bodies))]


def _send(request: bytes, wanted: list[str], es: Any) -> Answer:
    answer: Answer = es.msearch(searches=request, filter_path=wanted)
    return answer


def _fault(answer: Answer) -> faults.Fault | None:
    if "error" in answer:
        return faults.of_item(answer)
    if answer.get("timed_out"):
        return faults.Fault(503, "timed_out", "the search ran out of time on the server")
    if answer.get("_shards", {}).get("failed"):
        return faults.Fault(503, "partial", "some shards did not answer")
    return None
