"""The six methods answered by an LLM and scored with ROUGE against the right answers."""

from collections.abc import Callable, Sequence

from dmnrag.experiments.downstream import SEGMENTATIONS, Values
from dmnrag.methods import BASELINE, METHODS, Method
from dmnrag.metrics import score_texts
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.types import Answer, Example

METHOD_PAIRS = tuple((method.name, BASELINE.name) for method in METHODS if method != BASELINE)
"""Each method against the paper's baseline."""


def usable_methods(pipeline: Pipeline) -> list[Method]:
    """The methods that an index can do: without domains only the baseline."""
    return [m for m in METHODS if pipeline.index.domains or not m.needs_domain]


def answer_all(
    pipeline: Pipeline,
    examples: Sequence[Example],
    settings: AskSettings,
    on_progress: Callable[[str, int, int], None],
) -> dict[str, list[Answer]]:
    """Each usable method's answers, in the order of the questions."""
    methods = usable_methods(pipeline)
    total = len(methods) * len(examples)
    done = 0

    def count(n_more: int) -> None:
        nonlocal done
        done += n_more
        on_progress("answers", done, total)

    on_progress("answers", 0, total)
    queries = [example.query for example in examples]
    return {m.name: pipeline.ask_all(queries, m, settings, count) for m in methods}


def score_answers(texts: Sequence[str], examples: Sequence[Example]) -> Values:
    """ROUGE-1/2/L F1 by word and by character of one answer per question."""
    references = [list(example.references) for example in examples]
    values: Values = {}
    for name, tokenize in SEGMENTATIONS.items():
        scores = score_texts(list(texts), references, tokenize, segmentation=name).scores
        values[f"ROUGE-1 ({name})"] = [s.rouge1 for s in scores]
        values[f"ROUGE-2 ({name})"] = [s.rouge2 for s in scores]
        values[f"ROUGE-L ({name})"] = [s.rouge_l for s in scores]
    return values
