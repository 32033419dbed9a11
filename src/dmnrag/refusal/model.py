"""The evidence model as its users see it: load, judge a search, save."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dmnrag.domain import Inference
from dmnrag.index import Index
from dmnrag.refusal.cases import found_for, infer, label_of
from dmnrag.refusal.features import measure
from dmnrag.refusal.files import Stored, read_stored, write_stored
from dmnrag.refusal.logistic import Logistic
from dmnrag.retrieval.layers import LayerHits
from dmnrag.types import Layer, Query


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether what was retrieved is enough to answer from."""

    score: float
    """Probability that the documents hold the evidence, where half of the questions have theirs in the index."""
    threshold: float
    """Below it there is not enough."""
    enough: bool


class EvidenceModel:
    """Judges searches. Read only; safe to use from several threads."""

    def __init__(self, stored: Stored) -> None:
        """Use `load`, or `calibrate`."""
        self.stored = stored
        """Settings, weights and figures as in the file."""
        self._logistic = Logistic(
            np.array(stored.means), np.array(stored.scales), np.array(stored.weights), stored.intercept
        )

    @classmethod
    def load(cls, folder: Path) -> "EvidenceModel | None":
        """The model of an index folder; None where it was never calibrated.

        Raises:
            IndexDamagedError: the file cannot be used.
            IndexVersionError: written by another release; calibrate again.
        """
        stored = read_stored(folder)
        return None if stored is None else cls(stored)

    def save(self, folder: Path) -> None:
        """Write into an index folder, in place of a former one; readers see the one or the other."""
        write_stored(folder, self.stored)

    @property
    def thresholds(self) -> Mapping[str, float]:
        """Of the top labels that have their own."""
        return self.stored.thresholds

    @property
    def k(self) -> int:
        """Hits that it looks at."""
        return self.stored.k

    def covers(self, layer: Layer, k: int) -> bool:
        """Whether a search of this layer with this many hits can be judged.

        More hits than calibrated for are judged by the first ones.
        """
        return layer == self.stored.layer and k >= self.stored.k

    def is_stale(self, index: Index) -> bool:
        """Whether the index has changed since: judged all the same, less exactly the more it changed."""
        return index.manifest.generation != self.stored.generation

    def judge(self, index: Index, query: Query, layers: LayerHits, inferred: Inference | None = None) -> Verdict:
        """Weigh what a search found, .4 ms; reads the first k documents.

        Args:
            index: that was searched.
            query: as it was searched.
            layers: at least as many hits as `covers` asks for; fewer where fewer were found.
            inferred: by the index's domain model; None: inferred here where the index has one.

        Raises:
            DataError: hits that the index does not have.
        """
        inference = inferred or infer(index, [query.text])[0]
        found = found_for(index, query, layers, inference, self.stored.k)
        [score] = self._logistic.probabilities(measure(found)[None, :])
        threshold = self.thresholds.get(label_of(inference, query.domain), self.stored.threshold)
        return Verdict(float(score), threshold, bool(layers.hits) and bool(score >= threshold))
