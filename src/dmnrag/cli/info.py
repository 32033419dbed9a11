"""`dmnrag info`: what an index holds, and whether its files are whole."""

from typing import Annotated, Any

import typer

from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, talk
from dmnrag.cli.render import domain_text, table_text
from dmnrag.index import Index


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("info")(info)


def info(
    folder: o.IndexFolder,
    verify: Annotated[bool, typer.Option("--verify", help="Check the hash of every file too.")] = False,
    as_json: o.JsonOption = False,
) -> None:
    """Show what an index holds; --verify checks every file against its hash."""
    with Index.open(folder, verify=verify) as index:
        summary = summarise(index)
    if as_json:
        print_json(summary)
        return
    typer.echo(_text(summary))
    if verify:
        talk(f"verified: the hashes of {len(index.manifest.parts)} files match")


def summarise(index: Index) -> dict[str, Any]:
    """The manifest's summary, as `info --json` prints it."""
    manifest = index.manifest
    return {
        "format_version": manifest.format_version,
        "generation": manifest.generation,
        "created": manifest.created,
        "documents": index.n_documents,
        "examples": manifest.n_examples,
        "bytes": sum(part.bytes for part in manifest.parts.values()),
        "domains": [{"domain": labels, "documents": count} for labels, count in manifest.domains],
        "retrievers": manifest.retrievers,
        "settings": manifest.settings,
        "source": manifest.source,
        "library_versions": manifest.library_versions,
    }


def _text(summary: dict[str, Any]) -> str:
    settings = summary["settings"]
    retrievers = ", ".join(f"{name} ({r['encoder']})" for name, r in summary["retrievers"].items()) or "none"
    facts = [
        ("documents", f"{summary['documents']:,}"),
        ("held-out questions", f"{summary['examples']:,}"),
        ("generation", f"{summary['generation']}, created {summary['created']}"),
        ("size", f"{summary['bytes'] / 1e6:,.1f} MB"),
        (
            "first layer",
            f"BM25 over {settings['indexed_text']}, segmenter {settings['segmenter']['name']}, "
            f"k1 {settings['bm25']['k1']}, b {settings['bm25']['b']}",
        ),
        ("second layer", retrievers),
    ]
    domains = [(domain_text(tuple(d["domain"])), f"{d['documents']:,}") for d in summary["domains"]]
    return table_text(("index", ""), facts) + "\n\n" + table_text(("domain", "documents"), domains)
