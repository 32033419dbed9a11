"""When the domain model of an index is learnt: in every build, and in an update once enough has changed.

Learning costs 3 s for 5,000 documents and 11 labels, 50 s for 20,000 or more and 106 labels: too much for one added
document. So an update takes the former model over while the labels that can be inferred are the same and at most
`MOST_CHANGED` of the documents that it was learnt from were added, replaced or removed since; else it learns anew.
"""

import json
from pathlib import Path

from dmnrag._io import write_json_atomic
from dmnrag.errors import IndexDamagedError
from dmnrag.index import generations
from dmnrag.index.domain import (
    CHANGES_FILE,
    FOLDER,
    domain_folder,
    labels_to_learn,
    model_parts,
    write_domain_model,
)
from dmnrag.index.manifest import Manifest
from dmnrag.index.opened import Index, open_contents
from dmnrag.index.settings import IndexSettings
from dmnrag.index.writing import Progress, counted

MOST_CHANGED = 0.05
"""Share of the documents. A model of 95 % of the documents is as good as one of all (docs/results.md)."""

_CHANGED = "documents"


def learn_domains(generation: Path, manifest: Manifest, settings: IndexSettings, on_progress: Progress) -> None:
    """Write the domain model of a generation in the making, where its documents have domains to learn.

    Args:
        generation: its folder.
        manifest: its own; the parts are not looked at.
        settings: of the index.
        on_progress: called as documents are read, wherever they are kept.
    """
    if not labels_to_learn(manifest, settings):
        return
    contents = open_contents(generation, manifest, settings)
    try:
        write_domain_model(generation, counted(on_progress, "domain model", contents, manifest.n_documents), settings)
    finally:
        contents.close()


def renew_domain_model(
    stage: generations.Staging, index: Index, manifest: Manifest, n_changed: int, on_progress: Progress
) -> None:
    """Give a changed generation its domain model: the former one where it still serves, else a new one.

    Args:
        stage: the generation in the making.
        index: the former one.
        manifest: of the new one; the parts are not looked at.
        n_changed: documents that this update added, replaced or removed.
        on_progress: called as documents are read.

    Raises:
        IndexDamagedError: the former model cannot be used.
    """
    model = index.domain_model
    former = generations.generation_folder(index.folder, index.manifest.generation)
    if model is not None and labels_to_learn(manifest, index.settings) == model.labels:
        n_changed += _changed_before(former, index.manifest)
        if n_changed <= MOST_CHANGED * model.n_documents:
            own = model_parts(index.manifest.parts)
            stage.link(former, own, lambda _: True)
            write_json_atomic(domain_folder(stage.path) / CHANGES_FILE, {_CHANGED: n_changed})
            return
    learn_domains(stage.path, manifest, index.settings, on_progress)


def _changed_before(generation: Path, manifest: Manifest) -> int:
    """Documents that changed since the model of a generation was learnt."""
    if f"{FOLDER}/{CHANGES_FILE}" not in manifest.parts:
        return 0
    path = domain_folder(generation) / CHANGES_FILE
    try:
        return int(json.loads(path.read_bytes())[_CHANGED])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IndexDamagedError(f"{path} cannot be used ({error}); restore it or build the index again") from error
