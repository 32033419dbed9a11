"""`dmnrag feedback`: what a service kept: questions, answers and votes, as new pairs for review, and their deletion."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dmnrag._io import write_jsonl_atomic
from dmnrag.cli import options as o
from dmnrag.cli.console import print_json, talk
from dmnrag.cli.render import domain_text, table_text
from dmnrag.errors import ConfigError
from dmnrag.index.generations import is_index
from dmnrag.service.store import Store, StoredAnswer

IN_INDEX = "service.sqlite"
"""The store inside an index folder, where `--store` named it so."""
CHOICES = ("all", "good", "bad")
_VOTES = {True: "good", False: "bad"}
_CITATION = re.compile(r"\s?\[(\d{1,3})\]")

StoreFile = Annotated[
    Path,
    typer.Argument(
        help=f"Store of `dmnrag serve --store`, or an index folder that holds it as {IN_INDEX}.", metavar="STORE"
    ),
]

feedback = typer.Typer(help="Questions, answers and votes that a service kept.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(feedback, name="feedback")


@feedback.command()
def export(
    store: StoreFile,
    out: Annotated[Path, typer.Option("--out", help="JSON-lines file to write.")],
    only: Annotated[str, typer.Option("--only", help=f"By vote: {', '.join(CHOICES)}; all: also those without.")] = (
        "all"
    ),
) -> None:
    """Write questions and answers as new pairs for review; `dmnrag add` reads the reviewed file.

    A question that the LLM did not answer has an empty answer, for a person to write; `dmnrag add` passes over it.
    """
    if only not in CHOICES:
        raise ConfigError(f"--only {only!r}: allowed are {', '.join(CHOICES)}")
    with _opened(store) as opened:
        rows = [_pair(stored) for stored in opened.questions() if only in ("all", _vote(stored))]
    write_jsonl_atomic(out, rows)
    typer.echo(f"{len(rows):,} pairs for review in {out}")
    if rows:
        talk("review them, then: dmnrag add DIR FILE --question-column question --answer-column answer ...")


@feedback.command()
def show(store: StoreFile, as_json: o.JsonOption = False) -> None:
    """Count questions and votes, by domain, method and outcome."""
    with _opened(store) as opened:
        summary = summarise(opened.questions())
    if as_json:
        print_json(summary)
    else:
        typer.echo("\n\n".join(_tables(summary)))


@feedback.command()
def delete(
    store: StoreFile,
    owner: Annotated[
        str | None, typer.Option("--owner", help="Name of a key: everything asked with it. '': asked without a key.")
    ] = None,
    answer: Annotated[str | None, typer.Option("--answer", help="Id of one answer.")] = None,
) -> None:
    """Delete all that was asked with a key, or one answer; no text of it is left in the file."""
    if (owner is None) == (answer is None):
        raise ConfigError("name what to delete: either --owner NAME or --answer ID")
    with _opened(store) as opened:
        n = opened.delete_owner(owner) if owner is not None else opened.delete_answer(str(answer))
    typer.echo(f"{n:,} answers deleted")


def summarise(answers: Iterable[StoredAnswer]) -> dict[str, Any]:
    """The documented shape of `feedback show --json`."""
    groups: dict[str, dict[Any, Counter[str]]] = {"domains": {}, "methods": {}, "outcomes": {}}
    totals: Counter[str] = Counter()
    for stored in answers:
        counted = {"questions": 1, _vote(stored) or "none": 1}
        totals.update(counted)
        keys = (stored.started.domain, stored.started.method, stored.finished.outcome)
        for group, key in zip(groups.values(), keys, strict=True):
            group.setdefault(key, Counter()).update(counted)
    return _counts(totals) | {
        name: [
            {name[:-1]: list(key) if isinstance(key, tuple) else key} | _counts(group[key])
            for key in sorted(group, key=lambda key: (-group[key]["questions"], key))
        ]
        for name, group in groups.items()
    }


def _counts(counter: Counter[str]) -> dict[str, Any]:
    return {name: counter[name] for name in ("questions", "good", "bad")}


def _tables(summary: dict[str, Any]) -> Iterator[str]:
    header = ("questions", "good", "bad")
    yield table_text(header, [[f"{summary[name]:,}" for name in header]])
    for name in ("domains", "methods", "outcomes"):
        rows = []
        for entry in summary[name]:
            key = entry[name[:-1]]
            shown = domain_text(tuple(key)) if isinstance(key, list) else key
            rows.append([shown, *(f"{entry[column]:,}" for column in header)])
        yield table_text((name[:-1], *header), rows)


def _vote(stored: StoredAnswer) -> str | None:
    return None if stored.feedback is None else _VOTES[stored.feedback.good]


def _pair(stored: StoredAnswer) -> dict[str, Any]:
    """A document in the making, with what a reviewer wants to know."""
    answered = stored.finished.outcome == "answered"
    return {
        "id": stored.started.answer_id,
        "question": stored.started.question,
        "answer": _without_citations(stored) if answered else "",
        "domain": list(stored.started.domain),
        "vote": _vote(stored),
        "comment": "" if stored.feedback is None else stored.feedback.comment,
        "outcome": stored.finished.outcome,
        "doc_ids": [source.doc_id for source in stored.sources.sources],
        "generation": stored.generation,
        "asked_at": stored.asked_at,
    }


def _without_citations(stored: StoredAnswer) -> str:
    """In a document [1] would point at nothing."""
    cited = stored.finished.citations
    return _CITATION.sub(lambda mark: "" if int(mark[1]) in cited else mark[0], stored.finished.text).strip()


def _opened(path: Path) -> Store:
    if path.is_dir():
        if not (path / IN_INDEX).is_file():
            kind = "index" if is_index(path) else "folder"
            raise ConfigError(f"the {kind} {path} holds no {IN_INDEX}: name the file that `dmnrag serve --store` wrote")
        path = path / IN_INDEX
    if not path.is_file():
        raise ConfigError(f"there is no store {path}: name the file that `dmnrag serve --store` wrote")
    return Store.open(path)
