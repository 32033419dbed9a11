"""A new physical index that is a changed copy of another one, which stays as it is.

The server clones an index by linking its segments (`_clone`), so a copy costs seconds and little disk, whatever
its size. Removals go into a first copy and that is cloned again: a fresh clone owes no former operation to any
other copy of a shard, so what was removed can leave its statistics at once instead of half a minute later.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from dmnrag.errors import ClusterError, DataError
from dmnrag.retrieval.elastic.build import (
    WrittenIndex,
    count,
    delete_physical,
    deleted_on_failure,
    new_build,
    next_physical,
)
from dmnrag.retrieval.elastic.catalog import OpenedIndex, build_alias, write_alias
from dmnrag.retrieval.elastic.connection import Cluster, Deadline
from dmnrag.retrieval.elastic.layout import META
from dmnrag.retrieval.elastic.rows import IndexedDocument
from dmnrag.retrieval.elastic.settle import MERGE_S, settle
from dmnrag.retrieval.elastic.update import add_documents, remove_documents, shards_of

_BLOCK = "index.blocks.write"


def copy_index(
    cluster: Cluster,
    opened: OpenedIndex,
    *,
    added: Iterable[IndexedDocument] = (),
    removed: Collection[str] = (),
    above: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> WrittenIndex:
    """A copy without some documents and with others; scores are those of a build from what it holds.

    The alias stays where it is. After an error nothing of the copy is left.

    Args:
        cluster: where the index is.
        opened: what is copied; nothing may write there meanwhile.
        added: read once, in a stream; none of their ids may be left in the index after the removals.
        removed: ids, all of which are there.
        above: see `write_index`.
        on_progress: called with the number of documents added since the last call.

    Raises:
        DataError: the copy does not hold what it should: ids came twice, or were not there.
        DocumentsRefusedError: the server will never take some documents.
        ClusterError: the cluster did not do it in time.
    """
    n_before = count(cluster, opened.physical)
    copy, former = _clone(cluster, opened, above), None
    with deleted_on_failure(cluster, copy.physical):
        n_removed = remove_documents(cluster, copy, removed) if removed else 0
        if n_removed:
            former, copy = copy.physical, _clone(cluster, copy, above)
    with deleted_on_failure(cluster, copy.physical):
        if former is not None:
            delete_physical(cluster, former)
        n_added = add_documents(cluster, copy, added, on_progress=on_progress)
        n_found = count(cluster, copy.physical)
        if n_removed != len(set(removed)) or n_found != n_before - n_removed + n_added:
            raise DataError(
                f"the changed copy of {opened.physical} holds {n_found} documents, expected were {n_before} - "
                f"{len(set(removed))} + {n_added}: ids came twice or were not there; nothing was changed"
            )
        if not settle(cluster, copy.physical):
            raise ClusterError(
                f"{cluster.where}: removed documents still count in the statistics of {copy.physical}; nothing was "
                "changed, try again when all copies of its shards are there (dmnrag doctor --es-url ...)"
            )
    return WrittenIndex(copy.physical, copy.meta["build"], n_found)


def _clone(cluster: Cluster, opened: OpenedIndex, above: int) -> OpenedIndex:
    physical = next_physical(cluster, opened.name, above)
    # The server gives a clone as many replicas as a new index gets, not as many as its source has.
    settings = {_BLOCK: None, "number_of_replicas": shards_of(cluster, opened).replicas}
    meta = {**opened.meta, "build": new_build()}
    with deleted_on_failure(cluster, physical):
        _set(cluster, opened.physical, blocked=True)
        try:
            cluster.call(
                f"copy of {opened.physical}",
                lambda es: _clone_once(es, opened, physical, settings),
                attempt_s=MERGE_S,
                deadline=Deadline(MERGE_S),
            )
        finally:
            _set(cluster, opened.physical, blocked=False)
        cluster.call(f"description of {physical}", lambda es: es.indices.put_mapping(index=physical, meta={META: meta}))
    return OpenedIndex(opened.name, physical, meta)


def _set(cluster: Cluster, physical: str, *, blocked: bool) -> None:
    """The server clones only what nobody writes to."""
    cluster.call(
        f"{'closing' if blocked else 'opening'} of {physical} for writing",
        lambda es: es.indices.put_settings(index=physical, settings={_BLOCK: blocked or None}),
    )


def _clone_once(es: Any, opened: OpenedIndex, physical: str, settings: Mapping[str, Any]) -> None:
    # An attempt whose answer was lost may have made it.
    if not es.indices.exists(index=physical):
        es.indices.clone(
            index=opened.physical,
            target=physical,
            settings=settings,
            aliases={write_alias(physical): {"is_hidden": True}, build_alias(opened.name): {"is_hidden": True}},
        )
    # Copying instead of linking, where the disk has no links, takes as long as it takes.
    es.cluster.health(index=physical, wait_for_status="yellow", timeout=f"{MERGE_S:.0f}s")
