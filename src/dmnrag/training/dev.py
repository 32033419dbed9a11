"""A slice of the training questions to measure on while training: are their answers found among all answers?

The slice is taken from training, never from the test split. Re-posts stay on one side, and no answer of the slice
stays among the passages of the other side, as no test answer does in training. A tie never favours a gold: the
slice's own answers come last in the pool.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from dmnrag.data.comparable import comparable
from dmnrag.data.exchange import DprContext, DprInstance
from dmnrag.data.reposts import repost_groups
from dmnrag.errors import IndexDamagedError
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.sparse import Bm25Settings, EmbeddedSparseIndex, write_segment
from dmnrag.retrieval.table import DocumentTable
from dmnrag.text import SegmenterSettings, make_segmenter
from dmnrag.training.dpr_batches import passage_text, question_text
from dmnrag.training.settings import DprSettings
from dmnrag.types import PLAIN, Query

_LARGEST_SHARE = 0.2
"""Of the instances: more would take too much from a small training set."""

DEPTH = 10
"""Ranks that are looked at: recall@3, recall@10 and MRR@10."""

_QUERIES_AT_ONCE = 256

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DevSet:
    """Questions, and the answers among which theirs are to be found."""

    questions: tuple[str, ...]
    golds: tuple[frozenset[int], ...]
    """Places in the pool of each question's right answers; never empty."""
    pool: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DevScores:
    """Means over the dev questions."""

    recall_3: float
    recall_10: float
    mrr_10: float
    reciprocal_ranks: tuple[float, ...] = field(default=(), compare=False)
    """Of each question; their mean is the MRR. Empty where only the means were kept."""

    def to_dict(self) -> dict[str, float]:
        """The means by the measures' names."""
        return {"recall@3": self.recall_3, "recall@10": self.recall_10, "MRR@10": self.mrr_10}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "DevScores":
        """What `to_dict` gave, and the reciprocal ranks where they stand beside it."""
        ranks = tuple(values.get("reciprocal_ranks", ()))
        return cls(values["recall@3"], values["recall@10"], values["MRR@10"], ranks)


def split_dev(instances: Sequence[DprInstance], settings: DprSettings) -> tuple[list[DprInstance], DevSet]:
    """The instances to train on, and the dev slice.

    Whole groups of near-identical posts are taken in random order until there are `settings.dev_questions`, at
    most a fifth of the instances; a group that would exceed that is passed over. The order hangs on the texts, so
    a set that was mined anew for the same questions gives the same slice.
    """
    n_wanted = min(settings.dev_questions, int(_LARGEST_SHARE * len(instances)))
    chosen = _choose(instances, n_wanted, settings.seed) if n_wanted else set()
    dev = [instance for i, instance in enumerate(instances) if i in chosen]
    held = {comparable(context.text) for instance in dev for context in instance.positive_ctxs}
    train = [_without(instance, held) for i, instance in enumerate(instances) if i not in chosen]
    kept = [instance for instance in train if instance is not None]
    return kept, _dev_set(dev, kept, settings)


def _choose(instances: Sequence[DprInstance], n_wanted: int, seed: int) -> set[int]:
    groups = repost_groups(
        [instance.question for instance in instances],
        [[context.text for context in instance.positive_ctxs] for instance in instances],
    )
    members: dict[int, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    chosen: set[int] = set()
    for group in sorted(members, key=lambda g: min(_draw(seed, instances[place].question) for place in members[g])):
        if len(chosen) + len(members[group]) <= n_wanted:
            chosen.update(members[group])
    return chosen


def _without(instance: DprInstance, held: set[str]) -> DprInstance | None:
    """The instance without passages that say what a dev answer says; None where no positive is left."""
    positives, negatives, hard = (
        tuple(context for context in contexts if comparable(context.text) not in held)
        for contexts in (instance.positive_ctxs, instance.negative_ctxs, instance.hard_negative_ctxs)
    )
    if not positives:
        return None
    return replace(instance, positive_ctxs=positives, negative_ctxs=negatives, hard_negative_ctxs=hard)


def _dev_set(dev: Sequence[DprInstance], train: Sequence[DprInstance], settings: DprSettings) -> DevSet:
    golds = _distinct([context for instance in dev for context in instance.positive_ctxs])
    others = [context for instance in train for context in instance.positive_ctxs]
    fillers = [context for key, context in _distinct(others).items() if key not in golds]
    if settings.dev_pool:
        drawn = sorted(fillers, key=lambda context: _draw(settings.seed, context.text))
        fillers = drawn[: max(0, settings.dev_pool - len(golds))]
    place = {key: len(fillers) + number for number, key in enumerate(golds)}
    return DevSet(
        tuple(question_text(instance, with_domain=settings.domain_in_question) for instance in dev),
        tuple(frozenset(place[comparable(c.text)] for c in instance.positive_ctxs) for instance in dev),
        tuple(passage_text(context) for context in (*fillers, *golds.values())) if dev else (),
    )


def _draw(seed: int, text: str) -> bytes:
    """A number as good as random that belongs to the text."""
    return hashlib.sha256(f"{seed} {text}".encode()).digest()


def _distinct(contexts: Sequence[DprContext]) -> dict[str, DprContext]:
    found: dict[str, DprContext] = {}
    for context in contexts:
        found.setdefault(comparable(context.text), context)
    return found


def score_vectors(dev: DevSet, questions: FloatMatrix, pool: FloatMatrix) -> DevScores:
    """Dense retrieval by dot product; ties go to the earlier place in the pool."""
    rankings = []
    for start in range(0, len(questions), _QUERIES_AT_ONCE):
        scores = questions[start : start + _QUERIES_AT_ONCE] @ pool.T
        rankings.append(np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH])
    return score_rankings(dev, [list(map(int, row)) for block in rankings for row in block])


def score_bm25(dev: DevSet, segmenter: SegmenterSettings, bm25: Bm25Settings) -> DevScores:
    """The first layer on the same questions and the same pool, without the domain."""
    cutter = make_segmenter(segmenter)
    width = len(str(len(dev.pool)))
    ids = [f"{place:0{width}d}" for place in range(len(dev.pool))]
    with TemporaryDirectory() as folder:
        write_segment(Path(folder) / "pool", ((text, ()) for text in dev.pool), cutter)
        table = DocumentTable.from_lists(ids, [()] * len(ids))
        index = EmbeddedSparseIndex([Path(folder) / "pool"], table, cutter, bm25)
        queries = [Query(str(number), text) for number, text in enumerate(dev.questions)]
        hits = index.search(queries, DEPTH, use=PLAIN)
    return score_rankings(dev, [[int(hit.doc_id) for hit in found] for found in hits])


def score_rankings(dev: DevSet, rankings: Sequence[Sequence[int]]) -> DevScores:
    """recall@k: share of a question's golds among its first k; MRR@10: 1 / rank of the first one."""
    if len(rankings) != len(dev.questions):
        raise IndexDamagedError(f"{len(rankings)} rankings for {len(dev.questions)} questions")
    found = [[place in golds for place in ranking] for ranking, golds in zip(rankings, dev.golds, strict=True)]
    sizes = [len(golds) for golds in dev.golds]
    ranks = [1 / (1 + hits.index(True)) if True in hits else 0.0 for hits in found]
    return DevScores(
        _mean([sum(hits[:3]) / n for hits, n in zip(found, sizes, strict=True)]),
        _mean([sum(hits[:DEPTH]) / n for hits, n in zip(found, sizes, strict=True)]),
        _mean(ranks),
        tuple(ranks),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
