"""The labels that can be inferred, as a tree: from domains to indicators, and from probabilities to a domain.

A label is known by its path: `("内科",)`, `("内科", "心血管内科")`. Labels of a set all stand at the top.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dmnrag.domain.settings import DomainKind
from dmnrag.types import Domain

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Siblings(NamedTuple):
    """Labels with the same label above them."""

    depth: int
    """1 at the top."""
    above: int | None
    """Column of the label above; None at the top."""
    columns: slice


@dataclass(frozen=True)
class LabelTree:
    """Labels in order of their depth, then of their paths; so siblings stand side by side."""

    kind: DomainKind
    paths: tuple[Domain, ...]

    @classmethod
    def learn(cls, domains: Sequence[Domain], weights: Sequence[float], kind: DomainKind, at_least: int) -> "LabelTree":
        """The labels that stand on at least `at_least` documents, counted with their weights."""
        counts: Counter[Domain] = Counter()
        for domain, weight in zip(domains, weights, strict=True):
            for path in paths_of(domain, kind):
                counts[path] += weight  # type: ignore[assignment]  # a Counter counts in floats too
        kept = [path for path, n in counts.items() if n >= at_least]
        return cls(kind, tuple(sorted(kept, key=lambda path: (len(path), path))))

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def number_of(self) -> dict[Domain, int]:
        """Column of each label."""
        return {path: number for number, path in enumerate(self.paths)}

    @cached_property
    def siblings(self) -> tuple[Siblings, ...]:
        """The labels below each label that has some, general ones first."""
        return tuple(
            Siblings(len(above) + 1, self.number_of.get(above), slice(below[0], below[-1] + 1))
            for above, below in self._children.items()
        )

    @property
    def depths(self) -> range:
        """1 to that of the most specific labels."""
        return range(1, len(self.paths[-1]) + 1)

    @cached_property
    def _children(self) -> dict[Domain, list[int]]:
        children: dict[Domain, list[int]] = {}
        for number, path in enumerate(self.paths):
            children.setdefault(path[:-1], []).append(number)
        return children

    def indicators(self, domains: Sequence[Domain]) -> Mask:
        """(n_documents, n_labels): which document has which label."""
        has_label = np.zeros((len(domains), len(self)), np.bool_)
        for row, domain in enumerate(domains):
            for path in paths_of(domain, self.kind):
                if path in self.number_of:
                    has_label[row, self.number_of[path]] = True
        return has_label

    def choose(self, probabilities: Floats, given: Mask) -> tuple[Domain, float]:
        """The domain of a question and its probability.

        Path: the likeliest top label, then the likeliest below it, as far down as labels are given; the probability
        is that of the last one. Set: every label that is given, in alphabetical order; the probability is that of the
        likeliest. Where the likeliest top label is not given: `()` and its probability.

        Args:
            probabilities: (n_labels,).
            given: (n_labels,) which labels are probable enough.
        """
        top = self._likeliest(probabilities, ())
        best = float(probabilities[top])
        if not given[top]:
            return (), best
        if self.kind == "set":
            return tuple(self.paths[number][0] for number in np.flatnonzero(given)), best
        domain = self.paths[top]
        while domain in self._children:
            child = self._likeliest(probabilities, domain)
            if not given[child]:
                break
            domain, best = self.paths[child], float(probabilities[child])
        return domain, best

    def likeliest(self, probabilities: Floats, n: int) -> tuple[tuple[str, float], ...]:
        """The n likeliest top labels, best first, ties by name."""
        tops = sorted(self._children[()], key=lambda number: -probabilities[number])
        return tuple((self.paths[number][0], float(probabilities[number])) for number in tops[:n])

    def _likeliest(self, probabilities: Floats, above: Domain) -> int:
        return max(self._children[above], key=lambda number: float(probabilities[number]))


def paths_of(domain: Domain, kind: DomainKind) -> list[Domain]:
    """The paths of a document's labels."""
    if kind == "set":
        return [(label,) for label in domain]
    return [domain[:depth] for depth in range(1, len(domain) + 1)]
