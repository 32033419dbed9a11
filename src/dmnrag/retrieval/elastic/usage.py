"""What an index takes in the cluster, and how it is spread."""

from dataclasses import dataclass

from dmnrag.retrieval.elastic.build import count
from dmnrag.retrieval.elastic.catalog import OpenedIndex, list_physical
from dmnrag.retrieval.elastic.connection import Cluster
from dmnrag.retrieval.elastic.update import shards_of


@dataclass(frozen=True, slots=True)
class ClusterUsage:
    """Of one physical index."""

    documents: int
    shards: int
    replicas: int
    bytes: int
    """Of one copy of each shard."""
    total_bytes: int
    """Of all copies that are there."""
    health: str
    """green: every copy is there; yellow: every shard answers; red: some do not."""
    alias: str | None
    """The physical index that the name points at."""
    kept: tuple[str, ...]
    """Further physical indexes of the name."""


def cluster_usage(cluster: Cluster, opened: OpenedIndex) -> ClusterUsage:
    """Ask the cluster.

    Raises:
        ClusterError: it did not answer, or the index is gone.
    """
    physical = opened.physical
    of_name = [index for index in list_physical(cluster, opened.name) if index.ours]
    stats = cluster.call(f"size of {physical}", lambda es: es.indices.stats(index=physical, metric="store"))["_all"]
    health = cluster.call(f"health of {physical}", lambda es: es.cluster.health(index=physical))["status"]
    spread = shards_of(cluster, opened)
    return ClusterUsage(
        documents=count(cluster, physical),
        shards=spread.shards,
        replicas=spread.replicas,
        bytes=int(stats["primaries"]["store"]["size_in_bytes"]),
        total_bytes=int(stats["total"]["store"]["size_in_bytes"]),
        health=str(health),
        alias=next((index.name for index in of_name if index.current), None),
        kept=tuple(index.name for index in of_name if index.name != physical),
    )
