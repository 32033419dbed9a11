"""Random `kill -9` of `index`, `add` and `remove` on real data: the index answers as before or as after."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from crash_scenarios import debris

from dmnrag.errors import IndexMissingError
from dmnrag.index import Index
from dmnrag.types import PLAIN, Query

QUERIES = [Query("1", "高血压吃什么药"), Query("2", "胃疼怎么办"), Query("3", "糖尿病能吃水果吗")]
COLUMNS = ("--question-column", "title,ask", "--answer-column", "answer", "--domain-column", "department")
KILLS = 20
_SEED = 20

Arguments = Sequence[object]
State = tuple[frozenset[str], list[list[tuple[str, float]]]] | None
"""Ids and hits; None where there is no index."""


@dataclass
class Operation:
    """A command, and how long it takes when it is let alone."""

    arguments: Callable[[State], Arguments]
    seconds: float = 0.0


def start(arguments: Arguments) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from dmnrag.cli.main import run; run()", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(arguments: Arguments) -> float:
    started = time.perf_counter()
    process = start(arguments)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return time.perf_counter() - started


def state_of(folder: Path) -> State:
    try:
        with Index.open(folder, verify=True) as index:
            ids = frozenset(document.doc_id for document in index.all_documents())
            found = index.sparse.search(QUERIES, 10, use=PLAIN)
            return ids, [[(hit.doc_id, round(hit.score, 5)) for hit in hits] for hits in found]
    except IndexMissingError:
        return None


@pytest.mark.slow
def test_twenty_random_kills_lose_nothing(shared: Path, tmp_path: Path) -> None:
    data = shared / "data" / "medical_im_gb18030.csv"
    header, *rows = data.read_text(encoding="gb18030").split("\n")
    more = tmp_path / "more.csv"
    more.write_text("\n".join([header, *rows[:500]]), encoding="gb18030")
    folder = tmp_path / "index"
    random_numbers = random.Random(_SEED)

    def remove(state: State) -> Arguments:
        ids = sorted(state[0]) if state else []
        return "remove", folder, *random_numbers.sample(ids, 50)

    index = Operation(lambda _: ("index", data, "--out", folder, *COLUMNS, "--encoder", "none"))
    add = Operation(lambda _: ("add", folder, more, "--replace"))
    removal = Operation(remove)
    states: list[frozenset[str]] = []
    for operation in (index, add, removal):
        operation.seconds = finish(operation.arguments(state_of(folder)))
        states.append(ids_of(state_of(folder)))
    of_index, of_add = states[0], states[1] - states[0]
    assert (len(of_index), len(of_add), len(states[2])) == (6116, 500, 6566)
    outcomes = []
    hit = 0
    for _ in range(KILLS):
        operation = random_numbers.choice((index, add, removal))
        arguments = operation.arguments(before := state_of(folder))
        process = start(arguments)
        # Not at the very start, where only libraries are loaded; a little beyond the end, where it is over.
        time.sleep(operation.seconds * random_numbers.uniform(0.3, 1.05))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        hit += (folder / "generations" / ".staging").exists()
        now = state_of(folder)
        if now == before:
            outcomes.append("before")
            continue
        removed = frozenset(map(str, arguments[2:])) if operation is removal else frozenset()
        wanted = of_index if operation is index else ids_of(before) - removed | (of_add if operation is add else set())
        assert ids_of(now) == wanted, arguments
        outcomes.append("after")
    assert len(outcomes) == KILLS
    assert hit, "no kill met a writer at work: the test shows nothing"
    for operation in (removal, add, index):
        finish(operation.arguments(state_of(folder)))
        assert debris(folder) == []
    assert state_of(folder) == first_state(data, tmp_path / "fresh")


def ids_of(state: State) -> frozenset[str]:
    assert state is not None
    return state[0]


def first_state(data: Path, folder: Path) -> State:
    finish(("index", data, "--out", folder, *COLUMNS, "--encoder", "none"))
    return state_of(folder)
