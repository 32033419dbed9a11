"""Which physical indexes a name has, and which one answers under it.

A build goes into `NAME-000001`, `NAME-000002`, ... and the alias NAME points at the one that answers. While
one is built the alias `NAME-build` points at it, so an unfinished one is known by that. Writers go through
the index's own alias `NAME-000001-w`: where the index is deleted, the server refuses the write instead of
making an index of its own invention. Readers keep the physical index that they opened.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dmnrag.errors import ClusterIndexError, ConfigError
from dmnrag.retrieval.elastic.connection import Cluster
from dmnrag.retrieval.elastic.layout import FORMAT, META, IndexLayout, VectorLayout, describe, differences, field_names
from dmnrag.retrieval.sparse.settings import Bm25Settings

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,199}")
"""What the server takes as a name, with room for the number behind it."""


def check_name(name: str) -> str:
    """The name, where the server takes it.

    Raises:
        ConfigError: it does not.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"an Elasticsearch index cannot be called {name!r}: allowed are small letters, digits, - _ and ., a letter "
            "or digit first, at most 200"
        )
    return name


def physical_name(name: str, number: int) -> str:
    """`NAME-000001`."""
    return f"{name}-{number:06d}"


def write_alias(physical: str) -> str:
    """Where documents of this one physical index are written to."""
    return f"{physical}-w"


def build_alias(name: str) -> str:
    """Points at the index that is being built."""
    return f"{name}-build"


@dataclass(frozen=True, slots=True)
class PhysicalIndex:
    """One physical index of a name."""

    name: str
    number: int
    current: bool
    """It answers under the alias."""
    unfinished: bool
    """Its build has not ended, or was killed."""
    ours: bool
    """It was made by this package for this name."""
    build: str = ""
    """What no other build has; empty where it is not known."""


@dataclass(frozen=True, slots=True)
class OpenedIndex:
    """A physical index that answers under a name, and what its description says."""

    name: str
    physical: str
    meta: Mapping[str, Any]
    """See `layout.describe`."""

    @property
    def retrievers(self) -> dict[str, VectorLayout]:
        """The second layers it has, by name."""
        return {name: VectorLayout.from_dict(entry) for name, entry in self.meta["retrievers"].items()}

    @property
    def layout(self) -> IndexLayout:
        """What it was built with; word lists are known by their hash alone."""
        return IndexLayout(
            segmenter=self.meta["segmenter"],
            bm25=Bm25Settings(**self.meta["bm25"]),
            indexed_text=self.meta["indexed_text"],
            retrievers=self.retrievers,
        )

    def field(self, retriever: str) -> str:
        """The vector field of a retriever.

        Raises:
            ConfigError: the index has no such retriever.
        """
        if retriever not in self.meta["retrievers"]:
            known = ", ".join(self.meta["retrievers"]) or "none"
            raise ConfigError(f"the index {self.name!r} has no retriever {retriever!r} (it has: {known})")
        return str(self.meta["retrievers"][retriever]["field"])


def list_physical(cluster: Cluster, name: str) -> list[PhysicalIndex]:
    """The physical indexes of a name by number, those that only look alike included.

    Raises:
        ClusterIndexError: something else stands under the name itself.
    """
    check_name(name)
    answer = cluster.call(
        f"list of the indexes of {name}",
        lambda es: es.indices.get(
            index=f"{name}-*",
            features=["aliases", "mappings"],
            expand_wildcards="all",
            filter_path="*.aliases,*.mappings._meta",
        ),
    )
    form = re.compile(re.escape(name) + r"-(\d{6,})")
    found = []
    for physical, content in answer.body.items():
        if match := form.fullmatch(physical):
            aliases = content.get("aliases", {})
            meta = content.get("mappings", {}).get("_meta", {}).get(META, {})
            ours = isinstance(meta, Mapping) and meta.get("name") == name
            build = str(meta.get("build", "")) if ours else ""
            pointed, unfinished = name in aliases, build_alias(name) in aliases
            found.append(PhysicalIndex(physical, int(match[1]), pointed, unfinished, ours, build))
    _refuse_foreign(cluster, name, {index.name for index in found if index.ours})
    return sorted(found, key=lambda index: index.number)


def _refuse_foreign(cluster: Cluster, name: str, ours: set[str]) -> None:
    answer = cluster.call(f"look at {name}", lambda es: es.options(ignore_status=404).indices.get_alias(index=name))
    foreign = set() if "error" in answer.body else answer.body.keys() - ours
    if foreign:
        raise ClusterIndexError(
            f"{cluster.where}: what stands under {name!r} ({', '.join(sorted(foreign))}) was made by something else "
            "and is left alone; name another index"
        )


def open_index(cluster: Cluster, name: str, expected: IndexLayout | None = None) -> OpenedIndex:
    """The index that answers under `name` at this moment.

    Args:
        cluster: where it is.
        name: the alias.
        expected: what the caller searches with; None takes the index as it is.

    Raises:
        ClusterIndexError: there is none, or it was made by something else.
        ConfigError: it was built with other settings, each of which is named, or by a newer release.
    """
    answer = _read_meta(cluster, check_name(name))
    if answer is None:
        raise ClusterIndexError(
            f"{cluster.where} has no index {name!r}; build it first (dmnrag index --backend elasticsearch), or look "
            "whether its alias was deleted"
        )
    if len(answer) > 1:
        raise ClusterIndexError(
            f"{cluster.where}: {name!r} points at several indexes ({', '.join(sorted(answer))}); leave it one of them"
        )
    return _opened(cluster, name, answer, expected)


def open_physical(
    cluster: Cluster, name: str, physical: str, expected: IndexLayout | None = None, *, build: str | None = None
) -> OpenedIndex:
    """One physical index of `name`, whatever the alias points at.

    Args:
        cluster: where it is.
        name: the alias that it was built for.
        physical: its own name.
        expected: what the caller searches with; None takes the index as it is.
        build: what identifies it; None takes any.

    Raises:
        ClusterIndexError: it is not there, was made by something else, or is of another build.
        ConfigError: it was built with other settings, each of which is named, or by a newer release.
    """
    answer = _read_meta(cluster, physical)
    if answer is None:
        raise ClusterIndexError(
            f"{cluster.where} has no index {physical!r}: it was deleted, or this is another cluster"
        )
    opened = _opened(cluster, name, answer, expected)
    if build is not None and opened.meta.get("build") != build:
        raise ClusterIndexError(
            f"{cluster.where}: {physical!r} is of another build than the one that is looked for: it was built again "
            "by something else, or this is another cluster"
        )
    return opened


def _read_meta(cluster: Cluster, target: str) -> dict[str, Any] | None:
    """What is known of the index or alias, by physical index; None where there is none."""
    answer: dict[str, Any] = cluster.call(
        f"opening of {target}",
        lambda es: es.options(ignore_status=404).indices.get(
            index=target, features=["mappings"], filter_path="*.mappings._meta,error,status"
        ),
    ).body
    return None if "error" in answer else answer


def _opened(cluster: Cluster, name: str, answer: dict[str, Any], expected: IndexLayout | None) -> OpenedIndex:
    nothing: tuple[str, dict[str, Any]] = ("", {})
    physical, content = next(iter(answer.items()), nothing)
    meta = content.get("mappings", {}).get("_meta", {}).get(META)
    if not isinstance(meta, Mapping) or physical == name or meta.get("name") != name:
        raise ClusterIndexError(
            f"{cluster.where}: the index under {name!r} was not made by dmnrag for this name; name another one"
        )
    _check_meta(name, meta, expected)
    return OpenedIndex(name, physical, meta)


def _check_meta(name: str, meta: Mapping[str, Any], expected: IndexLayout | None) -> None:
    if not isinstance(meta.get("format"), int) or meta["format"] > FORMAT:
        raise ConfigError(
            f"the index {name!r} has format {meta.get('format')!r}; this release reads up to {FORMAT}: upgrade dmnrag"
        )
    if expected is None:
        return
    wanted = describe(expected, name, field_names(expected))[META]
    found = differences(meta, wanted)
    if found:
        raise ConfigError(
            f"the index {name!r} was built with other settings: {'; '.join(found)}. Search it with the settings it "
            "has, or build it again"
        )
