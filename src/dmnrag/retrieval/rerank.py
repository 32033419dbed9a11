"""Rerankers: models that read question and passage together (Nogueira and Cho 2019).

Knows texts only. To add a kind, write a class that fulfils `protocols.Reranker` and name it in
`make_reranker`. The models are those of sentence-transformers.
"""

from collections.abc import Sequence
from functools import partial
from threading import Lock
from typing import Any

from dmnrag._optional import require
from dmnrag.errors import ConfigError
from dmnrag.protocols import Reranker
from dmnrag.retrieval.dense.loading import load_model

FAKE = "fake"

_OTHERWISE = "name a cross-encoder of sentence-transformers or a local folder of one, or search without a reranker"


def make_reranker(name: str, *, device: str | None = None, batch_size: int = 32) -> Reranker:
    """Load a reranker.

    Args:
        name: name or folder of a cross-encoder, or `fake` (shared characters, for tests).
        device: `cpu`, `cuda`, ...; None takes an accelerator where there is one.
        batch_size: pairs scored at once.

    Raises:
        ConfigError: it cannot be loaded, or gives several scores to a pair.
        MissingDependencyError: sentence-transformers is not installed.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}: allowed are whole numbers from 1")
    if name == FAKE:
        from dmnrag.testing.fakes import OverlapReranker

        return OverlapReranker()
    load = partial(require("sentence_transformers", "dense").CrossEncoder, device=device)
    return CrossEncoderReranker(load_model(name, _OTHERWISE, load), name, batch_size=batch_size)


class CrossEncoderReranker:
    """Any cross-encoder of sentence-transformers that gives one score to a pair."""

    def __init__(self, model: Any, name: str, *, batch_size: int = 32) -> None:
        """`model` is a loaded `CrossEncoder`."""
        if model.num_labels != 1:
            raise ConfigError(f"{name!r} gives {model.num_labels} scores to a pair: a reranker gives one; {_OTHERWISE}")
        self.name = name
        self._model = model
        self._batch_size = batch_size
        self._lock = Lock()

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """The model's logits, higher is better; what exceeds its length is cut.

        Not the sigmoid of them, which is 1.0 for every good passage in float32.
        """
        if not passages:
            return []
        identity = require("torch", "dense").nn.Identity()
        with self._lock:
            scores = self._model.predict(
                [(question, passage) for passage in passages],
                batch_size=self._batch_size,
                show_progress_bar=False,
                activation_fn=identity,
            )
        return [float(score) for score in scores]
