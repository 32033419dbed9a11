"""`dmnrag info`: what an index holds, and whether its files are whole."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from dmnrag._io import lock_holder
from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, talk
from dmnrag.cli.render import domain_text, table_text
from dmnrag.index import Index, disk_usage
from dmnrag.index.cluster import ClusterContents
from dmnrag.index.models import FILES, INFO
from dmnrag.retrieval.elastic import cluster_usage

_SHOWN_DOMAINS = 30
"""Of sets there can be hundreds of combinations; --json has all."""


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
        also = "" if index.manifest.backend is None else ", and the cluster holds every document"
        talk(f"verified: the hashes of {len(index.manifest.parts)} files match{also}")


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
        "segments": [segment.model_dump() for segment in manifest.segments],
        "disk": asdict(disk_usage(index.folder)),
        "lock_holder": lock_holder(index.folder),
        "domains": [{"domain": labels, "documents": count} for labels, count in manifest.domains],
        "domain_model": _domain_model(index),
        "retrievers": {name: _without_files(entry) for name, entry in manifest.retrievers.items()},
        "settings": manifest.settings,
        "source": manifest.source,
        "library_versions": manifest.library_versions,
        **({} if manifest.backend is None else {"backend": _backend(index)}),
    }


def _domain_model(index: Index) -> dict[str, Any] | None:
    """What infers domains, and how good it was on held-out thirds of the documents."""
    model = index.domain_model
    if model is None:
        return None
    return {
        "labels": len(model.labels),
        "documents": model.n_documents,
        "threshold": model.settings.threshold,
        "held_out": asdict(model.held_out),
    }


def _backend(index: Index) -> dict[str, Any]:
    """Where in a cluster the index is, and what it takes there."""
    assert index.manifest.backend is not None  # the caller looked
    assert isinstance(index.contents, ClusterContents)
    usage = cluster_usage(index.contents.cluster, index.contents.opened)
    return index.manifest.backend.model_dump() | {"server": index.contents.cluster.version} | asdict(usage)


def _text(summary: dict[str, Any]) -> str:
    settings = summary["settings"]
    any_domain = any(entry["domain"] for entry in summary["domains"])
    retrievers = "; ".join(_retriever_text(name, entry) for name, entry in summary["retrievers"].items()) or "none"
    facts = [
        ("documents", f"{summary['documents']:,}"),
        ("held-out questions", f"{summary['examples']:,}"),
        ("generation", f"{summary['generation']}, created {summary['created']}"),
        ("size", f"{summary['bytes'] / 1e6:,.1f} MB"),
        ("on disk", _disk_text(summary)),
        ("segments", _segments_text(summary)),
        (
            "first layer",
            f"BM25 over {settings['indexed_text']}, segmenter {settings['segmenter']['name']}, "
            f"k1 {settings['bm25']['k1']}, b {settings['bm25']['b']}",
        ),
        ("second layer", retrievers),
        *([("domain inference", _inference_text(summary["domain_model"]))] if any_domain else []),
    ]
    if "backend" in summary:
        facts += _cluster_facts(summary["backend"])
    if summary["lock_holder"] is not None:
        facts.append(("being written by", summary["lock_holder"]))
    return table_text(("index", ""), facts) + "\n\n" + _domains_text(summary["domains"])


def _inference_text(model: dict[str, Any] | None) -> str:
    if model is None:
        return "none: no domain stands on enough documents, or an older release built it (dmnrag upgrade adds it)"
    found = model["held_out"]
    return (
        f"{model['labels']:,} labels; on {found['n']:,} held-out questions the likeliest is right in "
        f"{100 * found['accuracy']:.1f} %; {100 * found['coverage']:.1f} % get a domain, "
        f"{100 * found['covered_accuracy']:.1f} % of these the right one"
    )


def _domains_text(domains: list[dict[str, Any]]) -> str:
    shown = [(domain_text(tuple(d["domain"])), f"{d['documents']:,}") for d in domains[:_SHOWN_DOMAINS]]
    more = len(domains) - len(shown)
    rest = f"\nand {more:,} rarer ones (--json has all)" if more else ""
    return table_text(("domain", "documents"), shown) + rest


def _cluster_facts(backend: dict[str, Any]) -> list[tuple[str, str]]:
    version = ".".join(map(str, backend["server"]))
    copies = f"{backend['shards']} shards, {backend['replicas']} replicas, {backend['health']}"
    points = "" if backend["alias"] == backend["physical"] else f"; the alias points at {backend['alias'] or 'nothing'}"
    kept = ", ".join(backend["kept"])
    return [
        ("Elasticsearch", f"{', '.join(backend['urls'])}, version {version}"),
        ("index there", f"{backend['name']} ({backend['physical']}{points}), {copies}"),
        (
            "size there",
            f"{backend['documents']:,} documents, {backend['bytes'] / 1e6:,.1f} MB, with all copies "
            f"{backend['total_bytes'] / 1e6:,.1f} MB",
        ),
        *([("kept there", kept)] if kept else []),
    ]


def _without_files(entry: dict[str, Any]) -> dict[str, Any]:
    """A retriever without the hashes of its model's files."""
    if INFO not in entry:
        return entry
    return entry | {INFO: {name: value for name, value in entry[INFO].items() if name != FILES}}


def _retriever_text(name: str, entry: dict[str, Any]) -> str:
    dev = entry.get(INFO, {}).get("dev")
    if not dev:
        return f"{name} ({entry['encoder']})"
    before = entry[INFO].get("untrained") or {}
    figures = [
        f"{m} {value:.3f}" + (f" (untrained {before[m]:.3f})" if m in before else "") for m, value in dev.items()
    ]
    return f"{name} ({entry['encoder']}; dev {', '.join(figures)})"


def _disk_text(summary: dict[str, Any]) -> str:
    disk = summary["disk"]
    former = [g for g in disk["generations"] if g["generation"] != summary["generation"]]
    total = f"{disk['bytes'] / 1e6:,.1f} MB"
    if not former:
        return total
    shown = ", ".join(f"{g['generation']} ({g['own_bytes'] / 1e6:,.1f} MB of its own)" for g in former)
    return f"{total} with former generations {shown}"


def _segments_text(summary: dict[str, Any]) -> str:
    removed = sum(s["n_removed"] for s in summary["segments"])
    marked = f", {removed:,} removed documents still in their files" if removed else ""
    return f"{len(summary['segments'])}{marked}"
