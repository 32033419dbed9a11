"""Questions, answers and feedback in one SQLite file.

A write is on the disk when its method returns (WAL, synchronous=FULL): what was acknowledged survives kill -9 and a
power cut. An answer is kept as the events it was shown by, so that its citations survive a reload of the page. What is
deleted is overwritten and the write-ahead log emptied, so no text of it is left in the files.

The file may be open in several processes at once (a service, and `dmnrag feedback` beside it).
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from dmnrag.errors import DmnragError, QueryError
from dmnrag.service.events import Asked, Finished, Sources, Started

MAX_COMMENT_CHARACTERS = 2_000
VERSION = 1
"""Of the tables, in the file's user_version."""

_APPLICATION = 0x646D6E72
"""`dmnr`: tells this file from another program's."""
_TABLES = """
CREATE TABLE answers (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    answer_id TEXT NOT NULL UNIQUE,
    asked_at TEXT NOT NULL,
    owner TEXT NOT NULL,
    question TEXT NOT NULL,
    generation INTEGER,
    started TEXT NOT NULL,
    sources TEXT NOT NULL,
    finished TEXT NOT NULL
);
CREATE INDEX answers_of_owner ON answers (owner);
CREATE TABLE feedback (
    answer_id TEXT PRIMARY KEY REFERENCES answers (answer_id) ON DELETE CASCADE,
    given_at TEXT NOT NULL,
    good INTEGER NOT NULL,
    comment TEXT NOT NULL
);
"""
_ROWS = (
    "SELECT position, a.answer_id, asked_at, owner, question, generation, started, sources, finished,"
    " given_at, good, comment FROM answers a LEFT JOIN feedback f ON f.answer_id = a.answer_id"
)
_PAGE = 200
"""Rows read at once: nothing holds the file while a caller works on them."""
_BUSY_S = 10.0
"""How long another process may keep the file; its writes take milliseconds."""


class StoreError(DmnragError, RuntimeError):
    """The store cannot be used: another program's file, a newer release's, or the disk refuses."""


class AnswerUnknownError(DmnragError, LookupError):
    """No answer of that id is kept, or it is another owner's."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """A vote on an answer."""

    given_at: str
    good: bool
    comment: str


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer as it was shown."""

    asked_at: str
    """UTC, ISO 8601."""
    owner: str
    question: str
    """As it was put; `started.question` is what was searched."""
    generation: int | None
    """Of the index; None: not known."""
    started: Started
    sources: Sources
    finished: Finished
    feedback: Feedback | None = None

    def visible_to(self, allowed: frozenset[str] | None) -> bool:
        """Whether a key that may see documents with these labels (None: all) may see each of the sources.

        It may have been limited after it had asked. A document without labels is none that a limited key sees.
        """
        return allowed is None or not any(allowed.isdisjoint(source.domain) for source in self.sources.sources)


_STARTED, _SOURCES, _FINISHED = TypeAdapter(Started), TypeAdapter(Sources), TypeAdapter(Finished)


class Store:
    """An open store. Any thread may call it; every write waits for the disk, so an event loop calls it in a thread."""

    def __init__(self, path: Path) -> None:
        """Open, or create for this user alone.

        Raises:
            StoreError: not such a file, of a newer release, or not writable.
        """
        self.path = path
        self._lock = Lock()
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise StoreError(f"the store {path} cannot be opened: {error.strerror}; name another file") from error
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            with self._translated():
                self._prepare()
        except DmnragError:
            self._connection.close()
            raise

    @classmethod
    def open(cls, path: Path) -> Self:
        """As the constructor."""
        return cls(path)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_question(
        self, asked: Asked, started: Started, sources: Sources, finished: Finished, *, generation: int | None = None
    ) -> None:
        """Keep an answer with its question; earlier turns of the conversation are not kept.

        Raises:
            StoreError: the disk refuses it, or there is an answer of that id.
        """
        row = (
            started.answer_id,
            _now(),
            asked.owner,
            _text(asked.question),
            generation,
            _json(started),
            _json(sources),
            _json(finished),
        )
        with self._writing() as connection:
            connection.execute(
                "INSERT INTO answers (answer_id, asked_at, owner, question, generation, started, sources, finished)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def add_feedback(self, answer_id: str, owner: str, good: bool, comment: str = "") -> None:
        """Keep a vote on an answer; a second one takes the place of the first.

        Raises:
            AnswerUnknownError: no such answer of this owner.
            QueryError: the comment is too long.
            StoreError: the disk refuses it.
        """
        if len(comment) > MAX_COMMENT_CHARACTERS:
            raise QueryError(
                f"the comment has {len(comment):,} characters: at most {MAX_COMMENT_CHARACTERS:,} are allowed"
            )
        with self._writing() as connection:
            done = connection.execute(
                "INSERT OR REPLACE INTO feedback SELECT answer_id, ?, ?, ? FROM answers"
                " WHERE answer_id = ? AND owner = ?",
                (_now(), int(good), _text(comment), _text(answer_id), owner),
            )
            if not done.rowcount:
                raise AnswerUnknownError(
                    f"no answer {_text(answer_id)[:64]!r} is kept for you: it may have been deleted"
                )

    def answer(self, answer_id: str, owner: str) -> StoredAnswer | None:
        """An answer of this owner as it was shown; None: there is none."""
        rows = self._read(f"{_ROWS} WHERE a.answer_id = ? AND owner = ?", (_text(answer_id), owner))
        return self._restored(rows[0]) if rows else None

    def questions(self) -> Iterator[StoredAnswer]:
        """All answers, oldest first."""
        last = 0
        while rows := self._read(f"{_ROWS} WHERE position > ? ORDER BY position LIMIT {_PAGE}", (last,)):
            last = rows[-1][0]
            yield from map(self._restored, rows)

    def delete_owner(self, owner: str) -> int:
        """Delete everything of an owner; returns the number of answers."""
        return self._delete("owner = ?", (owner,))

    def delete_answer(self, answer_id: str, owner: str | None = None) -> int:
        """Delete one answer of an owner (None: whoever's it is); returns 1, or 0 where there is none."""
        if owner is None:
            return self._delete("answer_id = ?", (_text(answer_id),))
        return self._delete("answer_id = ? AND owner = ?", (_text(answer_id), owner))

    def _delete(self, condition: str, values: tuple[str, ...]) -> int:
        """Also empties the log where nothing is deleted: an earlier deletion may have been killed before that."""
        with self._writing() as connection:
            n = connection.execute(f"DELETE FROM answers WHERE {condition}", values).rowcount
        with self._lock, self._translated():
            busy, *_ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreError(
                f"{n} answers are deleted, but another program kept {self.path} in use, so their text may still be"
                " in its write-ahead log: delete again"
            )
        return n

    def _prepare(self) -> None:
        connection = self._connection
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application not in (0, _APPLICATION) or (application == 0 and tables):
            raise StoreError(f"{self.path} is a database of another program: name another file for the store")
        connection.execute("PRAGMA journal_mode = WAL")
        for setting in ("synchronous = FULL", "secure_delete = ON", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {setting}")
        with self._transaction():
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _TABLES.split(";\n")[:-1]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
            elif version != VERSION:
                raise StoreError(
                    f"the store {self.path} has version {version}, this release reads {VERSION}: use the release that"
                    " wrote it, or name another file"
                )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._translated(), self._transaction():
            yield self._connection

    def _read(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._lock, self._translated():
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"the store {self.path} cannot be used: {error}") from error

    def _restored(self, row: tuple[Any, ...]) -> StoredAnswer:
        _, answer_id, asked_at, owner, question, generation, started, sources, finished, given_at, good, comment = row
        try:
            return StoredAnswer(
                asked_at,
                owner,
                question,
                generation,
                _STARTED.validate_json(started),
                _SOURCES.validate_json(sources),
                _FINISHED.validate_json(finished),
                None if given_at is None else Feedback(given_at, bool(good), comment),
            )
        except ValidationError as error:
            raise StoreError(f"answer {answer_id} in the store {self.path} was altered by something else") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _json(event: Started | Sources | Finished) -> str:
    return _text(json.dumps(asdict(event), ensure_ascii=False))


def _text(text: str) -> str:
    """Lone surrogates, which no file in UTF-8 can hold, as question marks."""
    return text.encode("utf-8", "replace").decode()
