"""`dmnrag score`: answers made elsewhere against right answers, with intervals and paired tests."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, talk
from dmnrag.cli.figures import evaluation_text
from dmnrag.data.exchange import read_answers, read_gold
from dmnrag.errors import ConfigError
from dmnrag.experiments.score import LENGTH_MATCHED, score_systems, unanswered

AnswerFiles = Annotated[
    list[Path],
    typer.Argument(
        help='One file a system: {"query_id", "answer"} per line. Its name is the system\'s name.',
        metavar="ANSWERS...",
    ),
]
GoldFile = Annotated[
    Path,
    typer.Option("--gold", help='Right answers: {"query_id", "question", "domain", "references"} per line.'),
]
Seed = Annotated[int, typer.Option(help="Seed of the resampling.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("score")(score)


def score(answers: AnswerFiles, gold: GoldFile, seed: Seed = 0, as_json: o.JsonOption = False) -> None:
    """Score answers made elsewhere: ROUGE, length, and each pair of systems compared."""
    examples = read_gold(gold)
    systems = {name: read_answers(path) for name, path in zip(system_names(answers), answers, strict=True)}
    found = score_systems(systems, examples, seed=seed)
    for name, by_id in systems.items():
        if n_missing := unanswered(by_id, examples):
            talk(f"{name}: {n_missing:,} of {len(examples):,} questions have no answer and score 0")
    if as_json:
        print_json(found.to_dict())
        return
    typer.echo(evaluation_text(found))
    talk(
        "intervals: 95 % bootstrap over groups of near-identical questions; p: paired permutation test,"
        f" uncorrected; {LENGTH_MATCHED}: both answers cut to the shorter one's length"
    )


def system_names(paths: Sequence[Path]) -> list[str]:
    """The files' names without folder and ending; the whole paths where those are not distinct.

    Raises:
        ConfigError: a file is given twice.
    """
    twice = [str(path) for path, n in Counter(path.resolve() for path in paths).items() if n > 1]
    if twice:
        raise ConfigError(f"given more than once: {', '.join(twice)}")
    names = [Path(path.name.removesuffix(".gz")).stem for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
