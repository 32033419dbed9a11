"""`dmnrag demo`: the whole pipeline on a bundled corpus, on one machine."""

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from dmnrag._io import write_json_atomic
from dmnrag.cli.console import progress, talk
from dmnrag.cli.figures import comparisons_text, rows_text
from dmnrag.cli.render import domain_text, shorten
from dmnrag.data.samples import SAMPLES
from dmnrag.errors import ConfigError
from dmnrag.experiments.demo import N_SCORED, RETRIEVER, Demo, prepare_index, run_demo, train_demo
from dmnrag.experiments.systems import TABLE_SYSTEMS, trained_systems
from dmnrag.methods import METHODS
from dmnrag.pipeline import Pipeline

_RETRIEVAL_METRICS = ("recall@3", "MRR@10", "same-domain@3")
_ANSWER_METRICS = ("ROUGE-1 (word)", "ROUGE-2 (word)", "ROUGE-L (word)")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    corpus: Annotated[str, typer.Argument(help=f"Sample corpus: {', '.join(SAMPLES)}.")] = "medical",
    out: Annotated[Path | None, typer.Option(help="Folder to write. Default: demo-CORPUS.", show_default=False)] = None,
) -> None:
    """Index a bundled corpus, train its retriever, search it every way, answer with the built-in LLM, score it all."""
    if corpus not in SAMPLES:
        raise ConfigError(f"there is no sample corpus {corpus!r}: allowed are {', '.join(SAMPLES)}")
    folder = out or Path(f"demo-{corpus}")
    with progress() as show:
        index = prepare_index(corpus, folder / "index", show)
        talk(f"index: {index.n_documents} documents, {len(index.examples)} held-out questions")
        index.close()
        talk("training the retriever on what the first layer ranks")
        train_demo(folder / "index", show)
        talk("loading the built-in LLM (converted once, a minute or two the first time)")
        pipeline = Pipeline.open(folder / "index", llm="builtin")
        found = run_demo(pipeline, show)
    typer.echo(_text(found))
    write_json_atomic(
        folder / "figures.json", {"retrieval": found.retrieval.to_dict(), "answers": found.answers.to_dict()}
    )
    typer.echo(f"\nWritten to {folder}: index/ and figures.json. Ask it something:")
    query = found.shown[0][0].query
    typer.echo(f"  {_program()} ask {folder / 'index'} '{query.text}' --domain {query.domain[-1]} --llm builtin")
    typer.echo("or open the web page:")
    typer.echo(f"  {_program()} serve {folder / 'index'} --llm builtin")


def _program() -> str:
    """What to type to run this program again: its path, where the shell would not find it."""
    return "dmnrag" if shutil.which("dmnrag") else os.path.relpath(sys.argv[0])


def _text(found: Demo) -> str:
    parts = [_shown_text(found)]
    parts.append(
        "Retrieval, all held-out questions (mean and 95 % interval)\n"
        + rows_text(found.retrieval.rows, TABLE_SYSTEMS, _RETRIEVAL_METRICS)
    )
    trained = [system.name for system in trained_systems(RETRIEVER, joint=True)]
    parts.append(
        "The retriever trained on what BM25 joint ranks (DPR-joint), in place of the untrained one\n"
        + rows_text(found.retrieval.rows, trained, _RETRIEVAL_METRICS)
    )
    parts.append(
        "What training changed\n"
        + comparisons_text(
            [
                c
                for c in found.retrieval.comparisons
                if c.a in trained and not c.b.startswith("BM25") and c.metric in _RETRIEVAL_METRICS
            ]
        )
    )
    parts.append(
        f"Answers of the built-in LLM to {N_SCORED} questions: ROUGE F1 by word (mean and 95 % interval)\n"
        + rows_text(found.answers.rows, [m.name for m in METHODS], _ANSWER_METRICS)
    )
    parts.append(
        "The corpus was written for this demo and the LLM is small: these figures support no claim.\n"
        "The answers are general information, not medical or legal advice."
    )
    return "\n\n".join(parts)


def _shown_text(found: Demo) -> str:
    blocks = []
    for example, answers in found.shown:
        lines = [f"Question [{domain_text(example.query.domain)}]  {example.query.text}"]
        for answer, documents in answers:
            lines.append(f"  {answer.method}: {' '.join(answer.text.split())}")
            lines.extend(
                f"    {hit.rank}. [{domain_text(document.domain)}] {document.doc_id} {shorten(document.question)}"
                for hit, document in zip(answer.hits, documents, strict=True)
            )
        lines.append(f"  right answer: {shorten(example.references[0])}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
