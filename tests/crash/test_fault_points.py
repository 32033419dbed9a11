"""Every write, fsync, rename and deletion of every kind of update fails once: the index answers as before or after.

The program is killed there (a forked child ends without any clean-up), the disk is full from there on, or
reports an I/O error once. The default tier takes a sample over all scenarios, the slow tier every place.
"""

import errno
import os
import random
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from crash_scenarios import SCENARIOS, Scenario, Snapshot, build, encoder_for, go_on, snapshot

from dmnrag import _io
from dmnrag.errors import DmnragError, IndexFolderError
from dmnrag.index import update_index
from dmnrag.index.generations import is_index
from dmnrag.index.manifest import FILE_NAME, Manifest
from dmnrag.types import Document

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

_KILLED = 137
_SAMPLED = 13
"""The default tier takes each thirteenth place, in a different way each time."""

Place = tuple[str, str]
"""Step and file, without process numbers."""


@dataclass(frozen=True)
class Prepared:
    """A scenario with its index, what it answers before and after, and where it can fail."""

    scenario: Scenario
    template: Path
    before: Snapshot
    after: Snapshot
    places: list[Place]


@pytest.fixture(scope="module", autouse=True)
def fast_disk() -> Iterator[None]:
    """A killed process loses nothing that it wrote, so the tests need no real fsync."""
    real = os.fsync
    os.fsync = lambda _descriptor: None
    yield
    os.fsync = real


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Scenario], Prepared]:
    @cache
    def _prepare(scenario: Scenario) -> Prepared:
        template = tmp_path_factory.mktemp(scenario.name) / "index"
        scenario.prepare(template)
        done = template.with_name("done")
        copy(template, done)
        with hook_of(lambda step, path: places.append((step, place_of(path, done)))):
            places: list[Place] = []
            scenario.act(done)
        return Prepared(scenario, template, snapshot(template), snapshot(done), places)

    return _prepare


def copy(template: Path, folder: Path) -> Path:
    if template.exists():
        shutil.copytree(template, folder)
    return folder


def place_of(path: Path, folder: Path) -> str:
    return re.sub(r"\.\d+\.tmp", ".tmp", os.path.relpath(path, folder))


@contextmanager
def hook_of(hook: Callable[[str, Path], None]) -> Iterator[None]:
    _io.FAULT_HOOK = hook
    try:
        yield
    finally:
        _io.FAULT_HOOK = None


def at(number: int, fault: Callable[[], None], *, onwards: bool = False) -> Callable[[str, Path], None]:
    """A hook that brings about the fault at one place, or at that and all later ones but deletions."""
    seen = -1

    def _hook(step: str, _path: Path) -> None:
        nonlocal seen
        seen += 1
        if seen >= number if onwards and step != "delete" else seen == number and not onwards:
            fault()

    return _hook


def killed(prepared: Prepared, folder: Path, number: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            with hook_of(at(number, lambda: os._exit(_KILLED))):
                prepared.scenario.act(folder)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == _KILLED


def act(prepared: Prepared, folder: Path, hook: Callable[[str, Path], None]) -> None:
    with suppress(DmnragError), hook_of(hook):  # anything else than a clear error fails the test
        prepared.scenario.act(folder)


def disk_full(prepared: Prepared, folder: Path, number: int) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    act(prepared, folder, at(number, full, onwards=True))
    # Deleting needs no space: what a failed writer leaves, it takes back at once.
    assert not list((folder / "generations").glob(".*"))


def disk_failing(prepared: Prepared, folder: Path, number: int) -> None:
    def broken() -> None:
        raise OSError(errno.EIO, "Input/output error", str(folder))

    act(prepared, folder, at(number, broken))


FAULTS = (killed, disk_full, disk_failing)


def check(prepared: Prepared, number: int, fault: Callable[[Prepared, Path, int], None], folder: Path) -> None:
    copy(prepared.template, folder)
    fault(prepared, folder, number)
    now = snapshot(folder)
    where = f"{prepared.scenario.name}, {fault.__name__} at place {number}: {prepared.places[number]}"
    assert now in (prepared.before, prepared.after), where
    go_on(folder, now)
    shutil.rmtree(folder)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_index_survives_faults_at_a_sample_of_places(
    scenario: Scenario, prepare: Callable[[Scenario], Prepared], tmp_path: Path
) -> None:
    prepared = prepare(scenario)
    for turn, number in enumerate(range(SCENARIOS.index(scenario), len(prepared.places), _SAMPLED)):
        check(prepared, number, FAULTS[turn % len(FAULTS)], tmp_path / "index")


def test_the_steps_that_make_a_generation_the_current_one_survive_faults(
    prepare: Callable[[Scenario], Prepared], tmp_path: Path
) -> None:
    prepared = prepare(SCENARIOS[-1])
    first = next(n for n, place in enumerate(prepared.places) if place[1].endswith(FILE_NAME))
    for number in range(first, len(prepared.places)):
        check(prepared, number, FAULTS[number % len(FAULTS)], tmp_path / "index")


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_index_survives_faults_at_every_place(
    scenario: Scenario,
    fault: Callable[[Prepared, Path, int], None],
    prepare: Callable[[Scenario], Prepared],
    tmp_path: Path,
) -> None:
    prepared = prepare(scenario)
    for number in range(len(prepared.places)):
        check(prepared, number, fault, tmp_path / "index")


def test_there_are_at_least_sixty_places(prepare: Callable[[Scenario], Prepared]) -> None:
    # A file of a segment is one place, whatever the segment's number.
    places = {(step, re.sub(r"\d{3,6}", "N", name)) for s in SCENARIOS for step, name in prepare(s).places}
    assert len(places) >= 60
    assert {step for step, _ in places} == {"write", "fsync", "rename", "delete", "lock"}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_every_file_is_written_and_on_the_disk_before_the_generation_is_named(
    scenario: Scenario, prepare: Callable[[Scenario], Prepared], tmp_path: Path
) -> None:
    prepared = prepare(scenario)
    folder = copy(prepared.template, tmp_path / "index")
    staging = folder / "generations" / ".staging"
    former = {path.stat().st_ino for path in folder.rglob("*") if path.is_file()}
    steps: list[tuple[str, Path]] = []
    with hook_of(lambda step, path: steps.append((step, path))):
        scenario.act(folder)
    generation = folder / "generations" / (folder / "CURRENT").read_text().strip()
    named = steps.index(("rename", generation))
    done = {(step, re.sub(r"/\.([^/]+)\.\d+\.tmp$", r"/\1", str(path))) for step, path in steps[:named]}
    for name in (*Manifest.load(generation).parts, FILE_NAME):
        assert ("write", str(staging / name)) in done, name
        if (generation / name).stat().st_ino not in former:
            assert ("fsync", str(staging / name)) in done, name
    for path in (generation, *generation.rglob("*")):
        if path.is_dir():
            assert ("fsync", str(staging / path.relative_to(generation))) in done, path
    assert steps.index(("rename", folder / "CURRENT")) > named


def test_a_first_build_that_was_killed_leaves_no_index_and_can_be_repeated(
    prepare: Callable[[Scenario], Prepared], tmp_path: Path
) -> None:
    prepared = prepare(SCENARIOS[0])
    folder = tmp_path / "index"
    killed(prepared, folder, prepared.places.index(("rename", "CURRENT")))
    assert not is_index(folder)
    assert list(folder.glob(".CURRENT.*.tmp"))
    go_on(folder, None)


@pytest.mark.parametrize("limit", [3_000, 20_000, 60_000])
def test_a_file_that_the_system_cuts_short_is_a_clear_error_and_changes_nothing(tmp_path: Path, limit: int) -> None:
    """A real refusal in the middle of a file: of the documents, the postings or the vectors, by the limit."""
    folder = tmp_path / "index"
    build(folder, 1, 2)
    before = snapshot(folder)
    chance = random.Random(limit)
    words = ("".join(chance.choices("头疼脑热咳嗽发烧胃痛心慌", k=20)) for _ in range(3000))
    documents = [Document(f"n{n}", word, (word[::-1],)) for n, word in enumerate(words)]
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, former[1]))
    try:
        with pytest.raises(IndexFolderError, match=r"nothing in it was changed.*larger than allowed"):
            update_index(folder, add=documents, encoder_for=encoder_for)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    assert snapshot(folder) == before
    go_on(folder, before)
