"""The domain model of a generation: in the index folder wherever the documents are, read when it is first used.

When it is learnt anew stands in `domain_learning`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from dmnrag.domain import DomainModel, DomainSettings
from dmnrag.domain.labels import LabelTree
from dmnrag.errors import DataError
from dmnrag.index.manifest import Manifest, Part
from dmnrag.index.settings import IndexSettings
from dmnrag.types import Document, Domain

FOLDER = "domain"
"""In the generation's folder; what is in it is written by `dmnrag.domain`, but for `CHANGES_FILE`."""

CHANGES_FILE = "changes.json"
"""Beside a model that was taken over: how many documents changed since it was learnt."""


def domain_folder(generation: Path) -> Path:
    """Where a generation's domain model is."""
    return generation / FOLDER


def is_domain_part(name: str) -> bool:
    """Whether a part of a generation belongs to its domain model."""
    return name.startswith(f"{FOLDER}/")


def model_parts(parts: Mapping[str, Part]) -> dict[str, Part]:
    """The parts that make up the domain model itself; empty where there is none."""
    return {name: part for name, part in parts.items() if is_domain_part(name) and name != f"{FOLDER}/{CHANGES_FILE}"}


def domain_settings(settings: IndexSettings) -> DomainSettings:
    """How the domains of an index are learnt."""
    return DomainSettings(kind=settings.domain_kind, simplify=settings.segmenter.simplify)


def labels_to_learn(manifest: Manifest, settings: IndexSettings) -> tuple[Domain, ...]:
    """The labels that a model of a generation can infer, by the counts in its manifest; empty: no model can be."""
    of_model = domain_settings(settings)
    domains = [tuple(labels) for labels, _ in manifest.domains]
    counts = [count for _, count in manifest.domains]
    return LabelTree.learn(domains, counts, of_model.kind, of_model.min_documents).paths


def lacks_domain_model(manifest: Manifest, settings: IndexSettings) -> bool:
    """Whether a generation has domains to learn and no model: an older release made it."""
    return not model_parts(manifest.parts) and bool(labels_to_learn(manifest, settings))


def write_domain_model(generation: Path, documents: Iterable[Document], settings: IndexSettings) -> None:
    """Learn the domains of the documents, read once and in bounded memory; nothing is written where none can be learnt.

    Costs what `DomainModel.train` does.
    """
    try:
        model = DomainModel.train(documents, domain_settings(settings))
    except DataError:  # no domain stands on enough documents
        return
    model.save(domain_folder(generation))


def read_domain_model(generation: Path, parts: Mapping[str, Part]) -> DomainModel | None:
    """The domain model of a generation with these parts; None where it has none.

    Raises:
        IndexDamagedError: a file of it cannot be used.
        IndexVersionError: written by a newer release.
    """
    return DomainModel.load(domain_folder(generation)) if model_parts(parts) else None
