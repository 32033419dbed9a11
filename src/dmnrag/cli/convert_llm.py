"""`dmnrag convert-llm`: original ChatGLM2-6B and Baichuan2-7B-Chat folders to stock ones."""

from pathlib import Path
from typing import Annotated

import typer

from dmnrag.cli.console import progress
from dmnrag.llm.convert import convert_adapter, convert_checkpoint


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("convert-llm")(convert_llm)


def convert_llm(
    source: Annotated[
        Path, typer.Argument(help="Original ChatGLM2-6B or Baichuan2-7B-Chat folder; with --base a LoRA adapter.")
    ],
    out: Annotated[Path, typer.Argument(help="Folder to make.")],
    base: Annotated[
        Path | None,
        typer.Option(help="SOURCE is a LoRA adapter of the original; the converted model.", show_default=False),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of a former conversion at OUT.")] = False,
) -> None:
    """Make a folder of stock transformers classes that loads everywhere, without the folder's own code."""
    if base is not None:
        kinds = convert_adapter(source, base, out, replace=replace)
        typer.echo(f"the adapter is in {out}, for {base}: {', '.join(kinds)}")
        return
    with progress() as show:
        done = convert_checkpoint(source, out, replace=replace, progress=show)
    typer.echo(f"{done.title} is in {out} ({done.n_bytes / 1e9:.1f} GB). Use it: dmnrag ask DIR QUESTION --llm {out}")
