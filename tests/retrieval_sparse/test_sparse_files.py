"""Segments on disk: damage is named, steps are durable, nothing executes on load."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sparse_builder import Row, Words, table_of, write_rows

from dmnrag import _io
from dmnrag.errors import IndexDamagedError, IndexFolderError
from dmnrag.retrieval.arrays import ArrayWriter, map_array, open_array, save_array
from dmnrag.retrieval.sparse import Bm25Settings, EmbeddedSparseIndex, write_segment
from dmnrag.retrieval.sparse.segment import TermList

ROWS: list[Row] = [("d1", "rest helps", ("heart",)), ("d2", "pain at night", ())]
FILES = sorted(
    [
        f"{field}_{part}.npy"
        for field in ("text", "joint")
        for part in ("terms", "offsets", "prefixes", "starts", "docs", "counts")
    ]
    + ["text_lengths.npy", "joint_lengths.npy"]
)


def open_segment(folder: Path) -> EmbeddedSparseIndex:
    return EmbeddedSparseIndex([folder], table_of([ROWS]), Words(), Bm25Settings())


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "segment", ROWS)


def test_segment_consists_of_these_files(segment: Path) -> None:
    assert sorted(p.name for p in segment.iterdir()) == FILES


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(segment: Path, name: str) -> None:
    (segment / name).unlink()
    with pytest.raises(IndexDamagedError, match=name):
        open_segment(segment)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kept", [0, 20, -1])
def test_file_cut_short_is_named(segment: Path, name: str, kept: int) -> None:
    content = (segment / name).read_bytes()
    (segment / name).write_bytes(content[:kept])
    with pytest.raises(IndexDamagedError, match=name):
        open_segment(segment)


@pytest.mark.parametrize("name", FILES)
def test_array_of_another_shape_is_named(segment: Path, name: str) -> None:
    array = np.load(segment / name)
    np.save(segment / name, np.append(array, array[-1:]))
    with pytest.raises(IndexDamagedError, match=name):
        open_segment(segment)


def test_pickled_array_is_refused(segment: Path) -> None:
    np.save(segment / "text_docs.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(IndexDamagedError, match=r"text_docs\.npy"):
        open_segment(segment)


def test_segments_of_another_index_are_refused(segment: Path) -> None:
    with pytest.raises(IndexDamagedError, match="2 documents where the index has 1"):
        EmbeddedSparseIndex([segment], table_of([ROWS[:1]]), Words(), Bm25Settings())


def test_segment_is_never_written_over(segment: Path) -> None:
    with pytest.raises(IndexFolderError, match="not empty"):
        write_segment(segment, [("other", ())], Words())


def test_every_file_and_the_folder_are_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, str]] = []
    monkeypatch.setattr(_io, "FAULT_HOOK", lambda step, path: steps.append((step, path.name)))
    write_rows(tmp_path / "segment", ROWS)
    assert {name for step, name in steps if step == "write"} == set(FILES)
    assert {name for step, name in steps if step == "fsync"} == {*FILES, "segment"}
    assert steps[-1] == ("fsync", "segment")


def test_array_written_in_pieces_equals_one_written_whole(tmp_path: Path) -> None:
    pieces = [np.arange(n, dtype=np.int32) for n in (0, 7, 100_000)]
    with ArrayWriter(tmp_path / "a.npy", np.int32) as writer:
        for piece in pieces:
            writer.append(piece)
    np.save(tmp_path / "b.npy", np.concatenate(pieces))
    assert np.array_equal(open_array(tmp_path / "a.npy", "i"), np.load(tmp_path / "b.npy"))
    assert (tmp_path / "a.npy").stat().st_size == (tmp_path / "b.npy").stat().st_size


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (3, 4), (0, 4)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int32, np.int64, np.float32])
def test_mapped_array_is_what_numpy_reads(tmp_path: Path, shape: tuple[int, ...], dtype: type) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    save_array(tmp_path / "ours.npy", array)
    np.save(tmp_path / "numpy.npy", array)
    for name in ("ours.npy", "numpy.npy"):
        mapped, read = map_array(tmp_path / name), np.load(tmp_path / name)
        assert (mapped.dtype, mapped.shape) == (read.dtype, read.shape)
        assert np.array_equal(mapped, read)


@pytest.mark.parametrize("spoilt", ["longer", "fortran", "structured", "header"])
def test_what_is_no_plain_array_is_not_mapped(tmp_path: Path, spoilt: str) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.asfortranarray(np.ones((3, 4))) if spoilt == "fortran" else np.ones(3))
    if spoilt == "structured":
        np.save(path, np.zeros(3, dtype=[("a", np.int32)]))
    content = path.read_bytes()
    if spoilt == "longer":
        path.write_bytes(content + b"x")
    if spoilt == "header":
        path.write_bytes(content.replace(b"'shape': (3", b"'shape': (-"))
    with pytest.raises(ValueError, match=r"bytes where|header"):
        map_array(path)


def test_arrays_are_mapped_without_parsing_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Python 3.11 before 3.11.8 fails now and then when several threads parse source at once.
    save_array(tmp_path / "a.npy", np.arange(3))
    monkeypatch.setattr("ast.literal_eval", None)
    assert map_array(tmp_path / "a.npy").tolist() == [0, 1, 2]


def test_terms_that_share_their_first_bytes_are_told_apart() -> None:
    words = sorted(
        w.encode()
        for w in ("", "a", "a\0", "abcdefgh", "abcdefgh1", "abcdefgh2", "abcdefghi", "高血压", "高血脂", "心", "心肌")
    )
    terms = TermList.from_arrow(pa.array(words, pa.large_binary()))
    assert terms.find_all(words) == list(range(len(words)))
    absent = [b"abcdefg", b"abcdefgh0", b"abcdefgh1x", b"zz", "高血".encode(), b"\0"]
    assert terms.find_all(absent) == [None] * len(absent)
    assert terms.find_all([]) == []
    assert [bytes(t) for t in terms.to_arrow().to_pylist()] == words
