"""`dmnrag index --backend elasticsearch` dies at random points: the index answers as before or as after."""

import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from cluster_corpus import Place

from dmnrag.errors import ClusterIndexError, IndexMissingError
from dmnrag.index import Index
from dmnrag.retrieval.elastic import ElasticDocuments, count, open_index

SCRIPT = Path(__file__).with_name("cluster_kill.py")
COLUMNS = ("--question-column", "q", "--answer-column", "a", "--domain-column", "d")
KILLS = 20
_SEED = 20


def csv_of(path: Path, label: str, n_rows: int) -> Path:
    rows = (
        f"{label}问题{number}怎么办,{label}回答{number}，多注意休息,{'内科' if number % 3 else '外科'}\n"
        for number in range(n_rows)
    )
    path.write_text("q,a,d\n" + "".join(rows), encoding="utf-8")
    return path


def run_until(step: int, arguments: Sequence[object]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(step), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def answers_under_alias(place: Place) -> frozenset[str]:
    """Ids of what the alias points at; it must be whole."""
    try:
        opened = open_index(place.cluster, place.name)
    except ClusterIndexError:
        return frozenset()
    found = frozenset(document.doc_id for document in ElasticDocuments(place.cluster, opened))
    assert len(found) == count(place.cluster, opened.physical)
    return found


def answers_from_folder(place: Place) -> frozenset[str]:
    """Ids that the folder finds; it must be whole."""
    try:
        with Index.open(place.folder, verify=True) as index:
            return frozenset(document.doc_id for document in index.all_documents())
    except IndexMissingError:
        return frozenset()


@pytest.mark.slow
@pytest.mark.service
def test_twenty_kills_leave_the_old_index_or_the_new_one(place: Place, tmp_path: Path, server_url: str) -> None:
    old, new = csv_of(tmp_path / "old.csv", "旧", 300), csv_of(tmp_path / "new.csv", "新", 200)

    def arguments(path: Path) -> Sequence[object]:
        cluster = ("--backend", "elasticsearch", "--es-url", server_url, "--es-index", place.name, "--replicas", "0")
        return ("index", path, "--out", place.folder, *COLUMNS, "--encoder", "fake", *cluster)

    def complete(path: Path) -> tuple[frozenset[str], int]:
        done = run_until(0, arguments(path))
        assert done.returncode == 0, done.stderr
        assert place.in_step()
        found = answers_from_folder(place)
        assert found == answers_under_alias(place)
        return found, int(done.stdout.split()[-1])

    draw = random.Random(_SEED)
    for step in (4, 24):  # while there is no index yet
        assert run_until(step, arguments(old)).returncode == -signal.SIGKILL
        assert answers_under_alias(place) == answers_from_folder(place) == frozenset()
    (of_old, _), (of_new, n_steps) = complete(old), complete(new)
    assert (len(of_old), len(of_new)) == (300, 200)
    complete(old)
    outcomes = []
    for _ in range(KILLS):
        done = run_until(draw.randint(1, n_steps), arguments(new))
        assert done.returncode == -signal.SIGKILL, done.stderr
        under_alias, in_folder = answers_under_alias(place), answers_from_folder(place)
        assert {under_alias, in_folder} <= {of_old, of_new}
        # The folder is never behind the alias.
        assert (under_alias, in_folder) != (of_new, of_old)
        outcomes.append((under_alias == of_new, in_folder == of_new))
        assert complete(old)[0] == of_old
    assert (False, False) in outcomes, "no kill met a build at work: the test shows nothing"
