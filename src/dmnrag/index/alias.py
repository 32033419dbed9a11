"""Keeps a cluster in step with the index folder whose documents it holds. The caller holds the writer's lock.

A change writes a new physical index, names it in a new generation, points `CURRENT` at that, and only then moves
the alias. So the folder is never behind the alias, and where a run was stopped between the two, the next one moves
the alias after it. Physical indexes go when no generation names them any more. What is whole but not named by
this folder, under a name whose alias points elsewhere, is another folder's and left alone.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from dmnrag.errors import ClusterError, ClusterIndexError, DmnragError
from dmnrag.index.cluster import connection_of
from dmnrag.index.manifest import ClusterPart, Manifest
from dmnrag.retrieval.elastic import (
    Cluster,
    PhysicalIndex,
    connect,
    delete_physical,
    list_physical,
    switch_alias,
)

_logger = logging.getLogger(__name__)

Named = set[tuple[str, str]]
"""(physical index, build)."""


def named_parts(generations: Iterable[Path]) -> list[ClusterPart]:
    """What the given generation folders name in clusters; one without a readable manifest names nothing."""
    parts = []
    for generation in generations:
        with suppress(DmnragError, OSError):
            parts.append(Manifest.load(generation).backend)
    return [part for part in parts if part is not None]


def claim(
    cluster: Cluster, name: str, current: ClusterPart | None, generations: Iterable[Path], *, replace: bool = False
) -> int:
    """Before a change: finish or clean up what a run that was stopped left, and refuse a name of another folder.

    Args:
        cluster: where the change goes.
        name: the alias.
        current: what the folder's current generation names; None where it names nothing.
        generations: all generation folders of the index.
        replace: take over a name under which another folder's index answers.

    Returns:
        The highest number of a physical index that was there.

    Raises:
        ClusterIndexError: another folder's index, or something else, answers under the name.
    """
    named = _named(generations)
    of_name = _ours(cluster, name)
    _refuse_other_folder(cluster, name, of_name, named, replace=replace)
    wanted = next((i for i in of_name if current and (i.name, i.build) == (current.physical, current.build)), None)
    if wanted is not None and not wanted.current:
        switch_alias(cluster, name, wanted.name)
        _logger.warning(
            "%s now points at %s, which the index folder uses: a run was stopped before it could say so",
            name,
            wanted.name,
        )
    _tidy(cluster, name, named)
    return max((index.number for index in of_name), default=0)


def publish(
    cluster: Cluster, folder: Path, part: ClusterPart, generations: Iterable[Path], *, replace: bool = False
) -> None:
    """After a change: let the alias point at what the current generation names, and delete what none names.

    Raises:
        ClusterError: it could not be done; the folder is in use all the same.
    """
    named = _named(generations)
    try:
        _refuse_other_folder(cluster, part.name, _ours(cluster, part.name), named, replace=replace)
        switch_alias(cluster, part.name, part.physical)
        _tidy(cluster, part.name, named)
    except ClusterError as error:
        raise type(error)(
            f"{error}. {folder} has the change and searches {part.physical}; the alias {part.name} follows with the "
            "next change"
        ) from error


def release(generation: Path, others: Iterable[Path]) -> None:
    """Delete the physical index that a generation names, unless another one names it too.

    Raises:
        DmnragError: the cluster could not be asked; try again later.
    """
    parts = named_parts([generation])
    if not parts or (parts[0].physical, parts[0].build) in _named(others):
        return
    with connect(connection_of(parts[0])) as cluster:
        for index in _ours(cluster, parts[0].name):
            if (index.name, index.build) == (parts[0].physical, parts[0].build):
                _delete(cluster, index)


def _named(generations: Iterable[Path]) -> Named:
    return {(part.physical, part.build) for part in named_parts(generations)}


def _ours(cluster: Cluster, name: str) -> list[PhysicalIndex]:
    return [index for index in list_physical(cluster, name) if index.ours]


def _refuse_other_folder(
    cluster: Cluster, name: str, of_name: list[PhysicalIndex], named: Named, *, replace: bool
) -> None:
    foreign = [index.name for index in of_name if index.current and (index.name, index.build) not in named]
    if foreign and not replace:
        raise ClusterIndexError(
            f"{cluster.where}: under {name!r} answers {foreign[0]}, built by another index folder or a newer copy of "
            "this one; name another index (--es-index), change it from there, or put this one in its place (dmnrag "
            "index ... --es-replace)"
        )


def _tidy(cluster: Cluster, name: str, named: Named) -> None:
    """Delete what no generation names: unfinished builds, and former indexes where the name is this folder's."""
    of_name = _ours(cluster, name)
    is_own = any(index.current and (index.name, index.build) in named for index in of_name)
    for index in of_name:
        if index.current or (index.name, index.build) in named or not (index.unfinished or is_own):
            continue
        _delete(cluster, index)


def _delete(cluster: Cluster, index: PhysicalIndex) -> None:
    delete_physical(cluster, index.name)
    if index.unfinished:
        _logger.warning("%s was left by a run that was stopped before it was in use; it is deleted", index.name)
