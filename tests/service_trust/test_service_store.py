"""The store: what was acknowledged is there, what was deleted is nowhere."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from trust_events import add, shown

from dmnrag.errors import DmnragError, QueryError
from dmnrag.service import store as module
from dmnrag.service.store import AnswerUnknownError, Feedback, Store, StoredAnswer, StoreError

KILLS = 3
ACKNOWLEDGED = 30
"""Lines of a writer before it is killed."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def voted(store: Store) -> list[StoredAnswer]:
    return [stored for stored in store.questions() if stored.feedback is not None]


def bytes_of(path: Path) -> bytes:
    """The database with its log and shared memory."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


def ids(store: Store) -> list[str]:
    return [stored.started.answer_id for stored in store.questions()]


def test_an_answer_comes_back_as_it_was_shown(path: Path) -> None:
    asked, started, sources, finished = shown()
    with Store.open(path) as store:
        store.add_question(asked, started, sources, finished, generation=7)
    with Store.open(path) as store:
        found = store.answer("a1", "desk")
        assert found is not None
        assert found == StoredAnswer(found.asked_at, "desk", asked.question, 7, started, sources, finished)
        assert datetime.fromisoformat(found.asked_at).utcoffset() is not None
        assert list(store.questions()) == [found]
        assert voted(store) == []


def test_an_answer_is_its_owners_alone(path: Path) -> None:
    with Store.open(path) as store:
        add(store, "a1", "desk")
        assert store.answer("a1", "web") is None
        assert store.answer("a1", "") is None
        assert store.answer("a2", "desk") is None
        for answer_id, owner in (("a1", "web"), ("a2", "desk"), ("\udcff", "desk")):
            with pytest.raises(AnswerUnknownError) as caught:
                store.add_feedback(answer_id, owner, good=True)
            assert isinstance(caught.value, DmnragError)
            assert isinstance(caught.value, LookupError)
        assert voted(store) == []


def test_a_second_vote_takes_the_place_of_the_first(path: Path) -> None:
    with Store.open(path) as store:
        add(store, "a1")
        store.add_feedback("a1", "desk", good=True, comment="很好")
        store.add_feedback("a1", "desk", good=False, comment="还是不对 \udcff")
        [stored] = voted(store)
        assert stored.feedback == Feedback(stored.feedback.given_at, False, "还是不对 ?")  # type: ignore[union-attr]


def test_a_comment_that_is_too_long_is_refused(path: Path) -> None:
    with Store.open(path) as store:
        add(store, "a1")
        store.add_feedback("a1", "desk", good=True, comment="长" * 2_000)
        with pytest.raises(QueryError, match="2,001 characters: at most 2,000"):
            store.add_feedback("a1", "desk", good=False, comment="长" * 2_001)
        [stored] = voted(store)
        assert stored.feedback is not None
        assert stored.feedback.good


def test_the_same_id_twice_is_an_error_and_changes_nothing(path: Path) -> None:
    with Store.open(path) as store:
        add(store, "a1", "desk", "first")
        with pytest.raises(StoreError, match="UNIQUE"):
            add(store, "a1", "desk", "second")
        assert [stored.question for stored in store.questions()] == ["first"]


def test_odd_text_is_kept(path: Path) -> None:
    asked, started, sources, finished = shown()
    source = replace(sources.sources[0], score=float("inf"), question="\x00\n' \" \U0001f600")
    with Store.open(path) as store:
        store.add_question(
            replace(asked, question="half a pair \udcff"), started, replace(sources, sources=(source,)), finished
        )
        found = store.answer("a1", "desk")
        assert found is not None
        assert found.question == "half a pair ?"
        assert found.sources.sources == (source,)


def test_deleting_an_owner_leaves_the_others(path: Path) -> None:
    with Store.open(path) as store:
        for number in range(6):
            add(store, f"a{number}", "desk" if number % 2 else "web")
            store.add_feedback(f"a{number}", "desk" if number % 2 else "web", good=True)
        assert store.delete_owner("desk") == 3
        assert store.delete_owner("desk") == 0
        assert ids(store) == ["a0", "a2", "a4"]
        assert len(voted(store)) == 3
    counts = sqlite3.connect(path).execute("SELECT count(*) FROM feedback").fetchone()
    assert counts == (3,)


def test_deleting_one_answer(path: Path) -> None:
    with Store.open(path) as store:
        add(store, "a1")
        add(store, "a2")
        assert store.delete_answer("a1", "web") == 0
        assert store.delete_answer("a1", "desk") == 1
        assert store.delete_answer("a2") == 1  # the operator's
        assert ids(store) == []


@pytest.mark.parametrize("long", [False, True])
def test_no_text_of_what_is_deleted_is_left_in_the_files(path: Path, long: bool) -> None:
    """Also of texts that fill pages of their own, and of a comment that took another's place."""
    secret = ("秘密的问题" * 5_000) if long else "秘密的问题"
    with Store.open(path) as store:
        add(store, "keep", "web", "留下的问题")
        add(store, "gone", "desk", secret, "秘密的回答")
        store.add_feedback("gone", "desk", good=True, comment="秘密的评语")
        store.add_feedback("gone", "desk", good=False, comment="另一句评语")
        for text in ("秘密的问题", "秘密的回答", "另一句评语", "留下的问题"):
            assert text.encode() in bytes_of(path)
        assert store.delete_owner("desk") == 1
        for text in ("秘密的问题", "秘密的回答", "秘密的评语", "另一句评语", "gone"):
            assert text.encode() not in bytes_of(path)
        assert "留下的问题".encode() in bytes_of(path)


def test_a_deletion_says_so_when_another_reader_keeps_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUSY_S", 0.01)
    with Store.open(path) as store:
        add(store, "a1")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM answers").fetchall()
        with pytest.raises(StoreError, match="delete again"):
            store.delete_owner("desk")
        reader.close()
        assert store.delete_owner("desk") == 0
        assert "血压高".encode() not in bytes_of(path)


def test_reading_goes_on_while_others_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    with Store.open(path) as store:
        for number in range(5):
            add(store, f"a{number}")
        reading = store.questions()
        first = next(reading)
        store.delete_answer("a3")
        add(store, "late")
        assert first.started.answer_id == "a0"
        assert [stored.started.answer_id for stored in reading] == ["a1", "a2", "a4", "late"]


def test_threads_share_a_store(path: Path) -> None:
    with Store.open(path) as store:

        def work(thread: int) -> None:
            for number in range(20):
                add(store, f"{thread}-{number}", f"owner{thread}")
                store.add_feedback(f"{thread}-{number}", f"owner{thread}", good=True)
                assert store.answer(f"{thread}-{number}", f"owner{thread}") is not None

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(voted(store)) == 120


def test_two_stores_on_one_file(path: Path) -> None:
    with Store.open(path) as service, Store.open(path) as command:
        add(service, "a1")
        assert ids(command) == ["a1"]
        assert command.delete_owner("desk") == 1
        add(service, "a2")
        assert ids(command) == ids(service) == ["a2"]


def test_the_file_is_durable_and_this_users_alone(path: Path) -> None:
    with Store.open(path) as store:
        add(store, "a1")
        pragmas = {
            name: store._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "secure_delete")
        }
        assert pragmas == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1}
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_another_programs_file_is_refused_and_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="database of another program"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_file_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("no database at all, but long enough to be taken for one" * 100, encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a database"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_newer_release_is_refused(path: Path) -> None:
    Store.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(StoreError, match="has version 2, this release reads 1"):
        Store.open(path)


def test_a_row_that_was_altered_is_an_error_that_names_it(path: Path) -> None:
    with Store.open(path) as store:
        add(store, "a1")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE answers SET finished = '{}'")
    connection.commit()
    connection.close()
    with Store.open(path) as store, pytest.raises(StoreError, match="answer a1"):
        store.answer("a1", "desk")


@pytest.mark.parametrize("place", ["missing/store.sqlite", "."])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open(tmp_path / place)


def test_a_full_disk_is_an_error_and_loses_nothing_else(path: Path) -> None:
    with Store.open(path) as store:
        add(store, "a1")
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full"):
            add(store, "a2", "desk", "长" * 100_000)
        store._connection.execute("PRAGMA max_page_count = 1000000")
        add(store, "a3")
        assert ids(store) == ["a1", "a3"]


def test_what_was_acknowledged_survives_kill_9(path: Path) -> None:
    asked: set[str] = set()
    voted: set[str] = set()
    for kill in range(KILLS):
        command = [sys.executable, str(Path(__file__).with_name("store_kill.py")), str(path), str(kill * 1_000)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(ACKNOWLEDGED + 7 * kill)]
        os.kill(process.pid, signal.SIGKILL)
        lines += process.communicate()[0].splitlines()
        for line in lines:
            if line.startswith(("asked a", "voted a")):
                word, _, answer_id = line.strip().partition(" ")
                (asked if word == "asked" else voted).add(answer_id)
        with Store.open(path) as store:
            kept = {s.started.answer_id: s.feedback for s in store.questions()}
        assert asked <= set(kept)
        assert voted <= {answer_id for answer_id, feedback in kept.items() if feedback}
        for answer_id in voted:
            assert kept[answer_id].comment == f"comment {answer_id[1:]}"  # type: ignore[union-attr]
    assert len(voted) >= KILLS * ACKNOWLEDGED // 2
