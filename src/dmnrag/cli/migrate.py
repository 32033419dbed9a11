"""`dmnrag migrate`: an index from its folder into a cluster, or back."""

from typing import Annotated

import typer

from dmnrag.cli import cluster_options as co
from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, progress
from dmnrag.index import migrate_index
from dmnrag.index.generations import current_generation


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("migrate")(migrate)


def migrate(
    folder: o.IndexFolder,
    to: Annotated[str, typer.Option("--to", help=f"{' or '.join(co.BACKENDS)}.")],
    es_url: co.EsUrl = None,
    es_index: co.EsIndex = None,
    shards: co.EsShards = None,
    replicas: co.EsReplicas = None,
    es_vectors: co.EsVectors = None,
    es_oversample: co.EsOversample = None,
    es_replace: co.EsReplace = False,
    as_json: o.JsonOption = False,
) -> None:
    """Move an index without segmenting or encoding again; every row is read back and compared first."""
    current_generation(folder)  # a clear error where there is no index
    cluster = co.ClusterOptions(es_url, es_index, shards, replicas, es_vectors, es_oversample, es_replace)
    target = cluster.target(folder, to, "--to")
    with progress() as show:
        done = migrate_index(folder, target, on_progress=show)
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "generation": done.generation,
                "documents": done.n_documents,
                "backend": None if done.backend is None else done.backend.model_dump(),
            }
        )
        return
    where = (
        f"{folder}" if done.backend is None else f"Elasticsearch index {done.backend.name} ({done.backend.physical})"
    )
    typer.echo(f"{done.n_documents:,} documents moved into {where} and compared (generation {done.generation})")
