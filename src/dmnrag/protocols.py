"""What each replaceable part must do. `dmnrag.testing` holds the contract tests of these.

A part that fulfils its protocol can take the place of any other: nothing downstream asks which it is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dmnrag.types import Domain, DomainUse, Generation, GenerationSettings, Hit, Prompt, Query

FloatMatrix = npt.NDArray[np.float32]
"""Row vectors, (n_texts, dimension)."""


class Segmenter(Protocol):
    """Turns text into the terms that BM25 counts. The same one serves index and query."""

    @property
    def name(self) -> str: ...

    def segment(self, text: str) -> list[str]:
        """Terms of one text in order, repeated as often as they occur."""
        ...

    def segment_all(self, texts: Sequence[str]) -> list[list[str]]:
        """Equal to `[segment(t) for t in texts]`, faster."""
        ...


class SparseIndex(Protocol):
    """First layer: BM25."""

    def search(
        self,
        queries: Sequence[Query],
        k: int,
        *,
        use: DomainUse = ...,
        allowed: Sequence[Domain | None] | None = None,
    ) -> list[list[Hit]]:
        """The k best documents of each query, best first, ties by doc_id, never a score of 0.

        `allowed[i]`, where not None, keeps documents that carry one of its labels, before scoring;
        an empty tuple keeps none.
        """
        ...


class Encoder(Protocol):
    """Text to vectors for the second layer. Vectors are compared by dot product."""

    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    @property
    def max_tokens(self) -> int:
        """Longest passage it reads, in its own tokens, special tokens included."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix: ...

    def encode_passages(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> FloatMatrix:
        """(n_texts, dimension). `progress` is called with the number of texts done since the last call."""
        ...

    def passage_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as a passage, prefix and special tokens included, nothing cut."""
        ...


class DenseIndex(Protocol):
    """Second layer: nearest passages by dot product; a document counts with its best part."""

    def search(
        self, vectors: FloatMatrix, k: int, *, allowed: Sequence[Domain | None] | None = None
    ) -> list[list[Hit]]:
        """As `SparseIndex.search`, for query vectors (n_queries, dimension)."""
        ...

    def rescore(self, vectors: FloatMatrix, candidates: Sequence[Sequence[str]], k: int) -> list[list[Hit]]:
        """The k best of the given doc_ids of each query, scored exactly."""
        ...


class Reranker(Protocol):
    """Scores question and passage together; higher is better."""

    @property
    def name(self) -> str: ...

    def score(self, question: str, passages: Sequence[str]) -> list[float]: ...


class TokenCounter(Protocol):
    """Counts and cuts text in a model's own tokens."""

    def count(self, text: str) -> int: ...


class Generator(Protocol):
    """An LLM. Batch in, batch out; a batch gives the same texts as one prompt at a time."""

    @property
    def name(self) -> str: ...

    @property
    def context_tokens(self) -> int | None:
        """Prompt and answer together may have this many tokens; None where unknown."""
        ...

    @property
    def counter(self) -> TokenCounter: ...

    def prompt_tokens(self, prompt: Prompt) -> int:
        """Tokens of the prompt as sent, roles and special tokens included."""
        ...

    def generate(self, prompts: Sequence[Prompt], settings: GenerationSettings) -> list[Generation]: ...

    def stream(
        self, prompt: Prompt, settings: GenerationSettings, cancelled: Callable[[], bool] = ...
    ) -> Iterator[str | Generation]:
        """Pieces of text as they come, then the whole as a `Generation`; stops soon after `cancelled()`."""
        ...
