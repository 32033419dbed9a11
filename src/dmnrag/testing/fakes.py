"""Small stand-ins for models: deterministic, instant, no torch. For tests of what uses models.

They see shared characters, no meaning: their rankings say nothing about a real model's.
"""

from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np

from dmnrag.protocols import FloatMatrix

_LONGEST_GRAM = 3


class HashEncoder:
    """Counts of hashed character n-grams (1 to 3), as vectors of length 1. A token is a character."""

    name = "fake"

    def __init__(self, dimension: int = 256, max_tokens: int = 512) -> None:
        """`max_tokens` counts two special tokens, as BERT's do."""
        self.dimension = dimension
        self.max_tokens = max_tokens

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """(n_texts, dimension)."""
        return self.encode_passages(texts)

    def encode_passages(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> FloatMatrix:
        """(n_texts, dimension); characters beyond `max_tokens` are not read."""
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for gram in _grams(text[: self.max_tokens - 2]):
                row[crc32(gram.encode("utf-8", "surrogatepass")) % self.dimension] += 1
            row[0] += not row.any()  # no text: still a vector of length 1
            if progress is not None:
                progress(1)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def passage_tokens(self, texts: Sequence[str]) -> list[int]:
        """Characters and two special tokens."""
        return [len(text) + 2 for text in texts]


class OverlapReranker:
    """Share of the question's character n-grams that the passage has."""

    name = "fake"

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """From 0 to 1."""
        wanted = set(_grams(question))
        return [len(wanted & set(_grams(passage))) / max(len(wanted), 1) for passage in passages]


def _grams(text: str) -> list[str]:
    return [text[i : i + n] for n in range(1, _LONGEST_GRAM + 1) for i in range(len(text) - n + 1)]
