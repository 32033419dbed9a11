"""`dmnrag rollback` and `dmnrag prune`: what happens to former generations."""

import typer

from dmnrag.cli import options as o
from dmnrag.cli.console import print_json
from dmnrag.index import Index, prune_index, roll_back


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("rollback")(rollback)
    app.command("prune")(prune)


def rollback(folder: o.IndexFolder, as_json: o.JsonOption = False) -> None:
    """Go back to the index as it was before the last change; again, and it goes forward."""
    generation = roll_back(folder)
    if as_json:
        print_json({"folder": str(folder), "generation": generation})
    else:
        with Index.open(folder) as index:
            typer.echo(
                f"{folder} holds {index.manifest.n_documents:,} documents again, as before the last change "
                f"(generation {generation}); once more, and that change is back"
            )


def prune(folder: o.IndexFolder, as_json: o.JsonOption = False) -> None:
    """Delete former generations, and what they alone hold in a cluster; there is no way back then."""
    pruned = prune_index(folder)
    if as_json:
        print_json({"folder": str(folder), "pruned": pruned})
    elif pruned:
        typer.echo(f"deleted former generations of {folder}: {', '.join(map(str, pruned))}")
    else:
        typer.echo(f"{folder} has no former generation that could be deleted")
