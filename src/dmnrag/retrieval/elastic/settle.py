"""Makes written documents findable, and removed ones leave the statistics of BM25.

Lucene counts a removed or replaced document in N, n and avgdl until its segment is merged, so scores drift a
little from those of the documents that remain. `settle` merges such segments. The server lets go of a removed
document's place only after its copies have agreed on that, up to half a minute later.
"""

from collections.abc import Callable
from typing import Any

from dmnrag.retrieval.elastic.connection import Attempts, Cluster, Deadline

MERGE_S = 3600.0
"""Merging rewrites segments of up to 5 GB; an attempt may take that long."""

_WAIT_S = 120.0
"""The server's copies agree every 30 seconds."""


def refresh(cluster: Cluster, physical: str) -> None:
    """Make everything that was written findable."""
    cluster.call(
        f"refresh of {physical}", lambda es: es.indices.refresh(index=physical), attempt_s=cluster.settings.deadline_s
    )


def n_deleted(cluster: Cluster, physical: str) -> int:
    """Removed and replaced documents that still count in the statistics; parts of documents count too.

    Over all copies: each has its own segments, and a search may ask any of them.
    """
    answer = cluster.call(f"statistics of {physical}", lambda es: es.indices.stats(index=physical, metric="docs"))
    return int(answer["indices"][physical]["total"]["docs"]["deleted"])


def settle(cluster: Cluster, physical: str, *, wait_s: float = _WAIT_S) -> bool:
    """Merge until no removed document counts in the statistics; scores are then those of what remains.

    Searches go on meanwhile and always find every document. Costs nothing where nothing was removed, else the
    rewriting of each segment that holds a removed document.

    Returns:
        False where the copies had not agreed after `wait_s` seconds; try again later.
    """
    attempts = Attempts(Deadline(wait_s))
    while n_deleted(cluster, physical):
        for step in _STEPS:
            cluster.call(
                f"merging of {physical}", _bound(step, physical), attempt_s=MERGE_S, deadline=Deadline(MERGE_S)
            )
        if n_deleted(cluster, physical) == 0:
            return True
        if not attempts.wait():
            return False
    return True


def _bound(step: Callable[[Any, str], object], physical: str) -> Callable[[Any], object]:
    return lambda es: step(es, physical)


_STEPS: tuple[Callable[[Any, str], object], ...] = (
    lambda es, index: es.indices.flush(index=index, force=True, wait_if_ongoing=True),
    lambda es, index: es.indices.forcemerge(index=index, only_expunge_deletes=True),
    lambda es, index: es.indices.refresh(index=index),
)
