"""The answers of one method, such as an adapter was trained for, on the held-out questions."""

from dmnrag.experiments.answers import score_answers
from dmnrag.experiments.evaluate import held_out
from dmnrag.experiments.statistics import Evaluation, summarise
from dmnrag.index.build import Progress, no_progress
from dmnrag.methods import Method
from dmnrag.pipeline import AskSettings, Pipeline


def evaluate_method(
    pipeline: Pipeline,
    method: Method,
    settings: AskSettings,
    *,
    limit: int | None = None,
    on_progress: Progress = no_progress,
) -> Evaluation:
    """ROUGE of the answers to the first `limit` held-out questions; the row is named METHOD, LLM.

    Raises:
        ConfigError: nothing was held out.
    """
    examples = held_out(pipeline.index)[:limit]
    done = 0

    def count(n_more: int) -> None:
        nonlocal done
        done += n_more
        on_progress("answers", done, len(examples))

    answers = pipeline.ask_all([example.query for example in examples], method, settings, count)
    values = score_answers([answer.text for answer in answers], examples)
    clusters = [example.cluster or example.query.query_id for example in examples]
    return summarise({f"{method.name}, {pipeline.generator.name}": values}, clusters, [])
