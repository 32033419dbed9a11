"""The data card of a training set: what is in it, what was kept out and why.

`Tally` counts while the set is made; `make_card` turns it into a JSON-ready description, `card_text` into lines.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from dmnrag.data.exchange import DprInstance
from dmnrag.metrics import same_domain_at_k
from dmnrag.training.guards import Verdict
from dmnrag.training.negatives_pool import Pool
from dmnrag.training.negatives_settings import TrainingSetSettings

Kind = Literal["negatives", "hard_negatives"]
KINDS: tuple[Kind, ...] = ("negatives", "hard_negatives")

_SAMPLES = 5
"""Removed pairs shown of each guard."""
_SHOWN = 120
"""Characters of a text in a sample."""
_NAMED = 10
"""Questions named for each reason."""


class Removed(NamedTuple):
    """A candidate that became no negative."""

    kind: Kind
    question: int
    candidate: int
    verdict: Verdict


class Tally:
    """What happened while a training set was made."""

    def __init__(self) -> None:
        self.looked_at: Counter[Kind] = Counter()
        self.removed: list[Removed] = []
        self.short: dict[Kind, dict[str, list[str]]] = {kind: {} for kind in KINDS}
        """kind -> reason -> doc_ids of the questions that got fewer than wanted."""
        self.left_out: dict[str, list[str]] = {}
        """reason -> doc_ids of the questions that gave no instance."""
        self._same_domain: Counter[Kind] = Counter()
        self._with_domain: Counter[Kind] = Counter()

    def add_domains(
        self, kind: Kind, of_question: tuple[str, ...], of_passages: Sequence[tuple[str, ...]], path: bool
    ) -> None:
        """Count the passages of the question's domain; a question without one is not counted."""
        share = (
            same_domain_at_k(of_passages, of_question, len(of_passages), "path" if path else "set")
            if of_passages
            else None
        )
        if share is not None:
            self._same_domain[kind] += round(share * len(of_passages))
            self._with_domain[kind] += len(of_passages)

    def same_domain(self, kind: Kind) -> float | None:
        """Share of the negatives that carry their question's (most specific) label."""
        n_counted = self._with_domain[kind]
        return self._same_domain[kind] / n_counted if n_counted else None


def make_card(
    instances: Sequence[DprInstance],
    tally: Tally,
    pool: Pool,
    settings: TrainingSetSettings,
    guards: Sequence[str],
    facts: dict[str, Any],
) -> dict[str, Any]:
    """JSON-ready description; `guards` are the names of those that were on, `facts` what is known of the source."""
    n_positives = sum(len(i.positive_ctxs) for i in instances)
    counts = {
        "negatives": sum(len(i.negative_ctxs) for i in instances),
        "hard_negatives": sum(len(i.hard_negative_ctxs) for i in instances),
    }
    return {
        **facts,
        "n_passages": len(pool),
        "n_instances": len(instances),
        "n_positives": n_positives,
        **{f"n_{kind}": count for kind, count in counts.items()},
        "ratio": [1.0, *(round(count / max(n_positives, 1), 3) for count in counts.values())],
        "looked_at": {kind: tally.looked_at[kind] for kind in KINDS},
        "removed": _removed_by_guard(tally, pool, guards, settings.seed),
        "promoted": sum(removed.verdict.promoted for removed in tally.removed),
        "same_domain": {kind: tally.same_domain(kind) for kind in KINDS},
        "left_short": {kind: _named(tally.short[kind]) for kind in KINDS},
        "left_out": _named(tally.left_out),
        "settings": settings.to_dict(),
    }


def card_text(card: dict[str, Any]) -> str:
    """The card in a few lines for people."""
    ratio = " : ".join(f"{part:g}" for part in card["ratio"])
    lines = [
        f"{card['n_instances']:,} questions, {card['n_positives']:,} positives, {card['n_negatives']:,} negatives, "
        f"{card['n_hard_negatives']:,} hard negatives ({ratio})"
    ]
    for kind in KINDS:
        share = card["same_domain"][kind]
        if share is not None:
            lines.append(f"{kind.replace('_', ' ')} of the question's domain: {share:.1%}")
    for guard, removed in card["removed"].items():
        of_kind = ", ".join(
            f"{removed[kind]:,} of {card['looked_at'][kind]:,} {kind.replace('_', ' ')}" for kind in KINDS
        )
        lines.append(f"kept out by {guard}: {of_kind}")
    for kind in KINDS:
        for reason, short in card["left_short"][kind].items():
            lines.append(f"{short['n']:,} questions with too few {kind.replace('_', ' ')}: {reason}")
    lines += [f"{left['n']:,} questions left out: {reason}" for reason, left in card["left_out"].items()]
    return "\n".join(lines)


def _removed_by_guard(tally: Tally, pool: Pool, guards: Sequence[str], seed: int) -> dict[str, Any]:
    """Counts and samples of each guard that was on, and of the rules that cannot be turned off where they acted."""
    by_guard: dict[str, list[Removed]] = {name: [] for name in guards}
    for removed in tally.removed:
        by_guard.setdefault(removed.verdict.guard, []).append(removed)
    described: dict[str, Any] = {}
    for name, rows in by_guard.items():
        shown = random.Random(f"{seed}/{name}").sample(rows, min(_SAMPLES, len(rows)))
        described[name] = {
            "negatives": sum(row.kind == "negatives" for row in rows),
            "hard_negatives": sum(row.kind == "hard_negatives" for row in rows),
            "samples": [_sample(row, pool) for row in shown],
        }
    return described


def _sample(row: Removed, pool: Pool) -> dict[str, Any]:
    question, candidate = pool.documents[row.question], pool.documents[row.candidate]
    return {
        "kind": row.kind,
        "value": round(row.verdict.value, 3),
        "promoted": row.verdict.promoted,
        "question": question.question[:_SHOWN],
        "gold": question.answers[0][:_SHOWN],
        "other_question": candidate.question[:_SHOWN],
        "removed": candidate.answers[0][:_SHOWN],
    }


def _named(reasons: dict[str, list[str]]) -> dict[str, Any]:
    return {reason: {"n": len(ids), "doc_ids": ids[:_NAMED]} for reason, ids in sorted(reasons.items())}
