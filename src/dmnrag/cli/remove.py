"""`dmnrag remove`: documents out of an index, by their ids."""

from pathlib import Path
from typing import Annotated

import typer

from dmnrag.cli import options as o
from dmnrag.cli.add import update_text, update_to_dict
from dmnrag.cli.console import print_json, progress
from dmnrag.data.exchange.lines import whole_text
from dmnrag.errors import ConfigError
from dmnrag.index import update_index


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("remove")(remove)


def remove(
    folder: o.IndexFolder,
    doc_ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of the documents to remove.", metavar="DOC_ID...")
    ] = None,
    ids: Annotated[Path | None, typer.Option("--ids", help="File of ids, one a line.")] = None,
    as_json: o.JsonOption = False,
) -> None:
    """Remove documents by id; all of them must be there, or nothing is removed."""
    wanted = list(doc_ids or ())
    if ids is not None:
        wanted += [line.strip() for line in whole_text(ids).splitlines() if line.strip()]
    if not wanted:
        raise ConfigError("no id is given: name documents to remove, or a file of ids with --ids")
    with progress() as show:
        done = update_index(folder, remove=wanted, on_progress=show)
    if as_json:
        print_json(update_to_dict(str(folder), done))
    else:
        typer.echo(update_text(str(folder), done))
