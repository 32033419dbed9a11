"""The `dmnrag` command. Each command is one file beside this one.

Data goes to stdout, talk and progress to stderr. Exit codes: 0 done, 1 failed, 2 wrong use.
"""

import os
import sys
from typing import Annotated

import typer

from dmnrag import __version__
from dmnrag._io import describe_os_error
from dmnrag.cli import (
    add,
    ask,
    bundle,
    calibrate,
    convert_llm,
    demo,
    doctor,
    evaluate,
    experiment,
    export,
    feedback,
    finetune,
    index,
    info,
    migrate,
    remove,
    report,
    rollback,
    score,
    search,
    serve,
    train,
    upgrade,
)
from dmnrag.cli.console import talk
from dmnrag.errors import ConfigError, DmnragError, PromptError, QueryError

_FAILED, _WRONG_USE, _INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="dmnrag",
    help="Answer questions over domain-labelled question-answer pairs, with the domain in retrieval and in the prompt.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    demo, index, add, remove, train, finetune, calibrate, info, search, ask, serve, feedback, evaluate, score,
    experiment, report, export, convert_llm, upgrade, migrate, rollback, bundle, doctor,
):  # fmt: skip
    command.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dmnrag {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    del version  # handled by its callback


def run() -> None:
    """Entry point: errors raised on purpose become one clear line and an exit code."""
    # Before torch is loaded: threads that wait by spinning take the cores from other programs. With other work on
    # the machine (load 8 on 2 cores) encoding 72 questions took 2.5 to 3.7 s with this, 5.5 to 7.5 s without.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except DmnragError as error:
        talk(f"error: {error}")
        sys.exit(_WRONG_USE if isinstance(error, ConfigError | PromptError | QueryError) else _FAILED)
    except KeyboardInterrupt:
        talk("interrupted")
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe left (`| head`): nothing is wrong. stdout must not be flushed again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        # What the disk refuses is no fault of the program: the file, the reason and the cure are enough.
        if os.environ.get("DMNRAG_DEBUG"):
            raise
        talk(f"error: {describe_os_error(error)}")
        sys.exit(_FAILED)
    except Exception as error:
        if os.environ.get("DMNRAG_DEBUG"):
            raise
        talk(f"error: unexpected {type(error).__name__}: {error} (DMNRAG_DEBUG=1 shows where)")
        sys.exit(_FAILED)
