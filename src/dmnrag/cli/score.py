"""`dmnrag score`: answers made elsewhere against right answers, with intervals and paired tests."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, talk
from dmnrag.cli.figures import evaluation_text
from dmnrag.cli.render import table_text
from dmnrag.data.exchange import read_answers, read_gold
from dmnrag.errors import ConfigError
from dmnrag.experiments.score import LENGTH_MATCHED, score_systems, unanswered
from dmnrag.experiments.score_folder import write_answers_folder
from dmnrag.experiments.statistics import Contrast, Evaluation

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
OutFolder = Annotated[
    Path | None, typer.Option("--out", help="Also write a results folder, which `dmnrag report` turns into a page.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("score")(score)


def score(
    answers: AnswerFiles, gold: GoldFile, out: OutFolder = None, seed: Seed = 0, as_json: o.JsonOption = False
) -> None:
    """Score answers made elsewhere: ROUGE, length, and each pair of systems compared."""
    examples = read_gold(gold)
    systems = {name: read_answers(path) for name, path in zip(system_names(answers), answers, strict=True)}
    if out is not None:
        files = dict(zip(systems, map(str, answers), strict=True))
        write_answers_folder(out, systems, examples, files, str(gold))
        talk(f"wrote {out}; next: dmnrag report {out}")
    found = score_systems(systems, examples, seed=seed)
    for name, by_id in systems.items():
        if n_missing := unanswered(by_id, examples):
            talk(f"{name}: {n_missing:,} of {len(examples):,} questions have no answer and score 0")
    if as_json:
        print_json(found.to_dict())
        return
    typer.echo(evaluation_text(Evaluation(found.n, found.rows)))
    if found.comparisons:
        typer.echo("\n" + tested_text(found.comparisons))
    talk(
        "intervals: 95 % bootstrap over groups of near-identical questions; p: paired permutation test, corrected for"
        f" all {len(found.comparisons)} comparisons (Holm); {LENGTH_MATCHED}: both answers cut to the shorter one's"
        " length; detectable: the smallest difference that one test shows in 80 % of studies of this size"
    )


def tested_text(comparisons: Sequence[Contrast]) -> str:
    """Paired differences with what the corrected test allows to be said."""
    rows = [
        (
            f"{c.a} - {c.b}",
            c.metric,
            f"{c.difference:+.4f} {interval_text(c.low, c.high)}",
            "" if c.p_holm is None else f"{c.p_holm:.4f}",
            "" if c.detectable is None else f"{c.detectable:.4f}",
            "no difference shown" if c.verdict == "not shown" else c.verdict,
        )
        for c in comparisons
    ]
    return table_text(("paired difference", "metric", "mean [95 %]", "p (Holm)", "detectable", ""), rows)


def interval_text(low: float | None, high: float | None) -> str:
    """The bounds of a difference."""
    return "[no interval]" if low is None or high is None else f"[{low:+.4f}, {high:+.4f}]"


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
