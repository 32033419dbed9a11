"""Options that say where in a cluster an index goes; how to be let in, the environment or a file says."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dmnrag.errors import ConfigError
from dmnrag.index import ClusterTarget
from dmnrag.index.generations import current_backend
from dmnrag.index.manifest import ClusterPart
from dmnrag.retrieval.elastic import ConnectionSettings, ShardSettings, check_name

BACKENDS = ("embedded", "elasticsearch")

EsUrl = Annotated[
    str | None,
    typer.Option(
        "--es-url",
        help="Elasticsearch nodes, https://HOST:9200, several with commas. Default: DMNRAG_ES_URLS, else the index's. "
        "User, password, API key and certificate: DMNRAG_ES_... or the file DMNRAG_ES_CONFIG (docs/elasticsearch.md).",
        show_default=False,
    ),
]
EsIndex = Annotated[
    str | None,
    typer.Option("--es-index", help="Name in the cluster. Default: the index's, else DIR's.", show_default=False),
]
EsShards = Annotated[
    int | None, typer.Option("--shards", help="Parts of it in the cluster. Default: 1.", show_default=False)
]
EsReplicas = Annotated[
    int | None, typer.Option("--replicas", help="Further copies of each part. Default: 1.", show_default=False)
]
EsVectors = Annotated[
    str | None,
    typer.Option(
        "--es-vectors",
        help="How the cluster searches vectors: int8_hnsw, hnsw, bbq_hnsw or flat. Default: int8_hnsw.",
        show_default=False,
    ),
]
EsOversample = Annotated[
    float | None,
    typer.Option(
        "--es-oversample",
        help="Times as many candidates are compared at full precision. Default: 3.",
        show_default=False,
    ),
]
EsReplace = Annotated[
    bool,
    typer.Option("--es-replace", help="Take a name under which another folder's index answers; that one is deleted."),
]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """As they were given; None where they were not."""

    url: str | None
    index: str | None
    shards: int | None
    replicas: int | None
    vectors: str | None
    oversample: float | None
    replace: bool

    def target(self, folder: Path, backend: str | None, option: str) -> ClusterTarget | None:
        """Where the index of `folder` goes; None keeps it in the folder.

        Args:
            folder: of the index; what is not given is as it is there.
            backend: as given by the option called `option`; None stands for where the index is already.

        Raises:
            ConfigError: an unknown backend, an option of the other one, or no server named.
        """
        former = current_backend(folder)
        chosen = backend or ("embedded" if former is None else "elasticsearch")
        if chosen not in BACKENDS:
            raise ConfigError(f"{option} {chosen!r}: allowed are {', '.join(BACKENDS)}")
        if chosen == "embedded":
            self._refuse_any(option)
            return None
        self._refuse_two_clusters()
        return ClusterTarget(
            ConnectionSettings.load({"urls": self.url}, defaults={"urls": former.urls} if former else {}),
            self.index or (former.name if former else _name_of(folder)),
            **self._layout(former),
            replace=self.replace,
        )

    def _refuse_two_clusters(self) -> None:
        """Later commands take the environment's URLs, which win over the manifest's."""
        if self.url is None:
            return
        read = ConnectionSettings.load(defaults={"urls": self.url}).urls
        if read != ConnectionSettings.load({"urls": self.url}).urls:
            raise ConfigError(
                f"--es-url is {self.url}, and later commands would look in {', '.join(read)}, which the environment or "
                "its file names: give the same URLs in both places, or in one alone"
            )

    def _layout(self, former: ClusterPart | None) -> dict[str, Any]:
        """How it is kept: as given, else as it is, else as `ClusterTarget` has it."""
        given = {
            "shards": self.shards,
            "replicas": self.replicas,
            "vector_kind": self.vectors,
            "oversample": self.oversample,
        }
        kept = {} if former is None else {name: getattr(former, name) for name in given}
        values = kept | {name: value for name, value in given.items() if value is not None}
        spread = {name: values.pop(name) for name in ("shards", "replicas") if name in values}
        return values | {"shards": ShardSettings(**spread)}

    def _refuse_any(self, option: str) -> None:
        given = {
            "--es-url": self.url,
            "--es-index": self.index,
            "--shards": self.shards,
            "--replicas": self.replicas,
            "--es-vectors": self.vectors,
            "--es-oversample": self.oversample,
            "--es-replace": self.replace or None,
        }
        named = [name for name, value in given.items() if value is not None]
        if named:
            raise ConfigError(f"{named[0]} is for an index in a cluster: add {option} elasticsearch, or leave it out")


def _name_of(folder: Path) -> str:
    try:
        return check_name(folder.resolve().name.lower())
    except ConfigError as error:
        raise ConfigError(f"{error}; name the index in the cluster with --es-index") from error
