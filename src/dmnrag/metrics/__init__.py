"""ROUGE, retrieval measures and significance: pure functions without files, models or text cutting.

Knows nothing of segmenters: ROUGE takes tokens, or a function that makes them. To add a retrieval
measure, name it in `retrieval._MEASURES`.
"""

from dmnrag.metrics.retrieval import MEASURE_NAMES as MEASURE_NAMES
from dmnrag.metrics.retrieval import retrieval_measures as retrieval_measures
from dmnrag.metrics.retrieval import same_domain_at_k as same_domain_at_k
from dmnrag.metrics.rouge import RougeResult as RougeResult
from dmnrag.metrics.rouge import RougeScores as RougeScores
from dmnrag.metrics.rouge import RougeVariant as RougeVariant
from dmnrag.metrics.rouge import Segmentation as Segmentation
from dmnrag.metrics.rouge import best_rouge as best_rouge
from dmnrag.metrics.rouge import rouge as rouge
from dmnrag.metrics.rouge import score_texts as score_texts
from dmnrag.metrics.significance import Comparison as Comparison
from dmnrag.metrics.significance import Interval as Interval
from dmnrag.metrics.significance import bootstrap_mean as bootstrap_mean
from dmnrag.metrics.significance import holm as holm
from dmnrag.metrics.significance import paired_difference as paired_difference

__all__ = [
    "MEASURE_NAMES",
    "Comparison",
    "Interval",
    "RougeResult",
    "RougeScores",
    "RougeVariant",
    "Segmentation",
    "best_rouge",
    "bootstrap_mean",
    "holm",
    "paired_difference",
    "retrieval_measures",
    "rouge",
    "same_domain_at_k",
    "score_texts",
]
