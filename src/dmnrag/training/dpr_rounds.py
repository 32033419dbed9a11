"""Iterative mining, the "DPR" recipe of the paper's ablation: learn, find what is ranked too high, learn from that.

Round 0 has the golds of other questions alone. Each further round takes the wrong results that the retriever of the
round before ranks high as hard negatives and trains on from its weights. The best round by the dev slice is kept,
and rounds end when one is no better. Source: Zhang et al. 2025, ablation; Xiong et al. 2021 (ANCE).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dmnrag.data.exchange import DprInstance
from dmnrag.training.dpr_record import DprResult
from dmnrag.training.settings import DprSettings

Mine = Callable[[int, Path | None], Sequence[DprInstance]]
"""Gives the training set of a round, from the encoder of the round before (None before round 0)."""

Train = Callable[[int, Sequence[DprInstance], DprSettings, str | None], DprResult]
"""Trains a round from the encoder of the round before (None: from the given one)."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """What each round came to."""

    results: tuple[DprResult, ...]
    best: int
    """Number of the round that is kept."""

    @property
    def kept(self) -> DprResult:
        """The best round, with the untrained encoder's figures to compare with."""
        return replace(self.results[self.best], untrained=self.results[0].untrained)

    def table(self) -> list[dict[str, Any]]:
        """One JSON-ready row a round: dev figures before and after, and which one is kept."""
        return [
            {"round": number, **result.to_dict(), "kept": number == self.best}
            for number, result in enumerate(self.results)
        ]


def train_rounds(mine: Mine, train: Train, settings: DprSettings, n_rounds: int) -> Rounds:
    """Round 0 and at most `n_rounds` further ones.

    Args:
        mine: called once a round.
        train: called once a round.
        settings: of every round; round 0 has no hard negatives.
        n_rounds: further rounds at most.
    """
    results = [train(0, mine(0, None), replace(settings, hard_negatives=0), None)]
    best = 0
    for number in range(1, n_rounds + 1):
        former = results[best].folder
        results.append(train(number, mine(number, former), settings, str(former)))
        if not _is_better(results[number], results[best]):
            break
        best = number
    return Rounds(tuple(results), best)


def _is_better(result: DprResult, former: DprResult) -> bool:
    """Without dev questions the last round counts as the best."""
    if result.scores is None or former.scores is None:
        return True
    return result.scores.mrr_10 > former.scores.mrr_10
