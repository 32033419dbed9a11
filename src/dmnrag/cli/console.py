"""What people see: progress and talk on stderr, data on stdout."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def talk(message: str) -> None:
    """One line to the person at the terminal, on stderr."""
    typer.echo(message, err=True)


def print_json(value: Any) -> None:
    """One JSON document on one line of stdout."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # Bytes of an argument that are no UTF-8 arrive as lone surrogates, which no JSON document may hold.
    typer.echo(text.encode("utf-8", "replace").decode())


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A function (stage, done, total) that draws a bar per stage; on a pipe, a line per finished stage."""
    if not sys.stderr.isatty():
        yield _PlainProgress()
        return
    columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield show


class _PlainProgress:
    """One line when a stage ends."""

    def __init__(self) -> None:
        self._finished: set[str] = set()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if done >= total and stage not in self._finished:
            self._finished.add(stage)
            talk(f"{stage}: {done:,} done")
