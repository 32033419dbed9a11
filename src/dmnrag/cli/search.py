"""`dmnrag search`: the documents for a question, or for a file of questions."""

from pathlib import Path
from typing import Annotated

import typer

from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, talk
from dmnrag.cli.inferring import Asked, tell_inferred, with_domains
from dmnrag.cli.render import hits_text, search_to_dict
from dmnrag.data import read_queries
from dmnrag.data.exchange import write_run
from dmnrag.errors import ConfigError
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.types import PLAIN, DomainUse, Hit, Query

QueriesFile = Annotated[
    Path | None, typer.Option("--queries", help='Many questions: {"query_id", "text", "domain"} per line.')
]
RunFile = Annotated[Path | None, typer.Option("--run", help="Write the rankings of --queries as a TREC run.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("search")(search)


def search(
    folder: o.IndexFolder,
    question: Annotated[str | None, typer.Argument(help="The question; or give --queries.")] = None,
    domain: o.DomainOption = None,
    layer: o.LayerOption = "",
    k: o.K = 3,
    candidates: o.Candidates = 100,
    domain_filter: o.DomainFilter = False,
    domain_weight: o.DomainWeight = 1.0,
    retriever: o.RetrieverOption = None,
    rerank: o.RerankOption = None,
    allow_unknown_domain: o.AllowUnknown = False,
    queries: QueriesFile = None,
    run: RunFile = None,
    as_json: o.JsonOption = False,
) -> None:
    """Find the documents for a question; a known domain joins the search."""
    if (question is None) == (queries is None):
        raise ConfigError("give either a question or --queries FILE")
    if run is not None and queries is None:
        raise ConfigError("--run writes the rankings of many questions: give them with --queries FILE")
    if run is not None and queries is not None:
        _check_target(run, queries)
    pipeline = open_pipeline(folder, rerank)
    given = [Query("1", question or "")] if queries is None else read_queries(queries)
    asked = with_domains(pipeline, given, domain, allow_unknown=allow_unknown_domain)
    tell_inferred(asked)
    settings = retrieval_settings(
        pipeline, layer, k, candidates, domain_filter, domain_weight, retriever, rerank is not None
    )
    rankings = pipeline.search([one.query for one in asked], settings)
    if run is not None:
        write_run(run, {one.query.query_id: hits for one, hits in zip(asked, rankings, strict=True)}, settings.layer)
        talk(f"wrote {sum(map(len, rankings)):,} lines to {run}")
    for one, hits in zip(asked, rankings, strict=True):
        _show(
            pipeline,
            one,
            hits,
            settings.layer,
            as_json=as_json,
            many=queries is not None,
            quiet=run is not None,
        )


def _check_target(run: Path, queries: Path) -> None:
    """Refuse before the work what could not be written, or would destroy the questions."""
    if not run.absolute().parent.is_dir():
        raise ConfigError(f"--run {run}: there is no folder {run.parent}; create it, or name another file")
    if run.resolve() == queries.resolve():
        raise ConfigError(f"--run {run} is the file of questions: name another one")


def _show(
    pipeline: Pipeline, asked: Asked, hits: list[Hit], layer: str, *, as_json: bool, many: bool, quiet: bool
) -> None:
    query, documents = asked.query, pipeline.index.documents([hit.doc_id for hit in hits])
    if as_json:
        row = search_to_dict(query.text, query.domain, layer, hits, documents, asked.inferred)
        print_json({"query_id": query.query_id, **row} if many else row)
    elif not quiet:
        if many:
            typer.echo(f"{query.query_id}\t{query.text}")
        typer.echo(hits_text(hits, documents))


def open_pipeline(folder: Path, rerank: str | None) -> Pipeline:
    """A pipeline without an LLM."""
    from dmnrag.index import Index

    reranker = None
    if rerank is not None:
        from dmnrag.retrieval.rerank import make_reranker

        reranker = make_reranker(rerank)
    return Pipeline(Index.open(folder), reranker=reranker)


def retrieval_settings(
    pipeline: Pipeline,
    layer: str,
    k: int,
    candidates: int,
    domain_filter: bool,
    domain_weight: float,
    retriever: str | None,
    rerank: bool,
) -> RetrievalSettings:
    """Retrieval from the options; the layer that the index can do where none is named."""
    use = DomainUse(weight=domain_weight) if pipeline.index.domains else PLAIN
    chosen = o.parse_layer(layer) or pipeline.default_layer
    if retriever is not None and chosen == "sparse":
        raise ConfigError("--retriever names a second layer, and layer 'sparse' has none: leave one out")
    return RetrievalSettings(
        k=k,
        layer=chosen,
        use=use,
        domain_filter=domain_filter,
        candidates=candidates,
        retriever=retriever,
        rerank=rerank,
    )
