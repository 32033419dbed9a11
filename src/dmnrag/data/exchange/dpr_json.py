"""DPR JSON, the training data of dense retrievers: a question, its right passages and wrong ones.

The standard file is one JSON array; the variant has one object a line, chosen by the ending `.jsonl` when
writing and found from the content when reading. Keys beyond those below are kept and written again. Whether
the passages make a good training set is judged elsewhere: empty lists of negatives are read as they are.
Source: Karpukhin et al., "Dense passage retrieval for open-domain question answering", 2020.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dmnrag.data.exchange.lines import (
    id_at,
    json_line,
    numbered_lines,
    parse_json,
    text_at,
    texts_at,
    whole_text,
    written_atomically,
)
from dmnrag.errors import DataError
from dmnrag.types import Domain

_LISTS = ("positive_ctxs", "negative_ctxs", "hard_negative_ctxs")
_INSTANCE_KEYS = frozenset({"question", "answers", "domain", *_LISTS})
_CONTEXT_KEYS = frozenset({"title", "text", "passage_id", "psg_id", "score"})
_OLD_PASSAGE_ID = "psg_id"
"""The name that some of the published files use."""


@dataclass(frozen=True, slots=True)
class DprContext:
    """A passage that stands with a question."""

    title: str
    text: str
    passage_id: str
    score: float | None = None
    """What the miner gave it, where known."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the file, as they were."""

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise DataError("'text' is empty; a passage needs a text")
        if self.score is not None and not math.isfinite(self.score):
            raise DataError(f"'score' is {self.score!r}; a finite number is needed, or leave it out")
        _refuse_known(self.extra, _CONTEXT_KEYS)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        row = {"title": self.title, "text": self.text, "passage_id": self.passage_id}
        return row | ({} if self.score is None else {"score": self.score}) | dict(self.extra)


@dataclass(frozen=True, slots=True)
class DprInstance:
    """A training question with its passages."""

    question: str
    answers: tuple[str, ...]
    positive_ctxs: tuple[DprContext, ...]
    """The first one is the gold; never empty."""
    negative_ctxs: tuple[DprContext, ...] = ()
    hard_negative_ctxs: tuple[DprContext, ...] = ()
    domain: Domain = ()
    """Labels of the question; this project's key, which other readers pass over."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the file, as they were."""

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise DataError("'question' is empty; a text is needed")
        for name in ("answers", "domain", *_LISTS):
            value = getattr(self, name)
            if isinstance(value, str):
                raise DataError(f"{name!r} is the text {value[:40]!r}; a list is needed")
        if not self.positive_ctxs:
            raise DataError("'positive_ctxs' is empty; nothing can be learnt without a right passage: leave it out")
        _refuse_known(self.extra, _INSTANCE_KEYS)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form: the three lists of passages always, `domain` where there is one."""
        row: dict[str, Any] = {"question": self.question, "answers": list(self.answers)}
        row |= {"domain": list(self.domain)} if self.domain else {}
        row |= {name: [context.to_dict() for context in getattr(self, name)] for name in _LISTS}
        return row | dict(self.extra)


def read_dpr_json(path: Path) -> Iterator[DprInstance]:
    """The entries of a file, one after the other. An array is parsed as a whole, lines one by one.

    Raises:
        DataError: not JSON, no entry, a key missing or of the wrong kind (a text where a list belongs), or no
            positive; names the entry (from 1) and the key.
    """
    number = 0
    for number, (where, value) in enumerate(_entries(path), start=1):
        yield _checked_instance(value, f"{where}, entry {number:,}")
    if not number:
        raise DataError(f"{path} holds no entry")


def write_dpr_json(path: Path, instances: Iterable[DprInstance]) -> int:
    """Write the entries as they come, atomically: an array, or lines where `path` ends in `.jsonl`.

    Returns:
        The number of entries.

    Raises:
        DataError: there is none, or one cannot be written as JSON; names the entry.
    """
    before, between, after = ("", "", "") if path.suffix.lower() == ".jsonl" else ("[\n", ",\n", "]\n")
    number = 0
    with written_atomically(path) as file:
        file.write(before)
        for number, instance in enumerate(instances, start=1):
            line = json_line(instance.to_dict(), f"entry {number:,}")
            file.write((between if number > 1 else "") + (line.rstrip("\n") if between else line))
        if not number:
            raise DataError(f"{path} would hold no entry; nothing was written")
        file.write(("\n" if between else "") + after)
    return number


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    lines = numbered_lines(path)
    number, first = next(lines, (0, ""))
    if not first.lstrip().startswith("["):
        if first:
            yield f"{path}, line {number:,}", parse_json(first, f"{path}, line {number:,}")
        yield from ((f"{path}, line {n:,}", parse_json(line, f"{path}, line {n:,}")) for n, line in lines)
        return
    yield from ((str(path), entry) for entry in parse_json(whole_text(path), str(path)))


def _checked_instance(value: Any, where: str) -> DprInstance:
    if not isinstance(value, dict):
        raise DataError(f"{where}: an object is needed, found {type(value).__name__}")
    missing = [key for key in ("question", "answers", *_LISTS) if key not in value]
    if missing:
        raise DataError(f"{where}: no {', '.join(map(repr, missing))}; its keys are {', '.join(map(repr, value))}")
    question, answers = text_at(value, "question", where), texts_at(value, "answers", where)
    domain = texts_at(value, "domain", where) if "domain" in value else ()
    positive, negative, hard = (_contexts(value[name], f"{where}, {name!r}") for name in _LISTS)
    extra = {key: kept for key, kept in value.items() if key not in _INSTANCE_KEYS}
    try:
        return DprInstance(question, answers, positive, negative, hard, domain, extra)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _contexts(value: Any, where: str) -> tuple[DprContext, ...]:
    if not isinstance(value, list):
        shown = f"the text {value[:40]!r}" if isinstance(value, str) else type(value).__name__
        raise DataError(f"{where} is {shown}; a list of passages is needed")
    return tuple(_context(item, f"{where} passage {number}") for number, item in enumerate(value, start=1))


def _context(value: Any, where: str) -> DprContext:
    if not isinstance(value, dict):
        raise DataError(f"{where}: an object with title, text and passage_id is needed, found {value!r:.60}")
    key = _OLD_PASSAGE_ID if "passage_id" not in value and _OLD_PASSAGE_ID in value else "passage_id"
    title, text = text_at(value, "title", where, empty=True), text_at(value, "text", where)
    passage_id = "" if value.get(key) == "" else id_at(value, key, where)
    extra = {name: kept for name, kept in value.items() if name not in _CONTEXT_KEYS}
    try:
        return DprContext(title, text, passage_id, _score(value.get("score")), extra)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _score(value: Any) -> float | None:
    """A number; DPR's own retriever writes it as a text."""
    if value is None:
        return None
    if not isinstance(value, bool) and isinstance(value, int | float | str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise DataError(f"'score' is {json.dumps(value)[:60]}; a number is needed, or leave it out")


def _refuse_known(extra: Mapping[str, Any], known: frozenset[str]) -> None:
    clash = sorted(extra.keys() & known)
    if clash:
        raise DataError(f"{clash[0]!r} stands among the further keys, but it is a key of its own")
