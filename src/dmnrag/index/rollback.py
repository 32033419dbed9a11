"""Goes back to the former generation, and lets go of former ones."""

from datetime import UTC, datetime
from pathlib import Path

from dmnrag.errors import ConfigError
from dmnrag.index import alias, generations
from dmnrag.index.cluster import connection_of
from dmnrag.index.manifest import ClusterPart, Manifest, check_parts
from dmnrag.index.opened import open_contents, read_settings
from dmnrag.retrieval.elastic import connect


def roll_back(folder: Path) -> int:
    """Make a new generation that is the former one, and make it the current one; returns its number.

    The one that was current is the former one then, so that a second call goes forward again.

    Raises:
        ConfigError: there is no former generation.
        IndexDamagedError: the former one is not whole.
        ClusterError: what it holds in a cluster cannot be used.
    """
    generations.current_generation(folder)  # a clear error before a lock file is made
    with generations.stage_generation(folder) as stage:
        current = generations.current_generation(folder)
        older = [number for number in generations.generation_numbers(folder) if number < current]
        if not older:
            raise ConfigError(f"{folder} has no generation before {current} to go back to; build it again instead")
        former = generations.generation_folder(folder, older[-1])
        manifest = Manifest.load(former)
        check_parts(former, manifest.parts, hashes=False)
        open_contents(former, manifest, read_settings(manifest, folder)).close()
        stage.link(former, manifest.parts, lambda _: True)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        stage.commit(manifest.model_copy(update={"generation": stage.number, "created": created}))
        generations.prune(folder)
        _publish(folder, manifest.backend)
    return stage.number


def prune_index(folder: Path) -> list[int]:
    """Delete the former generations that nobody reads, with what they alone hold in a cluster; returns their numbers.

    Raises:
        ClusterError: the cluster that holds the index cannot be used.
    """
    generations.current_generation(folder)  # a clear error before a lock file is made
    with generations.stage_generation(folder):
        pruned = generations.prune(folder, keep=0)
        current = generations.generation_folder(folder, generations.current_generation(folder))
        _publish(folder, Manifest.load(current).backend)
    return pruned


def _publish(folder: Path, part: ClusterPart | None) -> None:
    if part is not None:
        with connect(connection_of(part)) as cluster:
            alias.publish(cluster, folder, part, generations.generation_folders(folder))
