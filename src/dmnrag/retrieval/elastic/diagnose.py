"""What `dmnrag doctor --es-url` says of a cluster: each finding with what to do about it.

Nothing is changed on the server. A check that the server does not offer is passed over with its reason.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dmnrag.errors import DmnragError
from dmnrag.retrieval.elastic.catalog import list_physical, open_index
from dmnrag.retrieval.elastic.connection import Cluster, connect
from dmnrag.retrieval.elastic.settings import ConnectionSettings

CLUSTER_RIGHTS = ("monitor",)
INDEX_RIGHTS = ("read", "write", "create_index", "delete_index", "manage", "monitor", "view_index_metadata")
"""`manage` covers aliases, refresh and merging."""

_WORST_DISK_PERCENT = 85
"""The server's low watermark: beyond it a node gets no new shards."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    name: str
    ok: bool | None
    """None where it could not be looked at, or is neither good nor bad."""
    text: str
    cure: str = ""


def diagnose(settings: ConnectionSettings, name: str | None = None) -> list[Finding]:
    """Look at the cluster, and at the index `name` where one is given. Never raises for what it finds."""
    try:
        cluster = connect(settings)
    except DmnragError as error:
        return [Finding("reachable", False, str(error))]
    with cluster:
        findings = [
            Finding("reachable", True, f"{', '.join(settings.urls)} answers"),
            _encryption(settings),
            Finding("version", True, f"server {_dotted(cluster)}, the installed client fits"),
        ]
        for check in (_health, _disk, _rights, _index):
            try:
                findings.extend(check(cluster, name))
            except DmnragError as error:
                findings.append(Finding(check.__name__.strip("_"), False, str(error)))
    return findings


def _dotted(cluster: Cluster) -> str:
    return ".".join(map(str, cluster.version))


def _encryption(settings: ConnectionSettings) -> Finding:
    if not settings.encrypted:
        secret = settings.api_key is not None or settings.password is not None
        cure = "use https:// before anything but this machine is between" if secret else ""
        return Finding("tls", False if secret else None, "the connection is not encrypted", cure)
    if not settings.verify_tls:
        return Finding("tls", False, "the server's certificate is not verified", "give its ca_cert or fingerprint")
    return Finding("tls", True, "encrypted, the server's certificate is verified")


def _health(cluster: Cluster, name: str | None) -> Iterator[Finding]:
    health = cluster.call("health", lambda es: es.cluster.health()).body
    nodes = f"{health['number_of_data_nodes']} data nodes"
    texts = {
        "green": ("every shard has all its copies", ""),
        "yellow": (
            "every shard answers, some copies are missing",
            "start the missing node, or build with fewer replicas (one node can hold none)",
        ),
        "red": (
            "some shards have no active copy: their documents cannot be found",
            "start the node that holds them, or restore their index from a snapshot",
        ),
    }
    text, cure = texts[health["status"]]
    yield Finding("health", health["status"] != "red", f"{health['status']}, {nodes}: {text}", cure)


def _disk(cluster: Cluster, name: str | None) -> Iterator[Finding]:
    stats = cluster.call("disks", lambda es: es.nodes.stats(metric="fs", filter_path="nodes.*.name,nodes.*.fs.total"))
    for node in stats.body.get("nodes", {}).values():
        total = node.get("fs", {}).get("total", {})
        if not total.get("total_in_bytes"):
            continue
        used = 100 - 100 * total["available_in_bytes"] / total["total_in_bytes"]
        free_gb = total["available_in_bytes"] / 1e9
        full = used >= _WORST_DISK_PERCENT
        yield Finding(
            "disk",
            not full,
            f"node {node['name']}: {used:.0f} % used, {free_gb:.0f} GB free",
            "beyond its watermarks (85, 90, 95 % unless set) a node gets no shards, loses them, and its indexes become "
            "read-only: free space or add a node"
            if full
            else "",
        )


def _rights(cluster: Cluster, name: str | None) -> Iterator[Finding]:
    if cluster.settings.api_key is None and cluster.settings.user is None:
        yield Finding("rights", None, "no user or key was given: the server lets everyone do everything, or refuses")
        return
    pattern = f"{name}*" if name else "*"
    answer = cluster.call(
        "rights",
        lambda es: es.options(ignore_status=(400, 404, 405)).security.has_privileges(
            cluster=list(CLUSTER_RIGHTS), index=[{"names": [pattern], "privileges": list(INDEX_RIGHTS)}]
        ),
    ).body
    if not isinstance(answer, Mapping) or "has_all_requested" not in answer:
        yield Finding("rights", None, "the server has no security, so the user or key is not looked at")
        return
    missing = _missing(answer)
    yield Finding(
        "rights",
        not missing,
        f"lacks {', '.join(missing)}" if missing else f"all that is needed on {pattern}",
        f"grant them to the user or key on {pattern}" if missing else "",
    )


def _missing(answer: Mapping[str, Any]) -> list[str]:
    lacking = [f"{right} (cluster)" for right, given in answer.get("cluster", {}).items() if not given]
    for rights in answer.get("index", {}).values():
        lacking += [right for right, given in rights.items() if not given]
    return lacking


def _index(cluster: Cluster, name: str | None) -> Iterator[Finding]:
    if name is None:
        return
    physical = [index for index in list_physical(cluster, name) if index.ours]
    opened = open_index(cluster, name)
    health = cluster.call(
        "health", lambda es: es.options(ignore_status=408).cluster.health(index=opened.physical)
    ).body["status"]
    yield Finding("index", health != "red", f"{name} is {opened.physical}, format {opened.meta['format']}, {health}")
    settings = cluster.call(
        "settings", lambda es: es.indices.get_settings(index=opened.physical, name="index.blocks.*", flat_settings=True)
    ).body
    blocks = settings.get(opened.physical, {}).get("settings", {})
    active = [block.removeprefix("index.blocks.") for block, value in blocks.items() if value in ("true", True)]
    if "write" in active:  # not by a full disk; `copy_index` sets it and takes it away
        active.remove("write")
        yield Finding(
            "blocks", None, f"{opened.physical} is closed for writing while it is copied, or was then stopped"
        )
    if active:
        yield Finding(
            "blocks",
            False,
            f"{opened.physical} is blocked: {', '.join(active)}",
            "free space on the cluster's disks; the block goes by itself, or is lifted in the index's settings",
        )
    unfinished = [index.name for index in physical if index.unfinished]
    kept = [index.name for index in physical if not index.unfinished and not index.current]
    if unfinished:
        yield Finding("unfinished", None, f"{', '.join(unfinished)} is being built, or was left by a killed build")
    if kept:
        yield Finding("kept", None, f"{', '.join(kept)} kept for a rollback", "prune it when it is not needed")
