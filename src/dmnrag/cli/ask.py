"""`dmnrag ask`: a question, its answer, and the documents it rests on."""

import typer

from dmnrag.cli import options as o
from dmnrag.cli.adapted import answering_defaults, open_record, pipeline_with, tell_differences
from dmnrag.cli.console import print_json, talk
from dmnrag.cli.render import answer_to_dict, domain_text, hits_text
from dmnrag.cli.search import open_pipeline, retrieval_settings
from dmnrag.errors import ConfigError
from dmnrag.llm.speed import tokens_per_second
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.types import Answer, Query


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ask")(ask)


def ask(
    folder: o.IndexFolder,
    question: o.Question,
    domain: o.DomainOption = None,
    method: o.MethodOption = None,
    llm: o.LlmOption = None,
    template: o.TemplateOption = None,
    adapter: o.AdapterOption = None,
    layer: o.LayerOption = "",
    k: o.AnswerK = None,
    candidates: o.Candidates = 100,
    domain_filter: o.DomainFilter = False,
    domain_weight: o.DomainWeight = 1.0,
    retriever: o.RetrieverOption = None,
    rerank: o.RerankOption = None,
    allow_unknown_domain: o.AllowUnknown = False,
    max_tokens: o.MaxTokens = None,
    temperature: o.Temperature = None,
    top_k: o.TopK = None,
    top_p: o.TopP = None,
    repetition_penalty: o.RepetitionPenalty = None,
    stop: o.Stop = None,
    seed: o.Seed = None,
    as_json: o.JsonOption = False,
) -> None:
    """Answer a question from the index, with the domain in retrieval and in the prompt."""
    if llm is None:
        raise ConfigError("--llm is missing: builtin (small and weak), openai:MODEL@URL, a transformers name or folder")
    record = open_record(adapter)
    layer, k, max_tokens = answering_defaults(record, layer, k, max_tokens)
    searcher = open_pipeline(folder, rerank)
    settings = AskSettings(
        retrieval=retrieval_settings(
            searcher, layer, k, candidates, domain_filter, domain_weight, retriever, rerank is not None
        ),
        generation=o.generation_settings(max_tokens, temperature, top_k, top_p, repetition_penalty, stop, seed),
        domain_weight=domain_weight,
    )
    resolved = searcher.resolve(o.domain_given(domain), allow_unknown=allow_unknown_domain)
    chosen = searcher.choose_method(method, resolved, record)
    pipeline = pipeline_with(searcher, llm, template, adapter, record)
    tell_differences(record, pipeline, chosen, settings)
    query = Query("1", question, resolved)
    if as_json:
        answer = pipeline.ask_all([query], chosen, settings)[0]
        documents = pipeline.index.documents([hit.doc_id for hit in answer.hits])
        shown = answer_to_dict(question, settings.retrieval.layer, answer, documents)
        print_json({**shown, "tokens_per_second": _rate(answer)})
        return
    for piece in pipeline.stream(query, chosen, settings):
        if isinstance(piece, Answer):
            typer.echo("")
            _show_sources(pipeline, piece)
        else:
            typer.echo(piece, nl=False)


def _show_sources(pipeline: Pipeline, answer: Answer) -> None:
    documents = pipeline.index.documents([hit.doc_id for hit in answer.hits])
    typer.echo(f"\n{hits_text(answer.hits, documents)}")
    seconds = sum(answer.timings_ms.values()) / 1000
    rate = _rate(answer)
    speed = "" if rate is None else f", {answer.usage.completion_tokens} tokens at {rate:.1f}/s"
    talk(f"method {answer.method}, domain {domain_text(answer.domain)}, LLM {answer.llm}, {seconds:.1f} s{speed}")


def _rate(answer: Answer) -> float | None:
    rate = tokens_per_second(answer.usage.completion_tokens, answer.timings_ms["generation"] / 1000)
    return None if rate is None else round(rate, 2)
