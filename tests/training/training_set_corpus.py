"""A corpus in which every document is found by every question, and nothing resembles anything by accident."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.protocols import FloatMatrix
from dmnrag.training.training_set import GuardSettings, TrainingSetSettings
from dmnrag.types import Document

CHARACTERS = "".join(map(chr, range(0x4E00, 0x4E00 + 2000)))
LABELS = (("内科",), ("外科",), ("儿科",))


def text(name: str, length: int) -> str:
    """Random characters, the same for the same name; two names share hardly a bigram."""
    return "".join(random.Random(name).choices(CHARACTERS, k=length))


def documents(n: int = 60) -> list[Document]:
    """The shared bigram 请问 in each question makes every document a hit of every question."""
    return [
        Document(f"d{i:03d}", f"请问{text(f'question {i}', 12)}", (text(f"answer {i}", 40),), LABELS[i % 3])
        for i in range(n)
    ]


def changed(corpus: Sequence[Document], **answers_or_questions: str | tuple[str, ...]) -> list[Document]:
    """The corpus with other texts: `d003="question"` or `d003=("answer",)`."""
    return [_with(document, answers_or_questions.get(document.doc_id)) for document in corpus]


def _with(document: Document, new: str | tuple[str, ...] | None) -> Document:
    if new is None:
        return document
    return replace(document, question=new) if isinstance(new, str) else replace(document, answers=new)


def open_index(folder: Path, corpus: Sequence[Document], settings: IndexSettings | None = None) -> Index:
    build_index(folder, corpus, settings or IndexSettings())
    return Index.open(folder)


def settings(**values: object) -> TrainingSetSettings:
    """A tail that 60 documents can have."""
    return TrainingSetSettings(**{"first_rank": 11, "last_rank": 40, **values})  # type: ignore[arg-type]


NO_GUARDS = GuardSettings.off()


class SynonymEncoder:
    """Random directions, but texts that a table calls the same point the same way. Counts what it encodes."""

    name = "synonyms"
    dimension = 64
    max_tokens = 512

    def __init__(self, same: Callable[[str], str] = lambda text: text) -> None:
        self._same = same
        self.encoded: list[str] = []

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix:
        return self.encode_passages(texts)

    def encode_passages(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> FloatMatrix:
        self.encoded += texts
        rows = [np.random.default_rng(list(self._same(t).encode())).standard_normal(self.dimension) for t in texts]
        if progress is not None:
            progress(len(texts))
        return np.array(rows, np.float32).reshape(len(texts), self.dimension)

    def passage_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(t) for t in texts]
