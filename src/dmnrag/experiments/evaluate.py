"""`evaluate`: retrieval, and with an LLM answers, on an index's held-out split."""

from collections.abc import Sequence

from dmnrag.errors import ConfigError
from dmnrag.experiments.answers import METHOD_PAIRS, answer_all, score_answers
from dmnrag.experiments.downstream import score_downstream
from dmnrag.experiments.pool import score_pool
from dmnrag.experiments.statistics import Evaluation, summarise
from dmnrag.experiments.systems import pairs_of, rank_all
from dmnrag.index import Index
from dmnrag.index.build import Progress, no_progress
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.types import Example

_DEPTH = 10


def evaluate_retrieval(pipeline: Pipeline, *, pool: bool = True, on_progress: Progress = no_progress) -> Evaluation:
    """Every system on the held-out questions: in the index, and with `pool` on the answer pool too.

    Raises:
        ConfigError: nothing was held out.
    """
    index = pipeline.index
    examples = held_out(index)
    values = score_downstream(index, rank_all(pipeline, examples, _DEPTH))
    if pool:
        for system, by_metric in score_pool(pipeline, on_progress).items():
            values[system] |= by_metric
    return summarise(values, _clusters(examples), pairs_of(index))


def evaluate_answers(
    pipeline: Pipeline,
    settings: AskSettings,
    *,
    limit: int | None = None,
    on_progress: Progress = no_progress,
) -> Evaluation:
    """ROUGE of each method's answers to the first `limit` held-out questions."""
    examples = held_out(pipeline.index)[:limit]
    answers = answer_all(pipeline, examples, settings, on_progress)
    values = {name: score_answers([a.text for a in rows], examples) for name, rows in answers.items()}
    return summarise(values, _clusters(examples), METHOD_PAIRS)


def held_out(index: Index) -> list[Example]:
    """The held-out questions.

    Raises:
        ConfigError: the index was built without any.
    """
    if not index.examples:
        raise ConfigError(
            f"{index.folder} has no held-out questions to evaluate on; "
            "build it with --test-size 0.2 (a share of the rows)"
        )
    return index.examples


def _clusters(examples: Sequence[Example]) -> list[str]:
    return [example.cluster or example.query.query_id for example in examples]
