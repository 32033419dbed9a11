"""An index of an older format to the one that this release reads, step by step; a domain model to one that lacks it.

A step brings a generation from version n to n + 1. It gets a folder that holds every file of the
former generation, and the manifest as plain JSON, and gives back the manifest of the next version.

To change the format: raise `manifest.FORMAT_VERSION`, write a step, name it in `STEPS` under the
version it starts from, and check in a small index of the former version beside those in `tests/index`.
The files in the folder are hard links to the former generation's: a step writes new files and moves
them into place (`_io.write_bytes_atomic`, `arrays.save_array` after deleting), it never opens one to change it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dmnrag.errors import IndexDamagedError, IndexVersionError
from dmnrag.index import generations
from dmnrag.index import manifest as manifest_file
from dmnrag.index.domain import lacks_domain_model
from dmnrag.index.domain_learning import learn_domains
from dmnrag.index.manifest import Manifest, Part, check_parts, library_versions
from dmnrag.index.opened import read_settings
from dmnrag.index.writing import Progress, no_progress

Step = Callable[[Path, dict[str, Any]], dict[str, Any]]
"""(folder of the new generation, manifest of version n) -> manifest of version n + 1."""

STEPS: dict[int, Step] = {}
"""The step that starts from each version."""


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """What an upgrade did."""

    from_version: int
    to_version: int
    generation: int
    """The generation in use afterwards; the same as before where nothing was to be done."""
    domain_model: bool = False
    """Whether it got a domain model, which an older release had not made."""


def upgrade_index(folder: Path, *, on_progress: Progress = no_progress) -> UpgradeReport:
    """Bring the current generation to this release's format, as a new generation; the former one stays beside it.

    One whose documents have domains and that has no domain model gets one.

    Raises:
        IndexMissingError: there is no index.
        IndexDamagedError: a part is missing, cut short or altered: nothing is built on damage.
        IndexVersionError: a newer format, or an older one that no step starts from.
        IndexLockedError: another process writes there.
    """
    number, former, content = _read_current(folder)
    if content["format_version"] == manifest_file.FORMAT_VERSION and not _lacks_domain_model(folder, former):
        return UpgradeReport(manifest_file.FORMAT_VERSION, manifest_file.FORMAT_VERSION, number)
    with generations.stage_generation(folder) as stage:
        # Read again: only now nobody else can make a new generation.
        _, former, content = _read_current(folder)
        try:
            parts = {name: Part.model_validate(part) for name, part in content["parts"].items()}
        except (KeyError, AttributeError, ValidationError) as error:
            raise IndexDamagedError(f"the manifest of {former} lists no parts ({error}); restore it") from error
        check_parts(former, parts, hashes=True)
        stage.link(former, parts, lambda _: True)
        learnt = _commit(stage, former, _run_steps(stage.path, content), on_progress)
        generations.prune(folder)
        return UpgradeReport(content["format_version"], manifest_file.FORMAT_VERSION, stage.number, learnt)


def _lacks_domain_model(folder: Path, generation: Path) -> bool:
    manifest = Manifest.load(generation)
    return lacks_domain_model(manifest, read_settings(manifest, folder))


def _read_current(folder: Path) -> tuple[int, Path, dict[str, Any]]:
    """Number, folder and manifest of the current generation, whatever its version."""
    number = generations.current_generation(folder)
    former = generations.generation_folder(folder, number)
    content = manifest_file.read_content(former)
    manifest_file.read_version(content, former / manifest_file.FILE_NAME)
    return number, former, json.loads(content)


def _run_steps(folder: Path, content: dict[str, Any]) -> dict[str, Any]:
    for version in range(content["format_version"], manifest_file.FORMAT_VERSION):
        if version not in STEPS:
            raise IndexVersionError(
                f"this release has no step from index format {version} to {version + 1}: upgrade with an earlier "
                "release first, or build the index again"
            )
        content = STEPS[version](folder, content) | {"format_version": version + 1}
    return content


def _commit(stage: generations.Staging, former: Path, content: dict[str, Any], on_progress: Progress) -> bool:
    """Make the changed generation the current one; hashes of files that no step replaced are known.

    Returns:
        Whether it got a domain model.
    """
    stage.linked = {
        name: part
        for name, part in stage.linked.items()
        if (stage.path / name).is_file() and (stage.path / name).samefile(former / name)
    }
    values = content | {
        "generation": stage.number,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "library_versions": library_versions(),
        "parts": stage.parts(),
    }
    try:
        manifest = Manifest.model_validate(values)
    except ValidationError as error:
        raise IndexVersionError(f"the upgrade of {former} gave no manifest of this release: {error}") from error
    lacks = lacks_domain_model(manifest, settings := read_settings(manifest, stage.index))
    if lacks:
        learn_domains(stage.path, manifest, settings, on_progress)
        manifest = manifest.model_copy(update={"parts": stage.parts()})
    stage.commit(manifest)
    return lacks
