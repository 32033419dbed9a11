"""What a cell leaves: its predictions, its figures and what they cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dmnrag.experiments.answers import score_answers
from dmnrag.experiments.matrix.cache import AnswerCache, CachedAnswer
from dmnrag.experiments.matrix.controls import first_answer
from dmnrag.experiments.matrix.prompting import Written
from dmnrag.experiments.records import Cell, CellCost, CellMetrics, Evidence, Prediction
from dmnrag.experiments.score import LENGTH
from dmnrag.types import Example


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of a cell as it was put, and the key of its answer."""

    written: Written
    key: str | None
    """None where there is no prompt."""


def predictions_of(asked: Sequence[Asked], cache: AnswerCache, failed: Mapping[str, str]) -> list[Prediction]:
    """What is known of each question; those that were not asked yet are left out."""
    rows = []
    for one in asked:
        answer = None if one.key is None else cache.get(one.key)
        error = one.written.error or failed.get(one.key or "")
        if answer is not None:
            rows.append(answered(one.written, answer))
        elif error is not None:
            rows.append(Prediction(one.written.query_id, one.written.prompt, "", None, None, {}, error))
    return rows


def answered(written: Written, answer: CachedAnswer) -> Prediction:
    """An answer as a prediction."""
    return Prediction(
        written.query_id,
        written.prompt,
        answer.text,
        answer.finish_reason,
        answer.usage,
        {"generation": answer.ms},
    )


def copied(rows: Sequence[Evidence]) -> list[Prediction]:
    """The control that copies: the first document's answer, without an LLM; nothing where nothing was found."""
    return [Prediction(row.query_id, None, first_answer(row), "stop", None) for row in rows]


def measure(
    predictions: Sequence[Prediction], examples: Sequence[Example], metrics: Sequence[str], inputs: str
) -> CellMetrics:
    """The figures of a cell: a value per question, None where there is no answer."""
    texts = {row.query_id: row.answer for row in predictions if row.error is None}
    places = [i for i, example in enumerate(examples) if example.query.query_id in texts]
    kept = [examples[i] for i in places]
    answers = [texts[example.query.query_id] for example in kept]
    found = score_answers(answers, kept) | {LENGTH: [_length(text) for text in answers]}
    values: dict[str, tuple[float | None, ...]] = {}
    for name in metrics:
        of_question = dict(zip(places, found[name], strict=True))
        values[name] = tuple(of_question.get(i) for i in range(len(examples)))
    return CellMetrics(
        n=len(examples),
        answered=len(places),
        failed=len(examples) - len(places),
        complete=len(places) == len(examples),
        values=values,
        inputs=inputs,
    )


def cost_of(cell: Cell, asked: Sequence[Asked], cache: AnswerCache) -> CellCost:
    """What a cell's answers cost: those it was the first to ask for."""
    keys = dict.fromkeys(one.key for one in asked if one.key is not None)
    answers = [answer for key in keys if (answer := cache.get(key)) is not None]
    own = [answer for answer in answers if answer.cell == cell.id]
    return CellCost(
        seconds=round(sum(answer.ms for answer in own) / 1000, 3),
        prompt_tokens=sum(answer.usage.prompt_tokens for answer in own),
        completion_tokens=sum(answer.usage.completion_tokens for answer in own),
        generated=len(own),
        from_cache=len(answers) - len(own),
    )


def _length(text: str) -> float | None:
    stripped = text.strip()
    return float(len(stripped)) if stripped else None
