"""Adds the measures that a results folder allows by itself to the arms of a study."""

from collections.abc import Sequence
from dataclasses import replace

from dmnrag.experiments.reporting.measures.diversity import distinct_column
from dmnrag.experiments.reporting.measures.given import given_columns
from dmnrag.experiments.reporting.study import Arm, Columns, Corpus, Study, mean_over_repeats
from dmnrag.grounding.support import supported_share
from dmnrag.types import Example

SUPPORTED = "supported clauses"
DISTINCT_1, DISTINCT_2 = "distinct-1 (word)", "distinct-2 (word)"


def with_measures(study: Study) -> Study:
    """The same study; complete arms gain support, distinct-n and the figures of their documents."""
    return replace(study, corpora=tuple(map(_measured, study.corpora)))


def _measured(corpus: Corpus) -> Corpus:
    arms = [arm.measured(_columns(corpus, arm)) if arm.complete else arm for arm in corpus.arms]
    return replace(corpus, arms=tuple(arms))


def _columns(corpus: Corpus, arm: Arm) -> Columns:
    columns: dict[str, tuple[float | None, ...]] = {
        DISTINCT_1: mean_over_repeats([distinct_column(_texts(texts), 1) for texts in arm.answers]),
        DISTINCT_2: mean_over_repeats([distinct_column(_texts(texts), 2) for texts in arm.answers]),
    }
    if any(row.documents for row in arm.evidence.values()):
        supported = [_supported(arm, _texts(texts), corpus.questions) for texts in arm.answers]
        columns[SUPPORTED] = mean_over_repeats(supported)
    if arm.cell.control is None:  # what a control was given says nothing of retrieval
        columns |= given_columns(arm.evidence, corpus.questions, arm.cell.k, corpus.card.domain_kind)
    return columns


def _supported(arm: Arm, texts: Sequence[str], questions: Sequence[Example]) -> tuple[float | None, ...]:
    shares = []
    for text, example in zip(texts, questions, strict=True):
        row = arm.evidence.get(example.query.query_id)
        documents = [answer for d in row.documents for answer in d.answers] if row else []
        shares.append(supported_share(text, documents))
    return tuple(shares)


def _texts(answers: Sequence[str | None]) -> list[str]:
    return [text or "" for text in answers]
