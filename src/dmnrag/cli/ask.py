"""`dmnrag ask`: a question, its answer, and the documents it rests on."""

from collections.abc import Iterable

import typer

from dmnrag.cli import options as o
from dmnrag.cli.adapted import answering_defaults, open_record, pipeline_with, tell_differences
from dmnrag.cli.console import print_json, talk
from dmnrag.cli.inferring import tell_inferred, with_domains
from dmnrag.cli.refusing import Judged, judge_evidence, verdict_to_dict
from dmnrag.cli.render import answer_to_dict, domain_text, hits_text, shorten
from dmnrag.cli.search import open_pipeline, retrieval_settings
from dmnrag.errors import ConfigError
from dmnrag.llm.speed import tokens_per_second
from dmnrag.pipeline import AUTO, AskSettings, Pipeline
from dmnrag.types import Answer, Query


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ask")(ask)


def ask(
    folder: o.IndexFolder,
    question: o.Question,
    domain: o.AskedDomain = AUTO,
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
    answer_anyway: o.AnswerAnyway = False,
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
    [asked] = with_domains(searcher, [Query("1", question)], domain, allow_unknown=allow_unknown_domain)
    chosen = searcher.choose_method(method, asked.query.domain, record, asked.inferred)
    tell_inferred([asked])
    judged = Judged() if answer_anyway else judge_evidence(searcher, asked.query, chosen, settings)
    if judged.refusal is not None and not as_json:
        typer.echo(judged.refusal.text)
        _show_sources(searcher, judged.refusal)
        talk("--answer-anyway asks the LLM all the same")
        return
    pipeline = searcher
    if judged.refusal is None:
        pipeline = pipeline_with(searcher, llm, template, adapter, record)
        tell_differences(record, pipeline, chosen, settings)
    if as_json:
        answer = judged.refusal or _last(pipeline.stream(asked.query, chosen, settings, searched=judged.searched))
        documents = pipeline.index.documents([hit.doc_id for hit in answer.hits])
        shown = answer_to_dict(question, settings.retrieval.layer, answer, documents, asked.inferred)
        judgement = {"refused": answer.refused, "evidence": verdict_to_dict(judged.verdict)}
        print_json({**shown, **judgement, "tokens_per_second": _rate(answer)})
        return
    for piece in pipeline.stream(asked.query, chosen, settings, searched=judged.searched):
        if isinstance(piece, Answer):
            typer.echo("")
            _show_sources(pipeline, piece)
            _tell_unsupported(piece)
        else:
            typer.echo(piece, nl=False)


def _last(pieces: Iterable[str | Answer]) -> Answer:
    return [piece for piece in pieces if isinstance(piece, Answer)][-1]


def _tell_unsupported(answer: Answer) -> None:
    for start, end in answer.unsupported:
        talk(f"no document says: {shorten(answer.text[start:end])}")


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
