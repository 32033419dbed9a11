"""Questions of fields that an index is not about: those of the bundled sample corpora, where they are foreign to it.

Removing a document leaves a search with its neighbours; a question about something else finds none. Without such
questions a model has no reason to heed how little a question has to do with the index, since all others have much.
"""

from collections import Counter
from collections.abc import Sequence, Set
from functools import cache

from dmnrag.data import load_sample
from dmnrag.data.samples import SAMPLES
from dmnrag.refusal.features import bigrams
from dmnrag.types import Document

TYPICAL = 0.05
"""A pair of characters in this share of a sample corpus's documents is typical of it, unless it is one of another's."""
PRESENT = 0.01
"""A pair of characters in this share of an index's documents belongs to what it is about."""
SHARED_FIELD = 0.5
"""Share of a sample's typical pairs from which an index is about the same field. Real medical records hold 61 to 71 %
of the medical ones and 14 % of the legal ones, legal questions 85 to 87 % and 8 to 10 %, an airline's FAQ 25 and 45.
"""


def foreign_questions(documents: Sequence[Document]) -> list[str]:
    """The questions of every sample corpus that is of another field than the documents.

    Args:
        documents: of an index; some hundred are enough to tell its field.
    """
    held = _frequent([_text(document) for document in documents], PRESENT)
    return [
        question
        for name in SAMPLES
        if len(typical_pairs(name) & held) < SHARED_FIELD * len(typical_pairs(name))
        for question in _questions(name)
    ]


@cache
def typical_pairs(name: str) -> Set[str]:
    """Pairs of characters that are frequent in one sample corpus and not in the others."""
    texts = {sample: [_text(document) for document in load_sample(sample)[0]] for sample in SAMPLES}
    others = [_frequent(texts[sample], TYPICAL / 5) for sample in SAMPLES if sample != name]
    return _frequent(texts[name], TYPICAL) - set().union(*others)


def _questions(name: str) -> list[str]:
    documents, examples = load_sample(name)
    return [document.question for document in documents] + [example.query.text for example in examples]


def _text(document: Document) -> str:
    return "\n".join((document.question, *document.answers))


def _frequent(texts: Sequence[str], share: float) -> Set[str]:
    counts = Counter(pair for text in texts for pair in bigrams(text))
    return {pair for pair, n in counts.items() if n >= share * len(texts)}
