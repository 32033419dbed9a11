"""`dmnrag train`: from an index to an index with a trained retriever."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, progress, talk
from dmnrag.cli.render import table_text
from dmnrag.index import Index
from dmnrag.training.dpr_retriever import RetrieverPlan, RetrieverReport, train_retriever
from dmnrag.training.negatives_settings import FirstLayer, TrainingSetSettings
from dmnrag.training.settings import DprSettings, Precision

_DEFAULTS = DprSettings()
_MEASURES = ("recall@3", "recall@10", "MRR@10")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train")(train)


def train(
    folder: o.IndexFolder,
    first_layer: Annotated[
        str,
        typer.Option(
            help="Ranking that gives the hard negatives: joint, plain, or none (the retriever's own, in rounds)."
        ),
    ] = "joint",
    encoder: Annotated[
        str | None,
        typer.Option(help="Start from: builtin, a sentence-transformers name or folder. Default: the index's encoder."),
    ] = None,
    from_dpr_json: Annotated[
        Path | None, typer.Option(help="Train on this DPR JSON file instead of mining a set in the index.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Train on so many questions, drawn at random.")] = None,
    rounds: Annotated[int, typer.Option(help="With --first-layer none: rounds of mining, at most.")] = 2,
    epochs: Annotated[int, typer.Option(help="Passes over the questions.")] = _DEFAULTS.epochs,
    batch_size: Annotated[int, typer.Option(help="Questions per step.")] = _DEFAULTS.batch_size,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = _DEFAULTS.learning_rate,
    negatives: Annotated[int, typer.Option(help="Mined golds of others per question and epoch.")] = _DEFAULTS.negatives,
    hard_negatives: Annotated[
        int, typer.Option(help="Hard negatives per question and epoch.")
    ] = _DEFAULTS.hard_negatives,
    query_tokens: Annotated[int, typer.Option(help="Tokens read of a question.")] = _DEFAULTS.query_tokens,
    passage_tokens: Annotated[int, typer.Option(help="Tokens read of a passage.")] = _DEFAULTS.passage_tokens,
    frozen_share: Annotated[
        float, typer.Option(help="Share of the layers, from below, that stays as it is.")
    ] = _DEFAULTS.frozen_share,
    two_encoders: Annotated[bool, typer.Option("--two-encoders", help="One for questions, one for passages.")] = False,
    gradient_cache: Annotated[
        bool, typer.Option("--gradient-cache", help="Large batches in little memory, a third slower.")
    ] = False,
    precision: Annotated[str, typer.Option(help="auto (bf16 on a GPU, else fp32), fp32 or bf16.")] = "auto",
    dev_questions: Annotated[
        int, typer.Option(help="Training questions held out to measure on; 0: none.")
    ] = _DEFAULTS.dev_questions,
    seed: Annotated[int, typer.Option(help="Seed of everything drawn.")] = 0,
    accept_worse: Annotated[
        bool, typer.Option("--accept-worse", help="Use the retriever even if it measures no better than the untrained.")
    ] = False,
    as_json: o.JsonOption = False,
) -> None:
    """Train a retriever on the index and switch over to it; the same command goes on after a kill."""
    settings = replace(
        _DEFAULTS,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        negatives=negatives,
        hard_negatives=hard_negatives,
        query_tokens=query_tokens,
        passage_tokens=passage_tokens,
        frozen_share=frozen_share,
        two_encoders=two_encoders,
        gradient_cache=gradient_cache,
        precision=cast(Precision, precision),
        dev_questions=dev_questions,
        seed=seed,
    )
    plan = RetrieverPlan(
        training_set=TrainingSetSettings(first_layer=cast(FirstLayer, first_layer), seed=seed),
        encoder=encoder,
        training=settings,
        dpr_json=from_dpr_json,
        rounds=rounds,
        limit=limit,
    )
    with Index.open(folder) as index:
        talk(f"training retriever {plan.name!r} from encoder {plan.starting_encoder(index)}")
    with progress() as show:
        report = train_retriever(
            folder, plan, accept_worse=accept_worse, on_progress=show, on_measurement=_tell_measurement
        )
    if report.generation is None:
        return  # one of several processes, not the first
    if as_json:
        print_json({"folder": str(folder), **report.to_dict()})
    else:
        _tell(folder, report)


def _tell_measurement(entry: dict[str, Any]) -> None:
    figures = [f"{name} {entry[name]:.3f}" for name in ("loss", *_MEASURES) if name in entry]
    talk(f"step {entry['step']}, epoch {entry['epoch']}: {', '.join(figures) or 'nothing to measure'}")


def _tell(folder: Path, report: RetrieverReport) -> None:
    result = report.result
    for warning in result.warnings:
        talk(f"warning: {warning}")
    rows = [
        (name, *(f"{scores.to_dict()[measure]:.3f}" for measure in _MEASURES))
        for name, scores in (("BM25", result.bm25), ("untrained", result.untrained), ("trained", result.scores))
        if scores is not None
    ]
    if rows:
        typer.echo(table_text((f"dev, n = {result.n_dev}", *_MEASURES), rows))
    for row in report.rounds:
        dev = ", ".join(f"{name} {value:.3f}" for name, value in (row["dev"] or {}).items())
        typer.echo(f"round {row['round']}: {dev}{' (kept)' if row['kept'] else ''}")
    seconds = ", ".join(f"{name} {value:,.0f} s" for name, value in report.seconds.items())
    talk(f"{result.n_questions:,} questions, {result.n_steps:,} steps; {seconds}")
    typer.echo(f"retriever {report.name!r} in {folder} (generation {report.generation})")
