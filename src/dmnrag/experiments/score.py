"""Answers made elsewhere, scored: ROUGE by word and by character, length, and paired tests of the systems.

Knows nothing of indexes and LLMs: systems are names with a text per question.

Longer answers win ROUGE by themselves where the right answers are long, and short ones where these are short.
So the length stands beside ROUGE, and each pair of systems is compared a second time *length-matched*: for
each question the longer of the two answers is cut to the length of the shorter one, in characters, and both
are scored again. What remains of a difference does not come from how much was said. It rewards saying the
right thing first, and two answers of a few characters hardly differ, so it stands beside the plain comparison
and never replaces it.

All comparisons of a call are one family for Holm's correction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from dmnrag.data import repost_groups
from dmnrag.errors import ConfigError, DataError
from dmnrag.experiments.statistics import Contrast, Evaluation, corrected, resamples_for, summarise
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
_METRICS_A_PAIR = 2 * 3 * len(_TOKENIZERS) + 1
"""ROUGE-1, 2 and L, plain and length-matched, and the length."""


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
        questions: the clusters of `gold` where all have one, else re-posts are looked for. Comparisons carry p
        corrected over all of them.

    Raises:
        ConfigError: no system.
        DataError: no gold, a gold row without reference or twice, or an answer to an unknown question.
    """
    check_systems(answers, gold)
    clusters = question_clusters(gold)
    query_ids = [example.query.query_id for example in gold]
    texts = {name: [by_id.get(q, "").strip() for q in query_ids] for name, by_id in answers.items()}
    values = {name: answer_columns(column, gold) for name, column in texts.items()}
    missing = {name: {UNANSWERED: [float(not text) for text in column]} for name, column in texts.items()}
    pairs = list(combinations(texts, 2))
    resamples = resamples_for(len(pairs) * _METRICS_A_PAIR)
    found = summarise(values, clusters, pairs, seed=seed, resamples=resamples)
    found = found.merged(summarise(missing, clusters, (), seed=seed))
    matched: list[Contrast] = []
    for a, b in pairs:
        of_pair = dict(zip((a, b), length_matched_rouge(texts[a], texts[b], gold), strict=True))
        contrasts = summarise(of_pair, clusters, [(a, b)], seed=seed, resamples=resamples).comparisons
        matched += [replace(c, metric=length_matched_name(c.metric)) for c in contrasts]
    comparisons = sorted([*found.comparisons, *matched], key=lambda c: pairs.index((c.a, c.b)))
    return Evaluation(len(gold), found.rows, corrected(comparisons))


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


def length_matched_rouge(
    a: Sequence[str], b: Sequence[str], gold: Sequence[Example]
) -> tuple[dict[str, list[float | None]], dict[str, list[float | None]]]:
    """ROUGE of two systems' answers, each pair of answers cut to the shorter one's length in characters.

    Where one of the two is empty nothing is cut: it scores 0 and the other counts whole.
    """
    cut = [_length_matched(x, y) for x, y in zip(a, b, strict=True)]
    return _rouge([x for x, _ in cut], gold), _rouge([y for _, y in cut], gold)


def length_matched_name(metric: str) -> str:
    """`ROUGE-1 (word)` becomes `ROUGE-1 (word, length-matched)`."""
    return f"{metric.removesuffix(')')}, {LENGTH_MATCHED})"


def answer_columns(texts: Sequence[str], gold: Sequence[Example]) -> dict[str, list[float | None]]:
    """metric -> a value per question: ROUGE by word and by character, and the length."""
    return _rouge(texts, gold) | _length(texts)


def _length_matched(a: str, b: str) -> tuple[str, str]:
    if not a or not b:
        return a, b
    length = min(len(a), len(b))
    return a[:length], b[:length]


def question_clusters(gold: Sequence[Example]) -> list[str]:
    """The clusters of `gold` where all rows have one, else groups of near-identical questions."""
    if all(example.cluster for example in gold):
        return [example.cluster for example in gold]
    groups = repost_groups([e.query.text for e in gold], [e.references for e in gold])
    return [str(group) for group in groups]


def check_systems(answers: Mapping[str, Mapping[str, str]], gold: Sequence[Example]) -> None:
    """Refuse what cannot be scored; see `score_systems`."""
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
