"""docs/cli.md is what `dmnrag --help` says; `python tests/project/test_cli_reference.py` writes it anew."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from dmnrag.cli.main import app

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def reference() -> str:
    command: Any = typer.main.get_command(app)
    parts = [
        "# Command line\n\nExit codes: 0 done, 1 failed, 2 wrong use. Data on stdout, talk and progress on stderr.\n"
    ]
    parts.extend(_sections(command, "dmnrag"))
    return "\n".join(parts)


def _sections(command: Any, name: str) -> Iterator[str]:
    context = command.context_class(command, info_name=name, terminal_width=100, max_content_width=100)
    yield f"## {name}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    if hasattr(command, "list_commands"):
        for child in command.list_commands(context):
            yield from _sections(command.get_command(context, child), f"{name} {child}")


def test_the_reference_in_the_docs_is_current() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference()


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
