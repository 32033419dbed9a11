"""Searches while a writer goes on: every answer is that of one whole generation, and none fails."""

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from crash_reader import rankings
from crash_scenarios import SETTINGS, document

from dmnrag.data import ColumnMapping, read_documents
from dmnrag.index import Index, build_index, generations, update_index
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Query

QUERIES = [Query("1", "高血压吃什么药", ()), Query("2", "胃疼怎么办", ()), Query("3", "糖尿病能吃水果吗", ())]
READER = Path(__file__).with_name("crash_reader.py")
ENCODER = HashEncoder(dimension=32)


def answers_of_current(folder: Path) -> tuple[int, list[object]]:
    """Number of the current generation and its answer to each query."""
    with Index.open(folder) as index:
        return index.manifest.generation, [json.loads(json.dumps(rankings(index, query))) for query in QUERIES]


def wait_for_generation(number: int, outs: list[Path], readers: list[subprocess.Popen[str]]) -> None:
    """Return when every reader that still runs has written down an answer of that generation."""
    for out, reader in zip(outs, readers, strict=True):
        sign = f'{{"generation": {number},'
        while reader.poll() is None and not (out.exists() and sign in out.read_text(encoding="utf-8")):
            time.sleep(0.05)


def test_opening_while_generations_are_made_and_pruned_is_safe(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(folder, [document(n) for n in range(6)], SETTINGS, encoder=ENCODER)
    expected = dict([answers_of_current(folder)])
    done = threading.Event()
    found: list[tuple[int, list[object]]] = []
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not done.is_set():
                found.append(answers_of_current(folder))
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(10, 22):
        remove = [f"d{number - 5}"] if number % 3 == 0 and number > 15 else []
        update_index(folder, add=[document(number)], remove=remove, encoder_for=lambda _: ENCODER)
        expected |= dict([answers_of_current(folder)])
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert found
    assert [generation for generation, answer in found if expected[generation] != answer] == []
    update_index(folder, remove=["d1"])
    assert len(generations.generation_numbers(folder)) == 2


def test_an_index_that_was_dropped_without_closing_lets_its_generation_go(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(folder, [document(1), document(2)], SETTINGS, encoder=ENCODER)
    reader = Index.open(folder)
    assert reader.n_documents == 2
    del reader
    for number in (3, 4):
        update_index(folder, add=[document(number)], encoder_for=lambda _: ENCODER)
    assert generations.generation_numbers(folder) == [2, 3]


@pytest.mark.slow
def test_two_readers_at_twenty_queries_a_second_while_a_thousand_documents_are_added_ten_times(
    shared: Path, tmp_path: Path
) -> None:
    mapping = ColumnMapping(question=("title", "ask"), answer=("answer",), domain=("department",))
    documents, _ = read_documents([shared / "data" / "medical_im_gb18030.csv"], mapping)
    rounds = [documents[start : start + 1000] for start in range(0, 6000, 1000)]
    # Six thousand rows make six rounds; five more take rows again under other ids.
    rounds += [[replace(d, doc_id=f"again-{d.doc_id}") for d in rounds[n]] for n in range(1, 6)]
    folder, stop = tmp_path / "index", tmp_path / "stop"
    build_index(folder, rounds[0], SETTINGS, encoder=ENCODER)
    expected = dict([answers_of_current(folder)])
    queries = tmp_path / "queries.json"
    queries.write_text(json.dumps([[q.text, list(q.domain)] for q in QUERIES]), encoding="utf-8")
    outs = [tmp_path / f"reader{n}.jsonl" for n in (1, 2)]
    command = [sys.executable, str(READER), str(folder), str(queries)]
    readers = [
        subprocess.Popen([*command, str(out), str(stop), "20"], stderr=subprocess.PIPE, text=True) for out in outs
    ]
    try:
        for added in rounds[1:]:
            update_index(folder, add=added, encoder_for=lambda _: ENCODER)
            number, answers = answers_of_current(folder)
            expected[number] = answers
            # However slow the machine, each generation is read by both before the next one comes.
            wait_for_generation(number, outs, readers)
    finally:
        stop.touch()
        errors = [reader.communicate(timeout=60)[1] for reader in readers]
    assert [reader.returncode for reader in readers] == [0, 0], errors
    assert len(expected) == 11
    for out in outs:
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        wrong = [row for row in rows if expected[row["generation"]][row["query"]] != row["found"]]
        assert wrong == []
        assert set(expected) - {1} <= {row["generation"] for row in rows}
