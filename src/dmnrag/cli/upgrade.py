"""`dmnrag upgrade`: an index of an older format to the one that this release reads."""

from dataclasses import asdict

import typer

from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, progress
from dmnrag.index import upgrade_index


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("upgrade")(upgrade)


def upgrade(folder: o.IndexFolder, as_json: o.JsonOption = False) -> None:
    """Bring an index to the format of this release; the former generation stays beside the new one.

    An index of an older release also gets the model that infers domains.
    """
    with progress() as show:
        done = upgrade_index(folder, on_progress=show)
    if as_json:
        print_json(asdict(done))
    elif done.from_version == done.to_version and done.domain_model:
        typer.echo(f"{folder} infers domains from now on (generation {done.generation})")
    elif done.from_version == done.to_version:
        typer.echo(f"{folder} has index format {done.to_version}, the current one; nothing was to be done")
    else:
        typer.echo(
            f"{folder} was brought from index format {done.from_version} to {done.to_version} "
            f"(generation {done.generation})"
        )
