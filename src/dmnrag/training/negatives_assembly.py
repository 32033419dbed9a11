"""Puts training instances together: positives first, then candidates one by one until the ratio is reached.

Knows documents, passages and guards; knows no index, no search and no encoder. Rankings come in as lists of ids.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dmnrag.data.exchange import DprContext, DprInstance
from dmnrag.training.card import KINDS, Kind, Removed, Tally
from dmnrag.training.guards import Asked, Candidate, Guards, Verdict
from dmnrag.training.mining import Scored, tail_places
from dmnrag.training.negatives_passages import PassageWriter
from dmnrag.training.negatives_pool import Pool
from dmnrag.training.negatives_settings import TrainingSetSettings

QUOTED = "the answer quotes the question"
TOO_FEW = "too few documents"
REMOVED = "removed by guards"


@dataclass(slots=True)
class _Draft:
    """An instance in the making."""

    position: int
    positives: list[DprContext]
    right: set[str]
    """Texts that are right, in comparable form."""
    used: set[int]
    """Positions of the documents that stand in it."""
    lists: dict[Kind, list[DprContext]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    domains: dict[Kind, list[tuple[str, ...]]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    n_removed: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    texts: set[str] = field(default_factory=set)
    """Texts of the negatives, in comparable form."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Candidates of one kind for one question, in the order in which they are looked at."""

    kind: Kind
    asked: Asked
    candidates: Iterator[tuple[Candidate, int | None]]
    """With their rank, where they come from a ranking."""


class Assembler:
    """Puts instances together, one question after the other."""

    def __init__(self, pool: Pool, settings: TrainingSetSettings, guards: Guards, path: bool) -> None:
        self.tally = Tally()
        self.guards = guards
        self._pool = pool
        self._settings = settings
        self._writer = PassageWriter(settings)
        self._path = path
        self._per_positive: dict[Kind, int] = {
            "negatives": settings.negatives,
            "hard_negatives": settings.hard_negatives,
        }

    def instance(self, position: int, ranked: Scored, *, from_tail: bool) -> DprInstance | None:
        """The instance of a question; None where nothing right is left that does not quote it."""
        document = self._pool.documents[position]
        draft = self._draft(position)
        if not draft.positives:
            self.tally.left_out.setdefault(QUOTED, []).append(document.doc_id)
            return None
        drawn, mined = self._random(position), self._mined(position, ranked, from_tail=from_tail)
        # Random ones first and, where a hard candidate became a positive, once more: they stay the same in all rounds.
        for source in (drawn, mined, drawn):
            self._fill(draft, source)
        self._count(draft, mines=not from_tail or self._settings.first_layer != "none")
        return DprInstance(
            question=self._writer.question(document),
            answers=document.answers,
            positive_ctxs=tuple(draft.positives),
            negative_ctxs=tuple(draft.lists["negatives"]),
            hard_negative_ctxs=tuple(draft.lists["hard_negatives"]),
            domain=document.domain,
            extra={
                "query_id": document.doc_id,
                "right_ids": [self._pool.documents[i].doc_id for i in self._pool.reposts(position)],
            },
        )

    def _draft(self, position: int) -> _Draft:
        draft = _Draft(position, [], set(self._pool.answers[position]), {position})
        for owner, number in ((position, 0), *self._pool.further_answers(position)):
            if len(draft.positives) == self._settings.max_positives:
                break
            self._add_positive(draft, owner, number)
        return draft

    def _add_positive(self, draft: _Draft, owner: int, number: int) -> None:
        document = self._pool.documents[owner]
        text = self._writer.passage(document, number)
        if not self._writer.quotes(text, self._pool.documents[draft.position]):
            passage_id = document.doc_id if number == 0 else f"{document.doc_id}#{number + 1}"
            draft.positives.append(DprContext("", text, passage_id))
            draft.right.add(self._pool.answers[owner][number])
            draft.used.add(owner)

    def _random(self, position: int) -> _Source:
        generator = random.Random(f"{self._settings.seed}/{self._pool.documents[position].doc_id}/random")
        n_drawn = min(len(self._pool), self._settings.candidates)
        drawn = generator.sample(self._pool.by_id, n_drawn)
        return _Source("negatives", Asked(position), iter([(Candidate(i), None) for i in drawn]))

    def _mined(self, position: int, ranked: Scored, *, from_tail: bool) -> _Source:
        doc_id, known = self._pool.documents[position].doc_id, self._pool.position
        own_score = next((score for other, score in ranked if other == doc_id), None)
        others = [(known[other], score) for other, score in ranked if other in known and other != doc_id]
        places: Sequence[int] = range(len(others))
        if from_tail:
            window = tail_places(len(others), self._settings.first_rank, self._settings.last_rank)
            generator = random.Random(f"{self._settings.seed}/{doc_id}/tail")
            places = generator.sample(window, min(self._settings.candidates, len(window)))
        chosen = [(Candidate(*others[place]), place + 1) for place in places[: self._settings.candidates]]
        return _Source("hard_negatives", Asked(position, own_score), iter(chosen))

    def _fill(self, draft: _Draft, source: _Source) -> None:
        """Take candidates until there are as many as the positives ask for, or no more."""
        chosen = draft.lists[source.kind]
        while len(chosen) < self._wanted(draft, source.kind):
            candidate, rank = next(source.candidates, (None, None))
            if candidate is None:
                return
            if candidate.position in draft.used:
                continue
            self.tally.looked_at[source.kind] += 1
            document = self._pool.documents[candidate.position]
            text = self._writer.passage(document)
            verdict = self.guards.check(source.asked, candidate) or self._never(draft, candidate.position, text)
            if verdict is not None:
                self._remove(draft, source.kind, candidate, verdict)
                continue
            extra = {} if rank is None else {"rank": rank}
            chosen.append(DprContext("", text, document.doc_id, candidate.score, extra))
            draft.domains[source.kind].append(document.domain)
            draft.used.add(candidate.position)
            draft.texts.add(self._pool.answers[candidate.position][0])

    def _wanted(self, draft: _Draft, kind: Kind) -> int:
        return self._per_positive[kind] * len(draft.positives)

    def _never(self, draft: _Draft, position: int, text: str) -> Verdict | None:
        """What no setting allows: a text that is right or stands there already, or one that holds the question."""
        if self._pool.answers[position][0] in draft.right | draft.texts:
            return Verdict("equal text", 1.0)
        if self._writer.quotes(text, self._pool.documents[draft.position]):
            return Verdict("quotes the question", 1.0)
        return None

    def _remove(self, draft: _Draft, kind: Kind, candidate: Candidate, verdict: Verdict) -> None:
        n_before = len(draft.positives)
        new = self._pool.answers[candidate.position][0] not in draft.right | draft.texts
        if verdict.promoted and new and n_before < self._settings.max_positives:
            self._add_positive(draft, candidate.position, 0)
        if len(draft.positives) == n_before:
            verdict = Verdict(verdict.guard, verdict.value)
        draft.n_removed[kind] += 1
        self.tally.removed.append(Removed(kind, draft.position, candidate.position, verdict))

    def _count(self, draft: _Draft, *, mines: bool) -> None:
        document = self._pool.documents[draft.position]
        for kind in KINDS:
            self.tally.add_domains(kind, document.domain, draft.domains[kind], self._path)
            asked_for = kind == "negatives" or mines
            if asked_for and len(draft.lists[kind]) < self._wanted(draft, kind):
                reason = REMOVED if draft.n_removed[kind] else TOO_FEW
                self.tally.short[kind].setdefault(reason, []).append(document.doc_id)
