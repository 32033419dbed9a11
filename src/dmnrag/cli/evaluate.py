"""`dmnrag evaluate`: figures with intervals on the held-out split of an index."""

from pathlib import Path
from typing import Annotated

import typer

from dmnrag.cli import options as o
from dmnrag.cli.adapted import answering_defaults, open_record, pipeline_with, tell_differences, tell_speed
from dmnrag.cli.console import print_json, progress, talk
from dmnrag.cli.figures import evaluation_text
from dmnrag.cli.search import open_pipeline
from dmnrag.data.exchange import read_judgements
from dmnrag.errors import ConfigError
from dmnrag.experiments.adapted import evaluate_method
from dmnrag.experiments.evaluate import evaluate_answers, evaluate_retrieval
from dmnrag.experiments.foreign import evaluate_foreign, read_foreign_queries
from dmnrag.methods import find_method
from dmnrag.pipeline import AskSettings
from dmnrag.retrieval.layers import RetrievalSettings

QueriesFile = Annotated[
    Path | None,
    typer.Option("--queries", help="Questions from elsewhere, JSON lines as for search or BEIR's queries.jsonl."),
]
QrelsFile = Annotated[
    Path | None, typer.Option("--qrels", help="Their judgements: TREC qrels or BEIR's qrels/SPLIT.tsv.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("evaluate")(evaluate)


def evaluate(
    folder: o.IndexFolder,
    queries: QueriesFile = None,
    qrels: QrelsFile = None,
    allow_unknown_domain: o.AllowUnknown = False,
    llm: o.LlmOption = None,
    template: o.TemplateOption = None,
    adapter: o.AdapterOption = None,
    limit: Annotated[int | None, typer.Option(help="Answer only the first N held-out questions.")] = None,
    pool: Annotated[bool, typer.Option(help="Score retrieval on the answer pool too.")] = True,
    layer: o.LayerOption = "",
    k: o.AnswerK = None,
    max_tokens: o.MaxTokens = None,
    temperature: o.Temperature = None,
    top_k: o.TopK = None,
    top_p: o.TopP = None,
    repetition_penalty: o.RepetitionPenalty = None,
    seed: o.Seed = None,
    as_json: o.JsonOption = False,
) -> None:
    """Measure retrieval on the held-out split or on judged questions; with --llm the answers of every method too."""
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit is {limit}: allowed are whole numbers from 1")
    if k is not None and k < 1:
        raise ConfigError(f"-k is {k}: allowed are whole numbers from 1")
    if llm is None:
        _refuse_idle(
            {
                "--template": template,
                "--adapter": adapter,
                "--limit": limit,
                "--layer": layer or None,
                "-k": k,
                "--max-tokens": max_tokens,
                "--temperature": temperature,
                "--top-k": top_k,
                "--top-p": top_p,
                "--repetition-penalty": repetition_penalty,
                "--seed": seed,
            }
        )
    if queries is not None and qrels is not None:
        if llm is not None:
            raise ConfigError("--llm scores answers against right answers, and --qrels names documents: leave one out")
        _evaluate_foreign(folder, queries, qrels, allow_unknown_domain, as_json)
        return
    if queries is not None or qrels is not None:
        raise ConfigError("--queries and --qrels belong together: give both, or neither for the held-out split")
    record = open_record(adapter)
    layer, k, max_tokens = answering_defaults(record, layer, k, max_tokens)
    pipeline = open_pipeline(folder, None)
    with progress() as show:
        found = evaluate_retrieval(pipeline, pool=pool, on_progress=show)
        if llm is not None:
            settings = AskSettings(
                retrieval=RetrievalSettings(k=k, layer=o.parse_layer(layer) or pipeline.default_layer),
                generation=o.generation_settings(max_tokens, temperature, top_k, top_p, repetition_penalty, None, seed),
            )
            pipeline = pipeline_with(pipeline, llm, template, adapter, record)
            if record is None:
                answers = evaluate_answers(pipeline, settings, limit=limit, on_progress=show)
            else:
                method = find_method(record.method)
                tell_differences(record, pipeline, method, settings)
                answers = evaluate_method(pipeline, method, settings, limit=limit, on_progress=show)
            found = found.merged(answers)
            tell_speed(pipeline)
    if as_json:
        print_json(found.to_dict())
        return
    typer.echo(evaluation_text(found))
    talk("intervals: 95 % bootstrap over groups of near-identical posts; p: paired permutation test, uncorrected")


def _evaluate_foreign(folder: Path, queries: Path, qrels: Path, allow_unknown_domain: bool, as_json: bool) -> None:
    asked, judgements = read_foreign_queries(queries), read_judgements(qrels)
    pipeline = open_pipeline(folder, None)
    found = evaluate_foreign(pipeline, asked, judgements, allow_unknown_domain=allow_unknown_domain)
    if found.unjudged_queries:
        talk(f"{found.unjudged_queries:,} questions have no judgement and were left out")
    if found.absent_documents:
        talk(f"{found.absent_documents:,} relevant documents are not in the index and count as never found")
    if as_json:
        print_json(found.figures.to_dict())
        return
    typer.echo(evaluation_text(found.figures))
    talk("intervals: 95 % bootstrap over groups of near-identical questions; p: paired permutation test, uncorrected")


def _refuse_idle(options: dict[str, object]) -> None:
    """Retrieval alone is measured the same way always: options of answering would change nothing."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ConfigError(f"{', '.join(given)} act on answers, and no LLM is named: add --llm or leave them out")
