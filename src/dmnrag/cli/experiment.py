"""`dmnrag experiment`: a whole matrix of methods, corpora and LLMs from one spec; again to go on."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from dmnrag.cli.console import progress, talk
from dmnrag.cli.render import table_text
from dmnrag.experiments.matrix.domains import LearntDomains
from dmnrag.experiments.matrix.planning import LlmPlan, Plan, plan_experiment
from dmnrag.experiments.matrix.runner import Outcome, run_experiment
from dmnrag.experiments.matrix.spec_files import LoadedSpec, load_spec, spec_names, spec_text

_LINE_EVERY_S = 30.0
"""Where no bar can be drawn: how often a line says how far it is."""

SpecName = Annotated[
    str, typer.Argument(help=f"A TOML file, or a shipped spec: {', '.join(spec_names())}.", metavar="SPEC")
]
Out = Annotated[
    Path | None,
    typer.Option(help="Results folder; the same one goes on. Default: results-SPEC.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("experiment")(experiment)


def experiment(
    spec: SpecName,
    out: Out = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the cells, what is there, and an estimate; run nothing.")
    ] = False,
    print_spec: Annotated[
        bool, typer.Option("--print", help="Print the spec, to be saved and changed; run nothing.")
    ] = False,
) -> None:
    """Run an experiment into a results folder; the same command goes on after a kill, and does what is missing."""
    if print_spec:
        typer.echo(spec_text(spec), nl=False)
        return
    loaded = load_spec(spec)
    target = out or Path(f"results-{loaded.name}")
    if dry_run:
        _tell_plan(plan_experiment(loaded, target, classifier=LearntDomains()), target)
        return
    with _progress() as show:
        outcome = run_experiment(loaded, target, classifier=LearntDomains(), on_progress=show, on_message=talk)
    _tell(outcome, loaded, spec)


def _tell(outcome: Outcome, loaded: LoadedSpec, spec: str) -> None:
    if not outcome.worked_on:
        talk("nothing was left to do")
    typer.echo(f"{outcome.cells:,} cells in {outcome.folder}. Tables and figures: dmnrag report {outcome.folder}")
    if not outcome.incomplete:
        return
    for name, failed in outcome.incomplete.items():
        talk(f"incomplete: {name}: {failed:,} questions have no answer (errors in predictions.jsonl)")
    default = outcome.folder == Path(f"results-{loaded.name}")
    command = f"dmnrag experiment {spec}" + ("" if default else f" --out {outcome.folder}")
    talk(f"{len(outcome.incomplete):,} cells have gaps; try again what failed: {command}")
    raise typer.Exit(1)


def _tell_plan(plan: Plan, target: Path) -> None:
    rows = []
    for item in plan.cells:
        of = "all" if item.questions is None else f"{item.questions:,}"
        rows.append((item.cell.id, ", ".join(item.cell.table), item.state, f"{item.answered:,} of {of}"))
    typer.echo(table_text(("cell", "belongs to", "state", "answered"), rows))
    finished = sum(item.state == "finished" for item in plan.cells)
    typer.echo(f"{len(plan.cells):,} cells, {finished:,} finished, in {target}")
    for line in plan.preparations:
        typer.echo(f"to make first: {line}")
    for llm in plan.llms:
        typer.echo(_llm_line(llm))


def _llm_line(plan: LlmPlan) -> str:
    read = "unknown (the corpus is not built yet)" if plan.prompt_tokens is None else f"about {plan.prompt_tokens:,}"
    written = f"{'about' if plan.measured else 'up to'} {plan.completion_tokens:,}"
    time_text = "time unknown before its first answers" if plan.seconds is None else f"about {_duration(plan.seconds)}"
    return f"LLM {plan.llm}: at most {plan.questions:,} answers; tokens read: {read}, written: {written}; {time_text}"


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Bars with the time left; on a pipe a line when a stage ends, and now and then one that says how far it is."""
    if sys.stderr.isatty():
        with progress() as show:
            yield show
    else:
        yield _Lines()


class _Lines:
    """Progress in lines."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[float, int]] = {}
        self._said = time.monotonic()
        self._finished: set[str] = set()

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        started, at_first = self._begun.setdefault(stage, (now, done))
        if done >= total:
            if stage not in self._finished and total:
                talk(f"{stage}: {done:,} done")
            self._finished.add(stage)
        elif now - self._said >= _LINE_EVERY_S:
            self._said = now
            new = done - at_first
            left = f", {_duration((now - started) / new * (total - done))} left" if new else ""
            talk(f"{stage}: {done:,} of {total:,}{left}")


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return "under a minute"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
