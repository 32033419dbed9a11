"""`dmnrag add`: more documents into an index, read as the index was built."""

from typing import Annotated, Any

import typer

from dmnrag.cli import options as o
from dmnrag.cli import reading as r
from dmnrag.cli.console import print_json, progress, talk
from dmnrag.cli.data_card import data_card_text
from dmnrag.cli.reading_beir import is_beir
from dmnrag.data import ColumnMapping
from dmnrag.index import Index, UpdateReport, update_index
from dmnrag.retrieval.dense import make_encoder

_SHOWN = 5

Separators = Annotated[str | None, typer.Option(help="Characters that part the labels in one cell.")]
Mask = Annotated[
    bool | None,
    typer.Option("--mask/--no-mask", help="Markers for phone and identity numbers, e-mail addresses and bank cards."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("add")(add)


def add(
    folder: o.IndexFolder,
    files: r.Files,
    replace: Annotated[
        bool, typer.Option("--replace", help="A document takes the place of the one with its id.")
    ] = False,
    question_column: r.QuestionColumn = None,
    answer_column: r.AnswerColumn = None,
    domain_column: r.DomainColumn = None,
    id_column: r.IdColumn = None,
    metadata_column: r.MetadataColumn = None,
    encoding: r.Encoding = None,
    delimiter: r.Delimiter = None,
    sheet: r.Sheet = None,
    domain_separators: Separators = None,
    domain_map: r.DomainMapFile = None,
    mask: Mask = None,
    as_json: o.JsonOption = False,
) -> None:
    """Add documents to an index; what is not given here is read as the index was built."""
    named = {
        "question": question_column,
        "answer": answer_column,
        "domain": domain_column,
        "doc_id": id_column,
        "metadata": metadata_column,
    }
    given = {
        "encoding": encoding,
        "delimiter": delimiter,
        "sheet": sheet,
        "domain_separators": domain_separators,
        "mask": mask,
    }
    with Index.open(folder) as index:
        source, domain_kind = index.manifest.source, index.settings.domain_kind
    stored = source.get("columns") or {}
    beir = is_beir(files) and not stored and not any(named.values())
    mapping: ColumnMapping | None = None if beir else r.stored_mapping(stored, named)
    reading = r.stored_reading(source.get("reading") or {}, domain_kind, domain_map, given)
    documents, report = r.read(files, mapping, reading)
    with progress() as show:
        done = update_index(
            folder,
            add=documents,
            replace=replace,
            files=[file.name for file in files],
            encoder_for=lambda dense: make_encoder(dense.encoder, precision=dense.encoder_precision),
            on_progress=show,
        )
    if as_json:
        print_json({**update_to_dict(str(folder), done), "read": report.to_dict()})
        return
    talk(data_card_text(report))
    if done.left_out:
        more = " ..." if len(done.left_out) > _SHOWN else ""
        talk(
            f"{len(done.left_out):,} documents were left out, because they hold a question or an answer of the "
            f"held-out split: {', '.join(done.left_out[:_SHOWN])}{more}"
        )
    typer.echo(update_text(str(folder), done))


def update_to_dict(folder: str, done: UpdateReport) -> dict[str, Any]:
    """The documented shape of `add --json` and `remove --json`."""
    return {
        "folder": folder,
        "generation": done.generation,
        "added": done.n_added,
        "replaced": done.n_replaced,
        "removed": done.n_removed,
        "left_out_for_leakage": list(done.left_out),
        "documents": done.n_documents,
    }


def update_text(folder: str, done: UpdateReport) -> str:
    """What an update did, in one line."""
    counts = (("added", done.n_added - done.n_replaced), ("replaced", done.n_replaced), ("removed", done.n_removed))
    changes = ", ".join(f"{n:,} {what}" for what, n in counts if n)
    return f"{changes}; {done.n_documents:,} documents in {folder} (generation {done.generation})"
