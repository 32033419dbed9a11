"""Byte-pair tokenizers of the `tokenizers` library that give the ids of sentencepiece.

transformers' own LlamaTokenizer does not: it orders merges by id (Baichuan2's scores do not follow the ids) and does
not double a leading space (ChatGLM2 does). Here merges are ordered by score.
"""

from typing import Any

from dmnrag._optional import require
from dmnrag.llm.convert.sentencepiece_file import NORMAL, PieceTable

SPACE = "▁"
"""What sentencepiece writes for a space."""


def byte_pair_backend(pieces: PieceTable) -> Any:
    """A `tokenizers.Tokenizer` with this vocabulary; normaliser, decoder and added tokens are still to be set."""
    tokenizers = require("tokenizers", "llm")
    model = tokenizers.models.BPE(
        vocab={text: i for i, text in enumerate(pieces.texts)},
        merges=merges_by_score(pieces),
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    return tokenizers.Tokenizer(model)


def merges_by_score(pieces: PieceTable) -> list[tuple[str, str]]:
    """Every way to make a normal piece of two normal ones, best pieces first: sentencepiece's order of merging."""
    normal = {
        text: (score, i)
        for i, (text, score, kind) in enumerate(zip(pieces.texts, pieces.scores, pieces.types, strict=True))
        if kind == NORMAL
    }
    merges = []
    for piece, (score, own_id) in normal.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in normal and right in normal:
                merges.append((-score, own_id, normal[left][1], normal[right][1], left, right))
    merges.sort()
    return [(left, right) for *_, left, right in merges]
