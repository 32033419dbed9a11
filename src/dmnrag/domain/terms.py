"""Texts as weighted terms: tf-idf of CJK characters, pairs of them, and words of other scripts.

Rows have length 1 counting *all* terms of the text, also those that are not weighed, which count like terms of one
document. So a text in unknown words gives a short vector, and little speaks for any label.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmnrag.text import SegmenterSettings, TextSegmenter, make_segmenter

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]


def term_segmenter(*, simplify: bool) -> TextSegmenter:
    """What cuts texts for domain models, whatever segmenter the index has."""
    return make_segmenter(SegmenterSettings(name="unigram+bigram", simplify=simplify))


@dataclass(frozen=True, slots=True)
class TermWeights:
    """Which terms are weighed, and by how much."""

    segmenter: TextSegmenter
    numbers: dict[str, int]
    """Term to column."""
    idf: Floats
    """(n_terms,) ln((1 + N) / (1 + df)) + 1, scikit-learn's smoothed form."""
    unknown_idf: float
    """Of every other term: the value for df = 1."""

    @classmethod
    def learn(cls, texts: Sequence[str], segmenter: TextSegmenter, max_terms: int) -> "TermWeights":
        """The terms that at least two texts have, the most frequent `max_terms` of them, ties by term."""
        frequencies: Counter[str] = Counter()
        for text in texts:
            frequencies.update(set(segmenter.segment(text)))
        repeated = [(term, n) for term, n in frequencies.items() if n > 1]
        repeated.sort(key=lambda pair: (-pair[1], pair[0]))
        chosen = repeated[:max_terms]
        counts = np.array([n for _, n in chosen], np.float64)
        return cls(
            segmenter,
            {term: number for number, (term, _) in enumerate(chosen)},
            (np.log((1 + len(texts)) / (1 + counts)) + 1).astype(np.float32),
            float(np.log((1 + len(texts)) / 2) + 1),
        )

    def vector(self, text: str) -> tuple[Ids, Floats]:
        """Columns and values of a text, (n_found,) each; values are (1 + ln tf) * idf over the length of all."""
        counts = Counter(self.segmenter.segment(text))
        known = [(number, n) for term, n in counts.items() if (number := self.numbers.get(term)) is not None]
        ids = np.array([number for number, _ in known], np.int32)
        values = (1 + np.log(np.array([n for _, n in known], np.float64))) * self.idf[ids]
        unknown = np.array([n for term, n in counts.items() if term not in self.numbers], np.float64)
        rest = (1 + np.log(unknown)) * self.unknown_idf
        length = np.sqrt(values @ values + rest @ rest)
        return ids, (values / length if length else values).astype(np.float32)

    def matrix(self, texts: Sequence[str]) -> Any:
        """Rows of `vector` as a scipy CSR matrix (n_texts, n_terms)."""
        from scipy.sparse import csr_matrix

        rows = [self.vector(text) for text in texts]
        bounds = np.concatenate([[0], np.cumsum([len(ids) for ids, _ in rows])])
        ids = np.concatenate([ids for ids, _ in rows])
        values = np.concatenate([values for _, values in rows])
        return csr_matrix((values, ids, bounds), shape=(len(texts), len(self.idf)))
