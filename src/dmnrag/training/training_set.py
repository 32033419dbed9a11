"""The retriever's training set: gold, further right answers, golds of others, hard negatives (1 : 2 : 2).

For each training question the first layer ranks the documents; hard negatives are drawn from the tail of that list,
negatives are golds of other questions at random (RocketQA), and guards keep right answers out of both
(Zhang et al. 2025, "Training set of the retriever"; Karpukhin et al. 2020; Qu et al. 2021).
Iterative mining ("DPR" of the ablation): round 0 with `first_layer="none"`, then again with `rank`, the ranking of
the retriever trained so far. Positives and random negatives stay the same from round to round.
An index whose passages hold question and answer: train on answers alone and search such passages, or train with
`passage="question-part+answer"`; which of them pays is a matter of measurement.

Each question draws by its own generator, seeded by the seed and its id. So the set depends neither on the order of
the questions nor on the number of workers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from dmnrag.data.exchange import DprInstance
from dmnrag.errors import ConfigError, DataError
from dmnrag.index import Index
from dmnrag.index.build import Progress, no_progress
from dmnrag.protocols import Encoder
from dmnrag.training.card import make_card
from dmnrag.training.guards import Guards, Meaning
from dmnrag.training.mining import Rank, Scored, first_layer, rankings
from dmnrag.training.negatives_assembly import Assembler
from dmnrag.training.negatives_pool import Pool
from dmnrag.training.negatives_settings import GuardSettings, TrainingSetSettings
from dmnrag.types import Document, Query

__all__ = ["GuardSettings", "TrainingSet", "TrainingSetSettings", "build_training_set"]


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """Instances, and the card that describes them."""

    instances: list[DprInstance]
    card: dict[str, Any]


def build_training_set(
    index: Index,
    questions: Sequence[Document],
    settings: TrainingSetSettings,
    *,
    passages: Sequence[Document] = (),
    encoder: Encoder | None = None,
    rank: Rank | None = None,
    workers: int = 1,
    on_progress: Progress = no_progress,
) -> TrainingSet:
    """Build the training set of some of an index's documents.

    Args:
        index: whose first layer ranks.
        questions: the documents to learn from; no other's answer becomes a passage unless `passages` names it. So a
            dev slice that the caller leaves out stays out.
        settings: what is wanted.
        passages: further documents of the index whose answers may be negatives.
        encoder: for the guard by meaning; without one that guard is off, and the card says so. Each distinct answer
            is encoded once; a `MemoEncoder` makes that once over several calls.
        rank: ranks instead of the first layer; its highest wrong results become the hard negatives. It is called with
            queries, their domain included, and the number of documents wanted.
        workers: processes that search the first layer.
        on_progress: called with (stage, done, total).

    Returns:
        Instances in the order of `questions`. `extra` of each holds `query_id`, the doc_id of the question, and
        `right_ids`, those of its re-posts, whose golds are no negatives for it in a batch either.

    Raises:
        DataError: no question, a document given twice, or one that the index does not have.
        ConfigError: fewer than one worker, or promotion wanted without an encoder.
    """
    if workers < 1:
        raise ConfigError(f"workers is {workers}: allowed are whole numbers from 1")
    if settings.guards.promote is not None and encoder is None:
        raise ConfigError("promotion goes by meaning and needs an encoder: name one, or turn it off")
    pool = _pool(index, questions, passages)
    meaning = None
    if encoder is not None and settings.guards.meaning is not None:
        meaning = Meaning(pool, encoder, settings.seed, _counted(on_progress, "answers encoded", len(pool)))
    assembler = Assembler(pool, settings, Guards(pool, settings.guards, meaning), index.settings.domain_kind == "path")
    instances = []
    for done, (position, ranked) in enumerate(_ranked(index, pool, len(questions), settings, rank, workers), start=1):
        instance = assembler.instance(position, ranked, from_tail=rank is None)
        if instance is not None:
            instances.append(instance)
        on_progress("training questions", done, len(questions))
    facts = {
        "index": {"generation": index.manifest.generation, "settings": index.settings.to_dict()},
        "encoder": None if meaning is None or encoder is None else encoder.name,
        "mined_from": settings.first_layer if rank is None else "own ranking",
        "n_questions": len(questions),
    }
    card = make_card(instances, assembler.tally, pool, settings, assembler.guards.names, facts)
    return TrainingSet(instances, card)


def _pool(index: Index, questions: Sequence[Document], passages: Sequence[Document]) -> Pool:
    """Questions first, so that a question's position is its place among them."""
    if not questions:
        raise DataError("there is no training question: the index is empty, or all of it was set aside")
    own = {document.doc_id for document in questions}
    pool = Pool([*questions, *(document for document in passages if document.doc_id not in own)])
    missing = index.missing([document.doc_id for document in pool.documents])
    if missing:
        raise DataError(
            f"{index.folder} has no document {', '.join(missing[:5])}: training questions are documents of the index"
        )
    return pool


def _ranked(
    index: Index, pool: Pool, n_questions: int, settings: TrainingSetSettings, rank: Rank | None, workers: int
) -> Iterator[tuple[int, Scored]]:
    """Position and ranked list of each question; an empty list where none is wanted."""
    if not settings.hard_negatives or (rank is None and settings.first_layer == "none"):
        yield from ((position, []) for position in range(n_questions))
        return
    depth = settings.last_rank if rank is None else settings.candidates
    # Ranks count documents of the pool only, so a search must go deeper by as much as the index has more.
    k = min(index.n_documents, ceil(depth * index.n_documents / len(pool)) + 1)
    queries = [Query(d.doc_id, d.question, d.domain) for d in pool.documents[:n_questions]]
    position = 0
    for part in rankings(rank or first_layer(index, joint=settings.first_layer == "joint"), queries, k, workers):
        for ranked in part:
            yield position, ranked
            position += 1


def _counted(on_progress: Progress, stage: str, total: int) -> Callable[[int], None]:
    done = 0

    def report(n_more: int) -> None:
        nonlocal done
        done += n_more
        on_progress(stage, done, max(total, done))

    return report
