"""What encoders that wrap another one have in common: all but encoding is the wrapped one's."""

from collections.abc import Sequence

from dmnrag.protocols import Encoder, FloatMatrix


class WrappedEncoder:
    """Passes everything on; a subclass says how passages are encoded."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    @property
    def name(self) -> str:
        """Name of the wrapped encoder."""
        return self._encoder.name

    @property
    def dimension(self) -> int:
        """Length of its vectors."""
        return self._encoder.dimension

    @property
    def max_tokens(self) -> int:
        """Longest passage it reads."""
        return self._encoder.max_tokens

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """(n_texts, dimension)."""
        return self._encoder.encode_queries(texts)

    def passage_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as a passage."""
        return self._encoder.passage_tokens(texts)
