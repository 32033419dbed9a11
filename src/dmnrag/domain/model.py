"""The domain model as its users see it: train, save, load, infer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dmnrag.domain.calibration import NOTHING
from dmnrag.domain.files import read_model, write_model
from dmnrag.domain.settings import DomainSettings, check_threshold
from dmnrag.domain.training import HeldOut, Learnt, calibrated, learn
from dmnrag.types import Document, Domain

Floats = npt.NDArray[np.float64]

_ALTERNATIVES = 5
"""As many as a person reads."""


@dataclass(frozen=True, slots=True)
class Inference:
    """The domain inferred for a question."""

    domain: Domain
    """As far down as labels are probable enough; `()` where not even a top label is."""
    probability: float
    """That the domain's last label (kind `path`), or its likeliest one (`set`), is right; of the likeliest top label
    where none is given."""
    abstained: bool
    """No label is probable enough, or nothing but the lack of rivals speaks for it."""
    alternatives: tuple[tuple[str, float], ...]
    """The likeliest top labels with their probabilities, best first; the inferred one is among them."""


class DomainModel:
    """Infers domains. Read only once trained or loaded; safe to use from several threads."""

    def __init__(self, learnt: Learnt, settings: DomainSettings) -> None:
        """Use `train` or `load`."""
        self._learnt = learnt
        self.settings = settings

    @classmethod
    def train(cls, documents: Iterable[Document], settings: DomainSettings | None = None) -> "DomainModel":
        """Learn from the questions and answers of documents; the same documents in the same order give the same model.

        Documents without a domain are passed over. Read once, in bounded memory. Costs 3 s of one core for 5,000
        documents and 11 labels, 50 s for 20,000 and 106; more documents cost no more.

        Raises:
            DataError: no label stands on `settings.min_documents` documents.
        """
        settings = settings or DomainSettings()
        return cls(learn(documents, settings), settings)

    def save(self, folder: Path) -> None:
        """Write into a folder, made where it is missing; on the disk when this returns."""
        write_model(folder, self._learnt, self.settings)

    @classmethod
    def load(cls, folder: Path) -> "DomainModel":
        """The model that `save` wrote; infers exactly as before.

        Raises:
            IndexDamagedError: a file is missing, cut short, or does not fit the others.
            IndexVersionError: written by a newer release.
        """
        return cls(*read_model(folder))

    @property
    def labels(self) -> tuple[Domain, ...]:
        """The labels that can be inferred, as paths: general ones first, then by name."""
        return self._learnt.tree.paths

    @property
    def held_out(self) -> HeldOut:
        """How good it is, measured in training on held-out folds."""
        return self._learnt.held_out

    @property
    def n_documents(self) -> int:
        """Documents with a domain that it was trained for, those included that were thinned out."""
        return self._learnt.n_documents

    def infer(self, questions: Sequence[str], *, threshold: float | None = None) -> list[Inference]:
        """The domain of each question, about .1 ms each.

        Args:
            questions: any texts; in unknown words, or none, there is nothing to infer from: abstains.
            threshold: instead of the settings' own.

        Raises:
            ConfigError: a threshold outside 0 to 1.
        """
        limit = self.settings.threshold if threshold is None else threshold
        check_threshold(limit)
        tree = self._learnt.tree
        found, alone = self._probabilities(questions)
        inferences = []
        for row, given in zip(found, np.minimum(found, alone) >= limit, strict=True):
            domain, probability = tree.choose(row, given)
            alternatives = tree.likeliest(row, _ALTERNATIVES)
            inferences.append(Inference(domain, probability, not domain, alternatives))
        return inferences

    def probabilities(self, questions: Sequence[str]) -> Floats:
        """(n_questions, n_labels), columns as in `labels`. Each label has its own: those of a row need not add to 1."""
        return self._probabilities(questions)[0]

    def _probabilities(self, questions: Sequence[str]) -> tuple[Floats, Floats]:
        """With and without the rival."""
        learnt = self._learnt
        # A text without a known term scores like one that has no label, not like the average document.
        scores = np.full((len(questions), len(learnt.tree)), NOTHING)
        for row, question in enumerate(questions):
            ids, values = learnt.terms.vector(question)
            if len(ids):
                scores[row] = values @ learnt.weights[ids].astype(np.float32) + learnt.intercepts
        return calibrated(scores, learnt.tree, learnt.calibration)
