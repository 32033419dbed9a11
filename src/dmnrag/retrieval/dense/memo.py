"""An encoder that remembers: the same text is encoded once, however often it is asked for."""

from collections.abc import Callable, Sequence

import numpy as np

from dmnrag.protocols import Encoder, FloatMatrix
from dmnrag.retrieval.dense.wrapped import WrappedEncoder


class MemoEncoder(WrappedEncoder):
    """Wraps an encoder for work that meets the same texts again: several layers, several splits.

    Holds every vector in memory: 1.5 kB per text at 384 dimensions.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self._queries: dict[str, FloatMatrix] = {}
        self._passages: dict[str, FloatMatrix] = {}

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """(n_texts, dimension)."""
        return self._remember(texts, self._queries, self._encoder.encode_queries)

    def encode_passages(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> FloatMatrix:
        """(n_texts, dimension)."""
        done = [0]

        def encode(new: Sequence[str]) -> FloatMatrix:
            def count(n_more: int) -> None:
                done[0] += n_more
                if progress is not None:
                    progress(n_more)

            return self._encoder.encode_passages(new, count)

        vectors = self._remember(texts, self._passages, encode)
        if progress is not None:
            progress(len(texts) - done[0])
        return vectors

    def _remember(
        self,
        texts: Sequence[str],
        known: dict[str, FloatMatrix],
        encode: Callable[[Sequence[str]], FloatMatrix],
    ) -> FloatMatrix:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known.update(zip(new, encode(new), strict=True))
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        return np.stack([known[text] for text in texts])
