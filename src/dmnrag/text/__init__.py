"""Chinese-aware text: normalise, segment into terms for BM25, tokenise for ROUGE, split into sentences.

Knows nothing of documents, indexes or metrics. To add a segmenter: write a cutter in `cutters.py`
(normalised text to terms) and name it in `segment.py` and in `settings.SegmenterName`.
"""

from dmnrag.text.normalise import normalise as normalise
from dmnrag.text.normalise import to_simplified as to_simplified
from dmnrag.text.segment import TextSegmenter as TextSegmenter
from dmnrag.text.segment import make_segmenter as make_segmenter
from dmnrag.text.sentences import split_sentences as split_sentences
from dmnrag.text.settings import SEGMENTER_NAMES as SEGMENTER_NAMES
from dmnrag.text.settings import SegmenterName as SegmenterName
from dmnrag.text.settings import SegmenterSettings as SegmenterSettings
from dmnrag.text.tokens import tokenize_characters as tokenize_characters
from dmnrag.text.tokens import tokenize_words as tokenize_words

__all__ = [
    "SEGMENTER_NAMES",
    "SegmenterName",
    "SegmenterSettings",
    "TextSegmenter",
    "make_segmenter",
    "normalise",
    "split_sentences",
    "to_simplified",
    "tokenize_characters",
    "tokenize_words",
]
