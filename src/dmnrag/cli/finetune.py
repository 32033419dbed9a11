"""`dmnrag finetune`: a LoRA adapter on a local LLM, trained on the index's own questions and answers."""

import re
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, progress, talk
from dmnrag.cli.render import table_text
from dmnrag.cli.search import open_pipeline, retrieval_settings
from dmnrag.errors import ConfigError
from dmnrag.index.models import MODELS
from dmnrag.llm.merging import check_merge_target, merge_adapter
from dmnrag.methods import BASELINE, DEFAULT, Method, find_method
from dmnrag.prompts import load_template
from dmnrag.training.lora_finetune import FinetunePlan, FinetuneReport, finetune
from dmnrag.training.lora_settings import LoraSettings
from dmnrag.training.settings import Precision

_DEFAULTS = LoraSettings()
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("finetune")(finetune_command)


def finetune_command(
    folder: o.IndexFolder,
    llm: Annotated[str, typer.Option("--llm", help="Base model: builtin, a transformers name or folder.")],
    method: o.MethodOption = None,
    template: o.TemplateOption = None,
    layer: o.LayerOption = "",
    k: o.K = 3,
    candidates: o.Candidates = 100,
    domain_filter: o.DomainFilter = False,
    domain_weight: o.DomainWeight = 1.0,
    retriever: o.RetrieverOption = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="The adapter becomes DIR/models/lora-NAME. Default: the LLM and the method.", show_default=False
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the adapter instead.", show_default=False)] = None,
    merge: Annotated[
        Path | None,
        typer.Option(help="Also write the LLM with the adapter in its weights to this folder.", show_default=False),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Train on so many questions, drawn at random.")] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the questions.")] = _DEFAULTS.epochs,
    batch_size: Annotated[int, typer.Option(help="Questions through the model together.")] = _DEFAULTS.batch_size,
    gradient_accumulation: Annotated[int, typer.Option(help="Batches per step.")] = _DEFAULTS.gradient_accumulation,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = _DEFAULTS.learning_rate,
    rank: Annotated[int, typer.Option(help="Of the update of each layer.")] = _DEFAULTS.rank,
    alpha: Annotated[float, typer.Option(help="The update counts alpha / rank.")] = _DEFAULTS.alpha,
    dropout: Annotated[float, typer.Option(help="On the way into the update.")] = _DEFAULTS.dropout,
    target_modules: Annotated[
        str | None,
        typer.Option(help="Layers by their last names: q_proj,v_proj. Default: all linear ones.", show_default=False),
    ] = None,
    max_length: Annotated[int, typer.Option(help="Tokens of prompt and answer.")] = _DEFAULTS.max_length,
    max_tokens: Annotated[int, typer.Option(help="Of these, kept for the answer.")] = _DEFAULTS.answer_tokens,
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Less memory, a third slower.")
    ] = False,
    precision: Annotated[str, typer.Option(help="auto (bf16 on a GPU, else fp32), fp32 or bf16.")] = "auto",
    four_bit: Annotated[
        bool, typer.Option("--four-bit", help="Base model in 4 bits (QLoRA); CUDA and bitsandbytes.")
    ] = False,
    dev_questions: Annotated[
        int, typer.Option(help="Training questions held out to measure on; 0: none.")
    ] = _DEFAULTS.dev_questions,
    evaluate_steps: Annotated[
        int, typer.Option(help="Measure every so many steps; 0: three times an epoch.")
    ] = _DEFAULTS.evaluate_steps,
    patience: Annotated[
        int, typer.Option(help="Stop after so many measurements without gain; 0: never.")
    ] = _DEFAULTS.patience,
    checkpoint_steps: Annotated[
        int, typer.Option(help="A killed run loses at most so many steps.")
    ] = _DEFAULTS.checkpoint_steps,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:1.", show_default=False)] = None,
    seed: o.Seed = 0,
    as_json: o.JsonOption = False,
) -> None:
    """Train a LoRA adapter of an LLM on the index's questions; the same command goes on after a kill."""
    settings = LoraSettings(
        rank=rank,
        alpha=alpha,
        dropout=dropout,
        target_modules=o.split_columns(target_modules),
        epochs=epochs,
        batch_size=batch_size,
        gradient_accumulation=gradient_accumulation,
        learning_rate=learning_rate,
        max_length=max_length,
        answer_tokens=max_tokens,
        gradient_checkpointing=gradient_checkpointing,
        precision=cast(Precision, precision),
        four_bit=four_bit,
        dev_questions=dev_questions,
        evaluate_steps=evaluate_steps,
        patience=patience,
        checkpoint_steps=checkpoint_steps,
        seed=seed or 0,
    )
    if merge is not None:
        check_merge_target(merge)
    searcher = open_pipeline(folder, None)
    chosen = find_method(method) if method is not None else DEFAULT if searcher.index.domains else BASELINE
    target = _target(folder, llm, chosen, name, out)
    plan = FinetunePlan(
        llm=llm,
        method=chosen,
        template=None if template is None else load_template(template),
        retrieval=retrieval_settings(searcher, layer, k, candidates, domain_filter, domain_weight, retriever, False),
        domain_weight=domain_weight,
        training=settings,
        limit=limit,
        device=device,
    )
    searcher.index.close()
    with progress() as show:
        report = finetune(folder, plan, target, on_progress=show, on_measurement=_tell_measurement)
    if merge is not None:
        merge_adapter(llm, report.folder, merge, device=device)
    if as_json:
        print_json({"folder": str(folder), **report.to_dict(), "merged": None if merge is None else str(merge)})
    else:
        _tell(folder, llm, report, merge)


def _target(folder: Path, llm: str, method: Method, name: str | None, out: Path | None) -> Path:
    if out is not None:
        if name is not None:
            raise ConfigError("--name and --out both say where the adapter goes: leave one out")
        return out
    chosen = name or f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', Path(llm).name)}-{method.name}"
    if not _NAME.fullmatch(chosen):
        raise ConfigError(
            f"--name {chosen!r}: allowed are up to 64 letters, digits, -, _ and dots, not at the beginning"
        )
    return folder / MODELS / f"lora-{chosen}"


def _tell_measurement(entry: dict[str, Any]) -> None:
    names = {"loss": "loss", "dev_loss": "dev loss", "dev_loss_shuffled": "with documents of others"}
    figures = [f"{text} {entry[name]:.3f}" for name, text in names.items() if name in entry]
    talk(f"step {entry['step']}, epoch {entry['epoch']}: {', '.join(figures) or 'nothing to measure'}")


def _tell(folder: Path, llm: str, report: FinetuneReport, merge: Path | None) -> None:
    result, losses = report.result, report.result.losses
    for warning in result.warnings:
        talk(f"warning: {warning}")
    rows = [
        (name, *("" if value is None else f"{value:.3f}" for value in values))
        for name, values in (
            ("base model", (losses.untrained, losses.untrained_shuffled)),
            ("adapter", (losses.best, losses.best_shuffled)),
        )
        if values[0] is not None
    ]
    if rows:
        typer.echo(table_text((f"dev loss, n = {result.n_dev}", "own documents", "documents of others"), rows))
    talk(
        f"{result.n_questions:,} questions, {result.n_steps:,} steps, {result.seconds:,.0f} s; "
        f"{result.trained_weights:,} weights in {', '.join(result.target_modules)}"
    )
    typer.echo(
        f"adapter in {report.folder}. Use it: dmnrag ask {folder} QUESTION --llm {llm} --adapter {report.folder}"
    )
    if merge is not None:
        typer.echo(f"merged model in {merge}; name its template: --template {report.record.template.name}")
