"""Builds a new physical index and lets the alias point at it when it is whole; rolls back; deletes old ones.

`build_index` does both; whoever keeps books of his own writes (`write_index`) and switches (`switch_alias`).
A build that is killed leaves the alias where it was. The next one deletes what it left behind and says so.
Two builds of one name at once do not mix: the later one deletes what the earlier one writes, which then ends
with an error.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from dmnrag.errors import ClusterError, ClusterIndexError, DataError, DmnragError
from dmnrag.retrieval.elastic.bulk import BATCH_BYTES, BulkReport, write_bulk
from dmnrag.retrieval.elastic.catalog import PhysicalIndex, build_alias, list_physical, physical_name, write_alias
from dmnrag.retrieval.elastic.connection import Cluster, Deadline
from dmnrag.retrieval.elastic.layout import (
    META,
    ONE_SHARD,
    IndexLayout,
    ShardSettings,
    field_names,
    index_settings,
    new_mapping,
)
from dmnrag.retrieval.elastic.rows import IndexedDocument, index_actions
from dmnrag.retrieval.elastic.searches import dump, search_all
from dmnrag.retrieval.elastic.settle import refresh, settle

Say = Callable[[str], None]


def _say_nothing(_text: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class ElasticBuildReport:
    """What a build did."""

    physical: str
    n_documents: int
    previous: str | None
    """The index that answered before; it stays until it is pruned."""
    deleted: tuple[str, ...]
    """Indexes of killed builds, and ones older than the previous, that were deleted."""


@dataclass(frozen=True, slots=True)
class WrittenIndex:
    """A whole physical index that does not answer under its name yet."""

    physical: str
    build: str
    """What no other build has; it stands in the mapping's `_meta` too, and survives a snapshot."""
    n_documents: int


def build_index(
    cluster: Cluster,
    name: str,
    rows: Iterable[IndexedDocument],
    layout: IndexLayout,
    *,
    shards: ShardSettings = ONE_SHARD,
    on_progress: Callable[[int], None] | None = None,
    say: Say = _say_nothing,
    batch_bytes: int = BATCH_BYTES,
) -> ElasticBuildReport:
    """Write all rows into a new physical index, check it, and let the alias `name` point at it.

    Args:
        cluster: where to.
        name: the alias; what answers under it stays as it is until the new index is whole.
        rows: read once, in a stream; memory does not grow with their number.
        layout: what the index is built with.
        shards: how it is spread.
        on_progress: called with the number of documents done since the last call.
        say: told in words what is cleaned up.
        batch_bytes: of a request.

    Raises:
        DocumentsRefusedError: the server will never take some documents; lists them with reasons.
        DataError: there are no documents, or an id comes twice.
        ClusterIndexError: something else stands under `name`, or the index was deleted meanwhile.
        ClusterError: the server could not be reached, or does not hold what was sent.
    """
    former = list_physical(cluster, name)
    deleted = _clean_up(cluster, former, say)
    above = max((index.number for index in former), default=0)
    written = write_index(
        cluster, name, rows, layout, shards=shards, above=above, on_progress=on_progress, batch_bytes=batch_bytes
    )
    previous = switch_alias(cluster, name, written.physical)
    kept = {written.physical, previous}
    for index in former:
        if index.ours and not index.unfinished and index.name not in kept:
            delete_physical(cluster, index.name)
            deleted.append(index.name)
    return ElasticBuildReport(written.physical, written.n_documents, previous, tuple(deleted))


def write_index(
    cluster: Cluster,
    name: str,
    rows: Iterable[IndexedDocument],
    layout: IndexLayout,
    *,
    shards: ShardSettings = ONE_SHARD,
    above: int = 0,
    on_progress: Callable[[int], None] | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> WrittenIndex:
    """Write all rows into a new physical index and check it; the alias stays where it is.

    Its number is higher than those that are there and than `above`: what a stopped run sent to an index that was
    deleted since must not arrive in this one. Other arguments and errors as of `build_index`. After an error nothing
    of it is left.
    """
    physical = next_physical(cluster, name, above)
    build = _create(cluster, name, physical, layout, shards)
    with deleted_on_failure(cluster, physical):
        report = write_bulk(
            cluster,
            write_alias(physical),
            index_actions(rows, field_names(layout)),
            on_progress=on_progress,
            batch_bytes=batch_bytes,
        )
        report.raise_refused(f"building of {name}")
        _finish(cluster, physical, report)
    return WrittenIndex(physical, build, report.n_sent)


def next_physical(cluster: Cluster, name: str, above: int = 0) -> str:
    """The name of the next physical index, of a higher number than `above`."""
    return physical_name(name, max([above, *(index.number for index in list_physical(cluster, name))]) + 1)


@contextmanager
def deleted_on_failure(cluster: Cluster, physical: str) -> Iterator[None]:
    """An error inside deletes the index that was being made."""
    try:
        yield
    except BaseException:
        _delete_quietly(cluster, physical)
        raise


def switch_alias(cluster: Cluster, name: str, physical: str) -> str | None:
    """Let `name` point at a whole index of its own, in one step; returns the one that it pointed at.

    Raises:
        ClusterIndexError: there is no such index.
    """
    of_name = list_physical(cluster, name)
    target = next((index for index in of_name if index.name == physical), None)
    if target is None:
        raise ClusterIndexError(f"{cluster.where} has no index {physical!r} that {name!r} could point at")
    previous = next((index.name for index in of_name if index.current), None)
    finished = [{"remove": {"index": physical, "alias": build_alias(name)}}] if target.unfinished else []
    _move_alias(cluster, name, physical, None if previous == physical else previous, finished)
    return previous


def roll_back(cluster: Cluster, name: str) -> str:
    """Let the alias point at the index that was built before the current one; returns that one.

    Raises:
        ClusterIndexError: there is no older one.
    """
    whole = [index for index in list_physical(cluster, name) if index.ours and not index.unfinished]
    current = next((index for index in whole if index.current), None)
    older = [index for index in whole if current is not None and index.number < current.number]
    if current is None or not older:
        raise ClusterIndexError(f"{cluster.where}: {name!r} has no older index to go back to; build it again")
    switch_alias(cluster, name, older[-1].name)
    return older[-1].name


def prune(cluster: Cluster, name: str) -> list[str]:
    """Delete every index of `name` that does not answer, and of killed builds; returns their names."""
    unused = [index.name for index in list_physical(cluster, name) if index.ours and not index.current]
    for physical in unused:
        delete_physical(cluster, physical)
    return unused


def delete_index(cluster: Cluster, name: str) -> list[str]:
    """Delete everything of `name`; returns the names of the deleted indexes."""
    ours = [index.name for index in list_physical(cluster, name) if index.ours]
    for physical in ours:
        delete_physical(cluster, physical)
    return ours


def _clean_up(cluster: Cluster, former: Sequence[PhysicalIndex], say: Say) -> list[str]:
    left = [index.name for index in former if index.ours and index.unfinished and not index.current]
    for physical in left:
        say(f"{physical} was left unfinished by a build that was stopped; it is deleted, and a new one is built")
        delete_physical(cluster, physical)
    return left


_CREATION_WAIT = "10s"
"""For the copies of an empty index; one that comes later is no error."""


def _create(cluster: Cluster, name: str, physical: str, layout: IndexLayout, shards: ShardSettings) -> str:
    """An empty index, and what identifies it."""
    mapping, build = new_mapping(layout, name), new_build()
    mapping["_meta"][META]["build"] = build
    # A node that dies while a copy is not there yet can take the only one with it, so writing waits for the copies.
    health = cluster.call("number of nodes", lambda es: es.cluster.health(filter_path="number_of_data_nodes"))
    copies = min(1 + shards.replicas, health["number_of_data_nodes"])

    def create(es: Any) -> None:
        es.indices.create(
            index=physical,
            settings=index_settings(layout, shards),
            mappings=mapping,
            aliases={write_alias(physical): {"is_hidden": True}, build_alias(name): {"is_hidden": True}},
            wait_for_active_shards=copies,
            timeout=_CREATION_WAIT,
        )

    def create_once(es: Any) -> None:
        # An attempt whose answer was lost may have made it.
        if not es.indices.exists(index=physical):
            create(es)

    cluster.call(f"creation of {physical}", create_once)
    return build


def new_build() -> str:
    """See `WrittenIndex.build`."""
    return uuid4().hex


def _finish(cluster: Cluster, physical: str, report: BulkReport) -> None:
    """Make the documents findable and count them."""
    if report.n_sent == 0:
        raise DataError("there is no document to index: every row was dropped or held out, or the input is empty")
    cluster.call(
        f"settings of {physical}",
        lambda es: es.indices.put_settings(index=physical, settings={"index.refresh_interval": None}),
    )
    refresh(cluster, physical)
    n_found = count(cluster, physical)
    if n_found < report.n_sent:
        raise DataError(
            f"{report.n_sent} documents were sent to {physical} and {n_found} are there: some ids came twice, or "
            "documents were lost; the former index stays. Give each document an id of its own"
        )
    if n_found > report.n_sent:
        raise ClusterError(
            f"{physical} holds {n_found} documents, {report.n_sent} were sent: something else writes there; the former "
            "index stays"
        )
    settle(cluster, physical)


def count(cluster: Cluster, physical: str, query: Mapping[str, Any] | None = None) -> int:
    """Documents that can be found, or those that `query` finds; every shard asked.

    Raises:
        ClusterError: a shard did not answer.
    """
    body = dump({"size": 0, "track_total_hits": True, "query": query or {"match_all": {}}})
    [answer] = search_all(cluster, physical, [body], ("hits.total.value",))  # asks again where a shard is silent
    return int(answer["hits"]["total"]["value"])


def _move_alias(
    cluster: Cluster, name: str, target: str, former: str | None, further: Sequence[dict[str, Any]] = ()
) -> None:
    """One request, one change of the cluster's state: whoever searches meets the old index or the new one."""
    actions: list[dict[str, Any]] = [{"add": {"index": target, "alias": name}}, *further]
    if former is not None:
        actions.insert(0, {"remove": {"index": former, "alias": name}})

    def move(es: Any) -> None:
        pointing = es.options(ignore_status=404).indices.get_alias(name=name).body
        if list(pointing) == [target]:
            return  # an attempt whose answer was lost
        es.indices.update_aliases(actions=actions)

    cluster.call(f"switch of {name} to {target}", move)


def delete_physical(cluster: Cluster, physical: str) -> None:
    """Delete one physical index; one that is not there is no error."""
    cluster.call(f"deletion of {physical}", lambda es: es.options(ignore_status=404).indices.delete(index=physical))


def _delete_quietly(cluster: Cluster, physical: str) -> None:
    """After a failure, whose error matters more; what stays is known by its build alias and goes next time."""
    with suppress(DmnragError):
        cluster.call(
            f"deletion of {physical}",
            lambda es: es.options(ignore_status=404).indices.delete(index=physical),
            deadline=Deadline(5.0),
        )
