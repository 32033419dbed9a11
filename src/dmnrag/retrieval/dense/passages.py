"""From documents' texts to vectors: what is longer than the encoder reads is split at sentence ends.

Knows encoders through their protocol only. A document's parts each get a vector; the best one counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dmnrag.errors import ConfigError
from dmnrag.protocols import Encoder, FloatMatrix
from dmnrag.text import split_sentences

_COUNTED_AT_ONCE = 4096
"""Texts whose tokens are counted in one call; bounds the memory of their ids."""

_SPACE = "\t\n\r \u3000"


@dataclass(frozen=True, slots=True)
class EncodedDocuments:
    """Vectors of the parts of a list of texts, in the texts' order."""

    vectors: FloatMatrix
    """(n_parts, dimension)."""
    owners: npt.NDArray[np.int64]
    """(n_parts,) which text each part belongs to; never falls, and no text is without a part."""
    n_long: int
    """Texts that were longer than the encoder reads."""

    @property
    def n_documents(self) -> int:
        """Number of texts."""
        return int(self.owners[-1]) + 1 if len(self.owners) else 0


def encode_documents(
    texts: Sequence[str], encoder: Encoder, progress: Callable[[int], None] | None = None
) -> EncodedDocuments:
    """Encode texts as passages, long ones in parts.

    Args:
        texts: one per document; what the second layer reads of it.
        encoder: encodes and counts tokens.
        progress: called with the number of texts done since the last call; they add up to `len(texts)`.

    Raises:
        ConfigError: the encoder gives numbers that are not finite.
    """
    split = _split_all(texts, encoder)
    parts = [part for document in split for part in document]
    report = None if progress is None else _in_texts(progress, len(parts), len(texts))
    vectors = encoder.encode_passages(parts, report)
    if not np.isfinite(vectors).all():
        raise ConfigError(
            f"the encoder {encoder.name!r} gives vectors with numbers that are not finite; its weights are "
            "damaged or it overflows at this precision: use another encoder"
        )
    owners = np.repeat(np.arange(len(texts), dtype=np.int64), [len(document) for document in split])
    return EncodedDocuments(vectors, owners, n_long=sum(len(document) > 1 for document in split))


def split_passage(text: str, encoder: Encoder) -> list[str]:
    """The text in parts that the encoder reads whole; `"".join(parts) == text`.

    Sentences are put together as long as they fit. A sentence that is too long alone is halved, at a
    space near its middle where there is one.
    """
    return _split_all([text], encoder)[0]


def _split_all(texts: Sequence[str], encoder: Encoder) -> list[list[str]]:
    """Parts of each text; only those that are too long cost more than the counting."""
    split = [[text] for text in texts]
    for start in range(0, len(texts), _COUNTED_AT_ONCE):
        counts = encoder.passage_tokens(texts[start : start + _COUNTED_AT_ONCE])
        for i, count in enumerate(counts, start=start):
            if count > encoder.max_tokens:
                split[i] = _pack(_fitting_pieces(texts[i], encoder), encoder)
    return split


def _fitting_pieces(text: str, encoder: Encoder) -> list[str]:
    """Sentences, and halves of those that are too long."""
    pieces = split_sentences(text)
    while True:
        counts = encoder.passage_tokens(pieces)
        too_long = [n > encoder.max_tokens and len(p) > 1 for p, n in zip(pieces, counts, strict=True)]
        if not any(too_long):
            return pieces
        halves = ([*_halve(p)] if long else [p] for p, long in zip(pieces, too_long, strict=True))
        pieces = [piece for group in halves for piece in group]


def _halve(sentence: str) -> tuple[str, str]:
    middle = len(sentence) // 2
    spaces = [i + 1 for i in range(middle // 2, middle + middle // 2) if sentence[i] in _SPACE]
    cut = min(spaces, key=lambda i: abs(i - middle), default=middle)
    return sentence[:cut], sentence[cut:]


def _pack(pieces: Sequence[str], encoder: Encoder) -> list[str]:
    """Join neighbours greedily as long as the sum of their tokens fits.

    Tokens of joined text are seldom more than the sum; a part where they are is halved again.
    """
    [fixed] = encoder.passage_tokens([""])
    groups: list[list[str]] = []
    room = 0
    for piece, count in zip(pieces, encoder.passage_tokens(pieces), strict=True):
        if count - fixed > room:
            groups.append([])
            room = encoder.max_tokens - fixed
        groups[-1].append(piece)
        room -= count - fixed
    return _check_groups(groups, encoder)


def _check_groups(groups: list[list[str]], encoder: Encoder) -> list[str]:
    while True:
        counts = encoder.passage_tokens(["".join(group) for group in groups])
        too_long = [n > encoder.max_tokens and len(g) > 1 for g, n in zip(groups, counts, strict=True)]
        if not any(too_long):
            return ["".join(group) for group in groups]
        halves = (
            [g[: len(g) // 2], g[len(g) // 2 :]] if long else [g] for g, long in zip(groups, too_long, strict=True)
        )
        groups = [group for pair in halves for group in pair]


def _in_texts(progress: Callable[[int], None], n_parts: int, n_texts: int) -> Callable[[int], None]:
    """Progress over parts told as progress over texts."""
    done = reported = 0

    def report(n_more: int) -> None:
        nonlocal done, reported
        done += n_more
        texts_done = done * n_texts // n_parts
        progress(texts_done - reported)
        reported = texts_done

    return report
