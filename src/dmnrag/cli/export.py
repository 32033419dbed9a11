"""`dmnrag export`: an index in the files of other tools."""

from pathlib import Path
from typing import Annotated

import typer

from dmnrag.cli import options as o
from dmnrag.cli.console import talk
from dmnrag.cli.search import open_pipeline
from dmnrag.data.exchange import gold_qrels, write_beir, write_qrels, write_run
from dmnrag.errors import ConfigError
from dmnrag.index import Index
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.types import PLAIN, DomainUse, Layer

FORMATS = ("beir", "trec")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)


def export(
    folder: o.IndexFolder,
    to: Annotated[str, typer.Option("--to", help=f"{' or '.join(FORMATS)}.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write; files of the same names are replaced.")],
    layer: Annotated[
        str, typer.Option(help="With trec: also a run of this layer on the held-out questions.", show_default=False)
    ] = "",
    k: Annotated[int, typer.Option("-k", help="With --layer: documents in the run for each question.")] = 100,
) -> None:
    """Write documents and held-out questions as a BEIR folder, or judgements and a run for TREC tools."""
    if to not in FORMATS:
        raise ConfigError(f"--to {to!r}: allowed are {', '.join(FORMATS)}")
    wanted = o.parse_layer(layer)
    if to == "beir" and wanted is not None:
        raise ConfigError("--layer is for --to trec: a BEIR folder holds no run")
    with open_pipeline(folder, None).index as index:
        if to == "beir":
            _export_beir(index, out)
        else:
            _export_trec(Pipeline(index), out, wanted, k)


def _export_beir(index: Index, out: Path) -> None:
    qrels = gold_qrels(index.examples)
    queries = [example.query for example in index.examples if example.query.query_id in qrels]
    write_beir(out, index.all_documents(), queries, qrels)
    typer.echo(f"{index.n_documents:,} documents and {len(queries):,} judged questions in {out}")
    if len(queries) < len(index.examples):
        talk(_without_gold(index, len(queries)))


def _export_trec(pipeline: Pipeline, out: Path, layer: Layer | None, k: int) -> None:
    index = pipeline.index
    qrels = gold_qrels(index.examples)
    if not qrels and layer is None:
        raise ConfigError(f"there is nothing to write: {_without_gold(index, 0)}; --layer writes a run all the same")
    if not index.examples:
        raise ConfigError(f"{index.folder} has no held-out questions to rank documents for")
    # Ranked before anything is written: a layer that the index lacks leaves no half of an export.
    rankings = None
    if layer is not None:
        use = DomainUse() if index.domains else PLAIN
        found = pipeline.search([e.query for e in index.examples], RetrievalSettings(k=k, layer=layer, use=use))
        rankings = {e.query.query_id: hits for e, hits in zip(index.examples, found, strict=True)}
    out.mkdir(parents=True, exist_ok=True)
    if qrels:
        write_qrels(out / "qrels.txt", qrels)
        typer.echo(f"judgements of {len(qrels):,} questions in {out / 'qrels.txt'}")
    if len(qrels) < len(index.examples):
        talk(_without_gold(index, len(qrels)))
    if rankings is not None and layer is not None:
        path = out / f"run.{layer}.trec"
        write_run(path, rankings, layer)
        typer.echo(f"a run of {len(rankings):,} questions in {path}")


def _without_gold(index: Index, n_judged: int) -> str:
    n = len(index.examples) - n_judged
    return f"{n:,} of {len(index.examples):,} held-out questions name no document of the index as right"
