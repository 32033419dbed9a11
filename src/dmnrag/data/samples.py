"""The sample corpora that come with the package, written for it: general information, no advice.

They show that everything runs; figures measured on them support no claim.
"""

import json
from importlib import resources
from typing import Any

from dmnrag.errors import ConfigError, DataError
from dmnrag.types import Document, Example, Query

SAMPLES = ("medical", "legal")


def load_sample(name: str) -> tuple[list[Document], list[Example]]:
    """Documents, and held-out questions that ask for the need of one of them in other words.

    Raises:
        ConfigError: no sample of this name.
    """
    if name not in SAMPLES:
        raise ConfigError(f"there is no sample corpus {name!r}; there are: {', '.join(SAMPLES)}")
    documents = [
        Document(row["id"], row["question"], tuple(row["answers"]), tuple(row["domain"]))
        for row in _rows(name, "pairs.jsonl")
    ]
    examples = [
        Example(
            Query(row["id"], row["question"], tuple(row["domain"])),
            references=tuple(row["answers"]),
            gold_doc_ids=(row["gold_doc_id"],),
            cluster=row["gold_doc_id"],
        )
        for row in _rows(name, "held_out.jsonl")
    ]
    return documents, examples


def _rows(name: str, file: str) -> list[dict[str, Any]]:
    path = resources.files("dmnrag") / "samples" / name / file
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DataError(f"the installed package lacks samples/{name}/{file}; install it again") from error
    return [json.loads(line) for line in text.splitlines() if line.strip()]
