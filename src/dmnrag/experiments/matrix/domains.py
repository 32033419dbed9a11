"""Whose domain a question is answered with: its own, none, an inferred one, or a wrong one at random."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from dmnrag.domain import DomainModel
from dmnrag.errors import ConfigError, DataError
from dmnrag.experiments.matrix.corpora import digest
from dmnrag.experiments.records import DomainSource
from dmnrag.index import Index
from dmnrag.index.domain import domain_settings, model_parts
from dmnrag.types import Domain, Example


class DomainClassifier(Protocol):
    """Infers the domain of a question. The seam for `noise.inferred`."""

    def state(self, index: Index) -> str:
        """What tells the classifier of this index from another one."""
        ...

    def infer(self, index: Index, texts: Sequence[str]) -> list[Domain]:
        """The domain of each question, as the documents of the index have them; `()` where it is not sure."""
        ...


class LearntDomains:
    """Infers with the index's own model; where an older release left none, learns one and keeps it in memory."""

    def __init__(self) -> None:
        self._models: dict[tuple[Path, int], DomainModel] = {}

    def state(self, index: Index) -> str:
        """sha256 over the index's model, else over what one is learnt with; the documents stand beside it in the cell's
        own state. Learns nothing."""
        own = {name: part.sha256 for name, part in model_parts(index.manifest.parts).items()}
        return digest(own or domain_settings(index.settings).to_dict())

    def infer(self, index: Index, texts: Sequence[str]) -> list[Domain]:
        """The domain of each question as far down as it is probable enough; `()` where the model abstains.

        Raises:
            ConfigError: no label of the index stands on enough documents.
        """
        key = (index.folder, index.manifest.generation)
        if key not in self._models:
            self._models[key] = index.domain_model or _learn(index)
        return [found.domain for found in self._models[key].infer(texts)]


def _learn(index: Index) -> DomainModel:
    try:
        return DomainModel.train(index.all_documents(), domain_settings(index.settings))
    except DataError as error:
        raise ConfigError(
            f"domains cannot be inferred in {index.folder}: {error}; leave noise.inferred out for this corpus"
        ) from error


def domains_for(
    source: DomainSource,
    share: float,
    examples: Sequence[Example],
    index: Index,
    *,
    seed: int,
    classifier: DomainClassifier | None = None,
) -> list[Domain]:
    """The domain that each question is answered with.

    Args:
        source: whose domain.
        share: with `wrong`, how many of the questions that have a domain get another one; the questions of a smaller
            share are among those of a larger one.
        examples: the questions.
        index: whose domains the wrong ones are drawn from, each as likely as any other.
        seed: of what is drawn.
        classifier: with `inferred`.

    Raises:
        ConfigError: `inferred` without a classifier or with nothing to learn from, or no other domain to draw.
    """
    own = [example.query.domain for example in examples]
    if source == "given":
        return own
    if source == "none":
        return [()] * len(own)
    if source == "inferred":
        return refuse_without(classifier).infer(index, [example.query.text for example in examples])
    return wrong_domains(own, share, index.domains, index.settings.domain_kind, seed)


def wrong_domains(
    own: Sequence[Domain], share: float, known: Mapping[Domain, int], kind: Literal["path", "set"], seed: int
) -> list[Domain]:
    """Another domain at random for a share of those that are not empty.

    With `path` another one differs in the last label, with `set` it shares no label.

    Raises:
        ConfigError: there is no other domain.
    """
    with_domain = [i for i, domain in enumerate(own) if domain]
    drawn = random.Random(f"{seed} wrong domains")
    order = drawn.sample(with_domain, len(with_domain))
    others = {i: _another(own[i], known, kind, drawn) for i in order}
    chosen = set(order[: round(share * len(order))])
    return [others[i] if i in chosen else domain for i, domain in enumerate(own)]


def refuse_without(classifier: DomainClassifier | None) -> DomainClassifier:
    """The classifier.

    Raises:
        ConfigError: there is none.
    """
    if classifier is None:
        raise ConfigError(
            "inferred domains need a classifier, and none was given: give one (LearntDomains learns from the "
            "index), or leave noise.inferred out"
        )
    return classifier


def _another(own: Domain, known: Mapping[Domain, int], kind: Literal["path", "set"], drawn: random.Random) -> Domain:
    wrong = sorted(d for d in known if (d[-1] != own[-1] if kind == "path" else not set(d) & set(own)))
    if not wrong:
        raise ConfigError(
            f"there is no other domain than {','.join(own)} to be wrong with: leave noise.wrong out for this corpus"
        )
    return drawn.choice(wrong)
