"""Answers made elsewhere, scored: ROUGE by word and by character, length, and paired tests of the systems.

Knows nothing of indexes and LLMs: systems are names with a text per question.

Longer answers win ROUGE by themselves where the right answers are long, and short ones where these are short.
So the length stands beside ROUGE, and each pair of systems is compared a second time *length-matched*: for
each question the longer of the two answers is cut to the length of the shorter one, in characters, and both
are scored again. What remains of a difference does not come from how much was said. It rewards saying the
right thing first, and two answers of a few characters hardly differ, so it stands beside the plain comparison
and never replaces it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from dmnrag.data import repost_groups
from dmnrag.errors import ConfigError, DataError
from dmnrag.experiments.statistics import Contrast, Evaluation, summarise
from dmnrag.metrics import Segmentation, score_texts
from dmnrag.text import tokenize_characters, tokenize_words
from dmnrag.types import Example

LENGTH = "length (characters)"
"""Characters of the answer without space at its ends; over the questions that have an answer."""
UNANSWERED = "unanswered"
"""Share of the questions without an answer, or with an empty one: they score 0, nobody gains by skipping."""
LENGTH_MATCHED = "length-matched"
"""In the metric's name, where both answers of a pair were cut to the shorter one."""

_TOKENIZERS: tuple[tuple[Segmentation, Callable[[str], Sequence[str]]], ...] = (
    ("word", tokenize_words),
    ("character", tokenize_characters),
)
_Columns = dict[str, list[float | None]]
_LISTED_IN_ERROR = 5


def score_systems(answers: Mapping[str, Mapping[str, str]], gold: Sequence[Example], *, seed: int = 0) -> Evaluation:
    """Score each system's answers and compare each pair of systems on the same questions.

    A question that a system did not answer scores 0 in every ROUGE; how many these are is the metric
    `unanswered`. Where both systems of a pair answered, the length-matched scores are of the cut texts; where
    one did not, it scores 0 there too and the other answer counts whole.

    Args:
        answers: system -> query_id -> text.
        gold: the questions with their right answers; of several, the best counts for each figure.
        seed: of the resampling.

    Returns:
        Rows and comparisons as `evaluate` gives them. Intervals draw whole groups of near-identical
        questions: the clusters of `gold` where all have one, else re-posts are looked for.

    Raises:
        ConfigError: no system.
        DataError: no gold, a gold row without reference or twice, or an answer to an unknown question.
    """
    _check(answers, gold)
    clusters = _clusters(gold)
    query_ids = [example.query.query_id for example in gold]
    texts = {name: [by_id.get(q, "").strip() for q in query_ids] for name, by_id in answers.items()}
    values = {name: _rouge(column, gold) | _length(column) for name, column in texts.items()}
    missing = {name: {UNANSWERED: [float(not text) for text in column]} for name, column in texts.items()}
    pairs = list(combinations(texts, 2))
    found = summarise(values, clusters, pairs, seed=seed)
    found = found.merged(summarise(missing, clusters, (), seed=seed))
    matched: list[Contrast] = []
    for a, b in pairs:
        of_pair = _length_matched_values(a, b, texts, gold)
        matched += map(_as_length_matched, summarise(of_pair, clusters, [(a, b)], seed=seed).comparisons)
    comparisons = sorted([*found.comparisons, *matched], key=lambda c: pairs.index((c.a, c.b)))
    return Evaluation(len(gold), found.rows, comparisons)


def unanswered(answers: Mapping[str, str], gold: Sequence[Example]) -> int:
    """Number of questions without an answer, or with an empty one."""
    return sum(not answers.get(example.query.query_id, "").strip() for example in gold)


def _rouge(texts: Sequence[str], gold: Sequence[Example]) -> _Columns:
    references = [example.references for example in gold]
    columns: _Columns = {}
    for segmentation, tokenize in _TOKENIZERS:
        found = score_texts(texts, references, tokenize=tokenize, segmentation=segmentation).scores
        columns[f"ROUGE-1 ({segmentation})"] = [score.rouge1 for score in found]
        columns[f"ROUGE-2 ({segmentation})"] = [score.rouge2 for score in found]
        columns[f"ROUGE-L ({segmentation})"] = [score.rouge_l for score in found]
    return columns


def _length(texts: Sequence[str]) -> _Columns:
    return {LENGTH: [float(len(text)) if text else None for text in texts]}


def _length_matched_values(
    a: str, b: str, texts: Mapping[str, Sequence[str]], gold: Sequence[Example]
) -> dict[str, _Columns]:
    cut = [_length_matched(x, y) for x, y in zip(texts[a], texts[b], strict=True)]
    return {a: _rouge([x for x, _ in cut], gold), b: _rouge([y for _, y in cut], gold)}


def _length_matched(a: str, b: str) -> tuple[str, str]:
    if not a or not b:
        return a, b
    length = min(len(a), len(b))
    return a[:length], b[:length]


def _as_length_matched(contrast: Contrast) -> Contrast:
    return replace(contrast, metric=f"{contrast.metric.removesuffix(')')}, {LENGTH_MATCHED})")


def _clusters(gold: Sequence[Example]) -> list[str]:
    if all(example.cluster for example in gold):
        return [example.cluster for example in gold]
    groups = repost_groups([e.query.text for e in gold], [e.references for e in gold])
    return [str(group) for group in groups]


def _check(answers: Mapping[str, Mapping[str, str]], gold: Sequence[Example]) -> None:
    if not answers:
        raise ConfigError("there are no answers to score: give at least one system")
    if not gold:
        raise DataError("there are no questions with right answers to score by")
    known = {example.query.query_id for example in gold}
    if len(known) < len(gold):
        raise DataError(f"{len(gold)} gold rows have only {len(known)} different query_ids; each must be unique")
    for name, by_id in answers.items():
        unknown = [query_id for query_id in by_id if query_id not in known]
        if unknown:
            shown = ", ".join(map(repr, unknown[:_LISTED_IN_ERROR]))
            more = ", ..." if len(unknown) > _LISTED_IN_ERROR else ""
            raise DataError(
                f"{name}: {len(unknown):,} of {len(by_id):,} answers belong to no gold question: {shown}"
                f"{more}; is this the gold file of these answers?"
            )
