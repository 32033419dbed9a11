"""`dmnrag calibrate`: when the evidence for an answer is too weak, learnt from the index itself."""

from typing import Annotated

import typer

from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, talk
from dmnrag.cli.render import table_text
from dmnrag.cli.search import open_pipeline
from dmnrag.refusal import CalibrationSettings, Estimate, EvidenceModel, Figures, calibrate

TargetRisk = Annotated[
    float | None,
    typer.Option(
        help="Refuse so much that at most this share of the answered questions lacks evidence, .2 for example. "
        "Default: an answer lost and one unfounded are equally bad.",
        show_default=False,
    ),
]
Limit = Annotated[int, typer.Option(help="Documents whose questions are asked.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("calibrate")(calibrate_index)


def calibrate_index(
    folder: o.IndexFolder,
    layer: o.LayerOption = "",
    k: o.K = 3,
    target_risk: TargetRisk = None,
    limit: Limit = 800,
    as_json: o.JsonOption = False,
) -> None:
    """Learn when to refuse: `ask` and `serve` then say so where documents are too weak to answer from."""
    settings = CalibrationSettings(o.parse_layer(layer), k, target_risk, limit)
    pipeline = open_pipeline(folder, None)
    with pipeline.index:
        talk(f"asking up to {limit:,} documents' own questions, with and without their documents")
        model = calibrate(pipeline, settings)
    model.save(folder)
    if as_json:
        print_json({"folder": str(folder), **model.stored.model_dump()})
    else:
        typer.echo(_text(model))
        talk(f"saved in {folder}; calibrate again after larger changes of the index")


def _text(model: EvidenceModel) -> str:
    stored = model.stored
    header = ("domain", "n", "with evidence", "threshold", "AUC", "coverage", "risk", "answers kept", "refused rightly")
    rows = [_row("all", stored.figures, f"{stored.threshold:.3f}")]
    for label, figures in stored.figures_by_label.items():
        rows.append(_row(label, figures, f"{model.thresholds[label]:.3f}"))
    return (
        f"layer {stored.layer}, k {stored.k}, {stored.n_questions:,} questions, each with and without its documents; "
        f"held-out folds, 95 % intervals\n\n{table_text(header, rows)}"
    )


def _row(name: str, figures: Figures, threshold: str) -> tuple[str, ...]:
    estimates = (figures.auc, figures.coverage, figures.risk, figures.kept, figures.refused)
    return (name, f"{figures.n:,}", f"{figures.n_enough:,}", threshold, *map(_cell, estimates))


def _cell(estimate: Estimate | None) -> str:
    return "-" if estimate is None else str(estimate)
