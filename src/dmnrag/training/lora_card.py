"""The data card of an adapter's training set: what is in it, what was left out and why, and what the prompts show."""

from collections.abc import Sequence
from typing import Any, Protocol

from dmnrag.data.comparable import comparable
from dmnrag.training.negatives_pool import Pool, contains
from dmnrag.types import Prompt

_NAMED = 10
"""Questions named for each reason."""


class Example(Protocol):
    """What the card reads of an example."""

    @property
    def doc_id(self) -> str: ...  # noqa: D102
    @property
    def prompt(self) -> Prompt: ...  # noqa: D102
    @property
    def answer(self) -> str: ...  # noqa: D102


class LeftOut:
    """Questions that gave no example, by reason."""

    def __init__(self) -> None:
        self.reasons: dict[str, list[str]] = {}

    def keep(self, doc_id: str, why_not: str | None) -> bool:
        """Whether there is no reason; notes it where there is one, each question once."""
        if why_not is not None and doc_id not in self.reasons.setdefault(why_not, []):
            self.reasons[why_not].append(doc_id)
        return why_not is None


def make_lora_card(
    pool: Pool, train: Sequence[Example], dev: Sequence[Example], left_out: LeftOut, n_cut_at_stop: int
) -> dict[str, Any]:
    """JSON-ready description. Shares are of the training and dev prompts together.

    `own_documents` counts prompts that show the question's own document or a re-post of it: there must be none.
    """
    examples = [*train, *dev]
    return {
        "documents": len(pool),
        "questions": len(train),
        "dev_questions": len(dev),
        "left_out": {
            reason: {"n": len(ids), "doc_ids": ids[:_NAMED]} for reason, ids in sorted(left_out.reasons.items()) if ids
        },
        "several_answers": sum(len(pool.documents[pool.position[e.doc_id]].answers) > 1 for e in examples),
        "answers_cut_at_stop": n_cut_at_stop,
        "documents_shown": _mean([len(e.prompt.excerpts) for e in examples]),
        "without_documents": _mean([not e.prompt.excerpts for e in examples]),
        "documents_cut": _mean([any(excerpt.cut for excerpt in e.prompt.excerpts) for e in examples]),
        "gold_among_documents": _mean([_shows_gold(e) for e in examples]),
        "own_documents": sum(_shows_own(e, pool) for e in examples),
    }


def _shows_gold(example: Example) -> bool:
    """Whether a document of the prompt says what the answer says."""
    gold = comparable(example.answer)
    return any(contains(comparable(excerpt.text), gold) for excerpt in example.prompt.excerpts)


def _shows_own(example: Example, pool: Pool) -> bool:
    position = pool.position[example.doc_id]
    own = {pool.documents[i].doc_id for i in (position, *pool.reposts(position))}
    return not own.isdisjoint(excerpt.doc_id for excerpt in example.prompt.excerpts)


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0
