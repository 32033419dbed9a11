"""An LLM as judge: which of two answers is better, asked in both orders of presentation.

LLMs favour a place (Zheng et al., "Judging LLM-as-a-judge with MT-Bench and Chatbot Arena", 2023), so each pair is
shown twice. A preference counts where both orders agree; otherwise the pair is a tie, and how often that happens
stands beside the result. Verdicts are kept in a file as they come: a second run asks only what is missing.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dmnrag._io import read_jsonl, write_jsonl_atomic
from dmnrag.errors import DataError
from dmnrag.experiments.reporting.contents import Section
from dmnrag.experiments.reporting.pairing import Item
from dmnrag.experiments.reporting.preferences import (
    Preference,
    corrected_together,
    preference,
    preference_row,
    preferences_table,
)
from dmnrag.protocols import Generator
from dmnrag.types import GenerationSettings, Prompt

_BATCH = 8
_SETTINGS = GenerationSettings(max_tokens=512, temperature=0)
"""Long enough for models that think before they answer."""
_THOUGHT = re.compile(r"<think>.*?(?:</think>|$)", re.DOTALL)
_MARK = re.compile(r"[012]")
_PROMPT = """You compare two answers to the same question. Judge which is more correct and more helpful, \
by the reference answer. Do not favour the longer one, and do not favour a place.

Question: {question}
Domain: {domain}
Reference answer: {reference}

Answer 1: {first}

Answer 2: {second}

Reply with one character and nothing else: 1 if answer 1 is better, 2 if answer 2 is better, 0 if neither is."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What the judge said of all pairs."""

    llm: str
    preference: Preference
    consistent: float
    """Share of the pairs on which both orders gave the same verdict."""
    first_place: float
    """Share of the decided verdicts that went to the answer shown first; .5 is no bias."""
    unusable: int
    """Pairs of which a reply named no verdict; left out."""


def judge_pairs(
    items: Sequence[Item],
    names: tuple[str, str],
    generator: Generator,
    kept: Path,
    on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Judged:
    """Ask in both orders whatever `kept` does not hold, and sum up.

    Args:
        items: pairs of answers of the systems `names`.
        names: first and second system.
        generator: the judge.
        kept: JSON lines of earlier verdicts; written after each batch.
        on_progress: (stage, done, total).

    Raises:
        DataError: no reply named a verdict, or `kept` is damaged.
        GenerationError: the judge cannot be asked; what it said before is kept.
    """
    prompts = [_prompt(item, swap) for item in items for swap in (False, True)]
    keys = [hashlib.sha256(f"{generator.name}\n{prompt}".encode("utf-8", "replace")).hexdigest() for prompt in prompts]
    replies = _read(kept)
    missing = [(key, prompt) for key, prompt in zip(keys, prompts, strict=True) if key not in replies]
    for start in range(0, len(missing), _BATCH):
        batch = missing[start : start + _BATCH]
        answers = generator.generate([Prompt(prompt) for _, prompt in batch], _SETTINGS)
        replies |= {key: answer.text for (key, _), answer in zip(batch, answers, strict=True)}
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_jsonl_atomic(kept, ({"key": key, "judge": generator.name, "reply": r} for key, r in replies.items()))
        on_progress("judge", min(start + _BATCH, len(missing)), len(missing))
    verdicts = [verdict(replies[key]) for key in keys]
    return _summed(items, names, generator.name, list(zip(verdicts[::2], verdicts[1::2], strict=True)))


def verdict(reply: str) -> int | None:
    """0, 1 or 2; None where the reply names none. What a model thinks aloud before does not count."""
    found = _MARK.search(_THOUGHT.sub("", reply))
    return int(found[0]) if found else None


def judge_section(judged: Judged) -> Section:
    """What the judge said, for the report."""
    more = ("same verdict in both orders, %", "first place preferred, %", "unusable pairs")
    cells = (f"{judged.consistent:.0%}", f"{judged.first_place:.0%}", str(judged.unusable))
    names = judged.preference.names
    row = preference_row("Which answer is better?", judged.preference, cells)
    title = f"Judge {judged.llm}: {names[0]} and {names[1]}"
    return Section("judge", "Judged by an LLM", (preferences_table("judge", title, names, [row], more),))


def _prompt(item: Item, swap: bool) -> str:
    first, second = (item.b, item.a) if swap else (item.a, item.b)
    return _PROMPT.format(
        question=item.example.query.text,
        domain=" > ".join(item.example.query.domain) or "unknown",
        reference=" / ".join(item.example.references),
        first=first,
        second=second,
    )


def _read(kept: Path) -> dict[str, str]:
    if not kept.is_file():
        return {}
    try:
        return {str(row["key"]): str(row["reply"]) for row in read_jsonl(kept)}
    except KeyError as error:
        raise DataError(f"{kept} lacks {error} in a line: delete it, and the judge is asked again") from error


def _summed(
    items: Sequence[Item], names: tuple[str, str], llm: str, verdicts: Sequence[tuple[int | None, int | None]]
) -> Judged:
    """Values of the pairs whose both replies can be used: the first system is 1 unswapped and 2 swapped."""
    usable = [(item, a, b) for item, (a, b) in zip(items, verdicts, strict=True) if a is not None and b is not None]
    if not usable:
        raise DataError(f"{llm} named no verdict in any reply: it cannot judge; use a larger model")
    values = [{(1, 2): 1.0, (2, 1): -1.0}.get((a, b), 0.0) for _, a, b in usable]
    consistent = sum((a, b) in ((1, 2), (2, 1), (0, 0)) for _, a, b in usable) / len(usable)
    decided = [mark for _, a, b in usable for mark in (a, b) if mark != 0]
    found = preference(names, values, [item.cluster for item, _, _ in usable])
    return Judged(
        llm,
        corrected_together([found])[0],
        consistent,
        sum(mark == 1 for mark in decided) / len(decided) if decided else 0.5,
        len(items) - len(usable),
    )
