"""`dmnrag evaluate`: figures with intervals on the held-out split of an index."""

from typing import Annotated

import typer

from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, progress, talk
from dmnrag.cli.figures import evaluation_text
from dmnrag.cli.search import open_pipeline
from dmnrag.experiments.evaluate import evaluate_answers, evaluate_retrieval
from dmnrag.llm import make_generator
from dmnrag.pipeline import AskSettings
from dmnrag.prompts import load_template
from dmnrag.retrieval.layers import RetrievalSettings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("evaluate")(evaluate)


def evaluate(
    folder: o.IndexFolder,
    llm: o.LlmOption = None,
    template: o.TemplateOption = None,
    limit: Annotated[int | None, typer.Option(help="Answer only the first N held-out questions.")] = None,
    pool: Annotated[bool, typer.Option(help="Score retrieval on the answer pool too.")] = True,
    layer: o.LayerOption = "",
    k: o.K = 3,
    max_tokens: o.MaxTokens = 256,
    temperature: o.Temperature = None,
    top_k: o.TopK = None,
    top_p: o.TopP = None,
    repetition_penalty: o.RepetitionPenalty = None,
    seed: o.Seed = None,
    as_json: o.JsonOption = False,
) -> None:
    """Measure retrieval on the held-out split; with --llm the answers of every method too."""
    pipeline = open_pipeline(folder, None)
    with progress() as show:
        found = evaluate_retrieval(pipeline, pool=pool, on_progress=show)
        if llm is not None:
            settings = AskSettings(
                retrieval=RetrievalSettings(k=k, layer=o.parse_layer(layer) or pipeline.default_layer),
                generation=o.generation_settings(
                    max_tokens, temperature, top_k, top_p, repetition_penalty, None, seed
                ),
            )
            pipeline = pipeline.with_llm(
                make_generator(llm), None if template is None else load_template(template)
            )
            found = found.merged(evaluate_answers(pipeline, settings, limit=limit, on_progress=show))
    if as_json:
        print_json(found.to_dict())
        return
    typer.echo(evaluation_text(found))
    talk(
        "intervals: 95 % bootstrap over groups of near-identical posts; p: paired permutation test, uncorrected"
    )
