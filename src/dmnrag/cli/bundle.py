"""`dmnrag bundle`: an index, its models and all libraries in one archive, for a machine without any network."""

from pathlib import Path
from typing import Annotated

import typer

from dmnrag.bundle import BundleSettings, make_bundle
from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, progress, talk


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bundle")(bundle)


def bundle(
    folder: o.IndexFolder,
    out: Annotated[Path, typer.Option(help="Archive to write.")] = Path("dmnrag-offline.tar"),
    llm: o.LlmOption = None,
    extras: Annotated[
        str, typer.Option(help="Extras of dmnrag beside those that the index and the LLM need, with commas.")
    ] = "serve",
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A further model, a folder or hub name: adapter, reranker. May be repeated.", show_default=False
        ),
    ] = None,
    pip_args: Annotated[
        str, typer.Option("--pip-args", help="Options of pip: '--extra-index-url URL'.", show_default=False)
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of an archive that is there.")] = False,
    as_json: o.JsonOption = False,
) -> None:
    """Gather wheels, models and an index into one archive; install.sh in it needs no network."""
    settings = BundleSettings(llm, o.split_columns(extras), tuple(model or ()), pip_args)
    with progress() as show:
        made = make_bundle(folder, out, settings, replace=replace, talk=talk, on_progress=show)
    if as_json:
        print_json(
            {
                "path": str(made.path),
                "bytes": made.n_bytes,
                "sha256": made.sha256,
                "extras": list(made.extras),
                "wheels": made.n_wheels,
                "python": made.python,
                "platform": made.platform,
            }
        )
        return
    typer.echo(f"{made.path}: {made.n_bytes / 1e9:.2f} GB, {made.n_wheels} wheels, sha256 {made.sha256}")
    typer.echo(f"For Python {made.python} on {made.platform}. Install it there, without any network:")
    typer.echo(f"  tar -xf {made.path.name} install.sh && sh install.sh --prefix DIR")
