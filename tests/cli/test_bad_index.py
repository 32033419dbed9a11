"""Index folders as they should not be, through the command: one clear line, an exit code, nothing lost."""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Outcome, RunCli

from dmnrag import _io
from dmnrag.index import Index, IndexSettings, build_index, update_index
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document, Example, Query

DOCUMENTS = [Document(f"d{n}", f"问题{n}发烧", (f"回答{n}多喝水",), ("内科",)) for n in range(4)]
EXAMPLES = [Example(Query("q", "发烧吃药", ("内科",)), ("不吃",), ("d1",), "q")]
NOBODY = 65534
FILES = ("manifest.json", "documents-000.parquet", "removed-000.npy", "examples.jsonl")
SPARSE = ("text_docs.npy", "text_terms.npy", "joint_lengths.npy")
DENSE = ("vectors.npy", "owners.npy", "dense.json")
PARTS = (*FILES, *(f"sparse/000/{n}" for n in SPARSE), *(f"dense/base/000/{n}" for n in DENSE))


def make(folder: Path) -> Path:
    """An index with both layers, two segments and a removed document, in generation 2."""
    encoder = HashEncoder()
    settings = IndexSettings(dense=DenseSettings(encoder="fake"))
    build_index(folder, DOCUMENTS, settings, examples=EXAMPLES, encoder=encoder)
    new = Document("new", "新问题", ("新回答",), ("儿科",))
    update_index(folder, add=[new], remove=["d0"], encoder_for=lambda _: encoder)
    return folder


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return make(tmp_path / "index")


def table(folder: Path) -> Path:
    path = folder / "more.jsonl"
    path.write_text('{"q": "骨折怎么办", "a": "去医院"}\n', encoding="utf-8")
    return path


COLUMNS = ("--question-column", "q", "--answer-column", "a")


def refused(done: Outcome, *said: str, code: int = 1) -> None:
    assert (done.code, done.out) == (code, "")
    *progress, last = done.err.splitlines()
    assert all(line.endswith(" done") for line in progress), done.err
    assert last.startswith("error: ")
    assert "unexpected" not in last
    for part in said:
        assert part in last, last


def every_command(run_cli: RunCli, folder: Path, more: Path) -> list[Outcome]:
    """What reads an index and what changes it."""
    return [
        run_cli("info", folder, "--verify"),
        run_cli("search", folder, "发烧", "--layer", "hybrid"),
        run_cli("ask", folder, "发烧", "--llm", "fake"),
        run_cli("evaluate", folder),
        run_cli("export", folder, "--to", "beir", "--out", folder.with_name("out")),
        run_cli("add", folder, more, *COLUMNS),
        run_cli("remove", folder, "d1"),
    ]


def test_a_folder_that_is_not_there_or_no_index(run_cli: RunCli, tmp_path: Path) -> None:
    more = table(tmp_path)
    for done in [*every_command(run_cli, tmp_path / "none", more), run_cli("upgrade", tmp_path / "none")]:
        refused(done, "there is no folder", "dmnrag index FILE --out")
    assert not (tmp_path / "none").exists()
    for done in [*every_command(run_cli, tmp_path, more), run_cli("upgrade", tmp_path)]:
        refused(done, "is not an index (no CURRENT in it)")
    for done in every_command(run_cli, more, more):
        refused(done, "there is no folder")


def test_a_newer_format(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    path = index / "generations" / "000002" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "format_version": 99}))
    for done in [*every_command(run_cli, index, table(tmp_path)), run_cli("upgrade", index)]:
        refused(done, "has index format 99", "install a newer dmnrag")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_missing(run_cli: RunCli, index: Path, tmp_path: Path, part: str) -> None:
    (index / "generations" / "000002" / part).unlink()
    for done in every_command(run_cli, index, table(tmp_path)):
        refused(done, part.rsplit("/", 1)[-1])


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_cut_short(run_cli: RunCli, index: Path, tmp_path: Path, part: str) -> None:
    path = index / "generations" / "000002" / part
    content = path.read_bytes()[:-1]
    path.unlink()  # the file is shared with the former generation, which stays whole
    path.write_bytes(content[: len(content) // 2])
    for done in every_command(run_cli, index, table(tmp_path)):
        refused(done, part.rsplit("/", 1)[-1])


@pytest.mark.parametrize("part", [part for part in PARTS if part != "manifest.json"])
def test_a_part_altered_in_its_bytes_is_found_by_verify_and_never_a_riddle(
    run_cli: RunCli, index: Path, tmp_path: Path, part: str
) -> None:
    path = index / "generations" / "000002" / part
    content = bytes(byte ^ 0xFF for byte in path.read_bytes())
    path.unlink()
    path.write_bytes(content)
    for done in (run_cli("info", index, "--verify"), run_cli("doctor", index)):
        assert done.code == 1
        assert "was altered" in (done.err or done.out)
    for done in every_command(run_cli, index, table(tmp_path)):
        assert "unexpected" not in done.err
        assert done.code in (0, 1, 2)


@pytest.mark.parametrize(
    ("key", "value"),
    [("settings", {}), ("settings", {"segmenter": 3}), ("parts", {"x": 1}), ("retrievers", 5), ("segments", [{}])],
)
def test_a_manifest_with_other_content(run_cli: RunCli, index: Path, key: str, value: object) -> None:
    path = index / "generations" / "000002" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), key: value}))
    refused(run_cli("search", index, "发烧"), "manifest", "restore it or rebuild")


def test_a_pointer_to_nothing_or_spoilt(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    (index / "CURRENT").write_text("000009\n")
    for done in every_command(run_cli, index, table(tmp_path)):
        refused(done, "manifest.json", "cannot be opened")
    (index / "CURRENT").write_bytes(b"\xff\xfe\x00")
    for done in every_command(run_cli, index, table(tmp_path)):
        refused(done, "CURRENT", "instead of a generation's number")
    # Building again is the way out that the message names.
    done = run_cli("index", table(tmp_path), "--out", index, *COLUMNS, "--encoder", "none")
    assert (done.code, done.out) == (0, f"1 documents in {index} (generation 3)\n")


@pytest.fixture
def read_only(run_cli: RunCli) -> Iterator[Path]:
    """An index that this process may read and not write: a real refusal of the system, also for root."""
    base = Path(tempfile.mkdtemp(prefix="dmnrag-test-"))
    base.chmod(0o755)
    index = make(base / "index")
    table(base)
    for path in (base, *base.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for command in (("search", index, "发烧", "--layer", "hybrid"), ("info", index)):
        run_cli(*command)  # loads every module while it may be read
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield index
    finally:
        if is_root:
            os.seteuid(0)
        for path in (base, *(p for p in base.rglob("*") if p.is_dir())):
            path.chmod(0o755)
        shutil.rmtree(base)


def test_a_read_only_index_is_searched_and_says_that_it_cannot_be_written(run_cli: RunCli, read_only: Path) -> None:
    assert run_cli("search", read_only, "发烧", "--layer", "hybrid", "--json").code == 0
    assert run_cli("info", read_only, "--verify").code == 0
    more = read_only.with_name("more.jsonl")
    said = (f"{read_only} cannot be written", "nothing in it was changed", "no permission", "name another one")
    refused(run_cli("remove", read_only, "d1"), *said)
    refused(run_cli("add", read_only, more, *COLUMNS), *said)
    refused(run_cli("index", more, "--out", read_only, *COLUMNS, "--encoder", "none"), *said)
    out = read_only.with_name("new")
    done = run_cli("index", more, "--out", out, *COLUMNS, "--encoder", "none")
    refused(done, f"{out} cannot be written", "no permission")
    refused(run_cli("export", read_only, "--to", "beir", "--out", out), "no permission")


def test_an_index_that_may_not_be_read_says_so(run_cli: RunCli, read_only: Path) -> None:
    if os.geteuid() == NOBODY:
        os.seteuid(0)
        (read_only / "generations" / "000002").chmod(0o000)
        os.seteuid(NOBODY)
    else:
        (read_only / "generations" / "000002").chmod(0o000)
    refused(run_cli("search", read_only, "发烧"), "manifest.json", "Permission denied")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EROFS, "the file system is read-only; mount it writable or name another folder"),
        (errno.ENOSPC, "no space left on the disk; free some, then try again"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EIO, "the disk reports an input/output error"),
        (errno.ENOLCK, "No locks available"),
    ],
)
def test_what_the_system_says_of_a_disk_becomes_one_clear_line(
    run_cli: RunCli, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def refuse(_step: str, path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(_io, "FAULT_HOOK", refuse)
    more = table(tmp_path)
    refused(run_cli("remove", index, "d1"), f"{index} cannot be written, nothing in it was changed", said)
    refused(run_cli("add", index, more, *COLUMNS), f"{index} cannot be written", said)
    new = run_cli("index", more, "--out", tmp_path / "new", *COLUMNS, "--encoder", "none")
    refused(new, f"{tmp_path / 'new'} cannot be written", said)
    refused(run_cli("export", index, "--to", "beir", "--out", tmp_path / "beir"), said)
    monkeypatch.setattr(_io, "FAULT_HOOK", None)
    with Index.open(index, verify=True) as opened:
        assert (opened.manifest.generation, opened.n_documents) == (2, 4)


def test_a_failure_after_the_change_says_that_it_was_made(
    run_cli: RunCli, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(step: str, path: Path) -> None:
        if (step, path) == ("fsync", index):
            raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(_io, "FAULT_HOOK", refuse)
    refused(run_cli("remove", index, "d1"), "has the change, but perhaps not safely on the disk yet")
    with Index.open(index, verify=True) as opened:
        assert (opened.manifest.generation, opened.n_documents) == (3, 3)
