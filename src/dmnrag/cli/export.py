"""`dmnrag export`: an index in the files of other tools."""

import os
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from dmnrag._io import write_json_atomic
from dmnrag.cli import options as o
from dmnrag.cli.console import progress, talk
from dmnrag.cli.search import open_pipeline
from dmnrag.data.exchange import gold_qrels, write_beir, write_dpr_json, write_qrels, write_run
from dmnrag.errors import ConfigError
from dmnrag.index import Index
from dmnrag.index.build import UNTRAINED
from dmnrag.index.generations import is_index
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.training.negatives_settings import FirstLayer, TrainingSetSettings
from dmnrag.training.training_set import build_training_set
from dmnrag.types import PLAIN, DomainUse, Layer

FORMATS = ("beir", "trec", "dpr-json")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)


def export(
    folder: o.IndexFolder,
    to: Annotated[str, typer.Option("--to", help=f"{', '.join(FORMATS)}.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write; files of the same names are replaced.")],
    layer: Annotated[
        str, typer.Option(help="With trec: also a run of this layer on the held-out questions.", show_default=False)
    ] = "",
    k: Annotated[int, typer.Option("-k", help="With --layer: documents in the run for each question.")] = 100,
    first_layer: Annotated[
        str,
        typer.Option(help="With dpr-json: ranking that gives the hard negatives: joint (default), plain or none."),
    ] = "",
) -> None:
    """Write a BEIR folder, judgements and a run for TREC tools, or the retriever's training set as DPR JSON."""
    if to not in FORMATS:
        raise ConfigError(f"--to {to!r}: allowed are {', '.join(FORMATS)}")
    wanted = o.parse_layer(layer)
    if to != "trec" and wanted is not None:
        raise ConfigError(f"--layer is for --to trec: {to} holds no run")
    if first_layer and to != "dpr-json":
        raise ConfigError(f"--first-layer is for --to dpr-json: {to} holds no training set")
    if first_layer not in ("", *get_args(FirstLayer)):
        raise ConfigError(f"--first-layer {first_layer!r}: allowed are {', '.join(get_args(FirstLayer))}")
    if is_index(out):
        raise ConfigError(f"--out {out} is an index: name another folder for the export")
    with open_pipeline(folder, None).index as index:
        if to == "beir":
            _export_beir(index, out)
        elif to == "trec":
            _export_trec(Pipeline(index), out, wanted, k)
        else:
            _export_training_set(Pipeline(index), out, cast(FirstLayer, first_layer or "joint"))


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


def _export_training_set(pipeline: Pipeline, out: Path, first_layer: FirstLayer) -> None:
    """What `dmnrag train` would learn from, with its data card."""
    index = pipeline.index
    with progress() as show:
        made = build_training_set(
            index,
            list(index.all_documents()),
            TrainingSetSettings(first_layer=first_layer),
            encoder=pipeline.encoder_of() if UNTRAINED in index.manifest.retrievers else None,
            workers=os.cpu_count() or 1,
            on_progress=show,
        )
    out.mkdir(parents=True, exist_ok=True)
    path = out / "training-set.jsonl"
    write_dpr_json(path, made.instances)
    write_json_atomic(out / "card.json", made.card)
    typer.echo(f"{len(made.instances):,} training questions in {path}, their data card in {out / 'card.json'}")
    if UNTRAINED not in index.manifest.retrievers:
        talk("the index has no encoder, so nothing guards against right answers in other words")


def _without_gold(index: Index, n_judged: int) -> str:
    n = len(index.examples) - n_judged
    return (
        f"{n:,} of {len(index.examples):,} held-out questions name no document of the index as right "
        "(their answers were held out with them; `dmnrag evaluate` scores these on an answer pool)"
    )
