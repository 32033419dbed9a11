"""What is peculiar to the embedded second layer: files, widening, the graph, joining segments."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from dense_builder import EXACT, HNSW, build_dense, encoded, table_of, write_segments
from hypothesis import given, settings
from hypothesis import strategies as st

from dmnrag import _io
from dmnrag.errors import ConfigError, IndexDamagedError, QueryError
from dmnrag.retrieval.dense import FaissDenseIndex, merge_vectors, nearest, store, write_vectors
from dmnrag.retrieval.dense.vectors import open_vectors
from dmnrag.testing.dense_contract import VectorDocument, found, random_documents, reference_ranking, unit

QUERIES = unit(*np.random.default_rng(0).standard_normal((5, 12)))


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 40),
    k=st.integers(1, 50),
    seed=st.integers(0, 10_000),
    n_segments=st.integers(1, 3),
    labels=st.none() | st.lists(st.sampled_from(["heart", "lung", "skin", "never"]), max_size=3).map(tuple),
    coarse=st.booleans(),
)
def test_search_equals_comparing_everything(
    tmp_path_factory: pytest.TempPathFactory,
    n: int,
    k: int,
    seed: int,
    n_segments: int,
    labels: tuple[str, ...] | None,
    coarse: bool,
) -> None:
    """Whatever the parts, labels, removals and segments; `coarse` vectors tie often."""
    documents = random_documents(n, 12, seed)
    if coarse:
        documents = [
            VectorDocument(d.doc_id, unit(*(np.sign(d.parts[:, :12]) + 3 * (np.arange(12) < 8))), d.domain, d.removed)
            for d in documents
        ]
    index = build_dense(tmp_path_factory.mktemp("dense"), documents, min(n_segments, n))
    [query] = unit(*np.random.default_rng(seed + 1).standard_normal((1, 12)))
    [hits] = index.search(query[None], k, allowed=[labels])
    expected = reference_ranking(documents, query, k, labels)
    assert found(hits) == [doc_id for doc_id, _ in expected]
    assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected], abs=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_blocks_and_filters_of_any_size_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Kept rows are compared by copying blocks, or by comparing all and dropping."""
    monkeypatch.setattr(nearest, "_COPIED_AT_ONCE", 7)
    monkeypatch.setattr(nearest, "_MOSTLY_KEPT", share)
    monkeypatch.setattr(store, "_QUERIES_AT_ONCE", 2)
    documents = random_documents(80, 12, seed=8)
    index = build_dense(tmp_path, documents, 2)
    for labels in (None, ("heart",), ("heart", "lung", "skin")):
        for query, hits in zip(QUERIES, index.search(QUERIES, 6, allowed=[labels] * 5), strict=True):
            assert found(hits) == [doc_id for doc_id, _ in reference_ranking(documents, query, 6, labels)]


def test_copies_score_alike_wherever_they_stand(tmp_path: Path) -> None:
    """200 copies of one passage among others: all tie exactly, so the lowest ids win."""
    copy = unit(np.random.default_rng(1).standard_normal(384).tolist())
    random = np.random.default_rng(2)
    documents = [
        VectorDocument(f"c{i:03d}", copy)
        if i % 3 == 0
        else VectorDocument(f"r{i:03d}", unit(random.standard_normal(384)))
        for i in range(600)
    ]
    index = build_dense(tmp_path, documents, 3)
    hits = index.search(np.repeat(copy, 40, axis=0), 5)
    assert {tuple(found(h)) for h in hits} == {("c000", "c003", "c006", "c009", "c012")}
    assert len({hit.score for h in hits for hit in h}) == 1


def test_score_of_a_row_does_not_depend_on_the_others() -> None:
    """To the last digit, for any number of rows: BLAS does not promise that."""
    random = np.random.default_rng(3)
    vectors = random.standard_normal((67, 384)).astype(np.float32)
    query = random.standard_normal(384).astype(np.float32)
    together = nearest.inner_products(query, vectors)
    for n in (1, 2, 3, 5, 9, 33):
        np.testing.assert_array_equal(nearest.inner_products(query, vectors[67 - n :]), together[67 - n :])


def test_graph_with_a_filter_walks_and_finds_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond `_FEW_ROWS` rows a filter is handed to the graph; nearly all of the best 5 are found."""
    monkeypatch.setattr(store, "_FEW_ROWS", 10)
    documents = random_documents(400, 12, seed=9)
    index = build_dense(tmp_path, documents, 2, HNSW)
    monkeypatch.setattr(index, "_by_comparing", None)  # calling it would fail
    shared = 0
    for query, hits in zip(QUERIES, index.search(QUERIES, 5, allowed=[("lung",)] * 5), strict=True):
        best = {doc_id for doc_id, _ in reference_ranking(documents, query, 5, ("lung",))}
        shared += len(best & set(found(hits)))
    assert shared >= 23  # of 5 x 5


def test_graph_that_finds_too_few_is_helped_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its candidates are parts of one document: the others are found by comparing."""
    monkeypatch.setattr(store, "_FEW_ROWS", 0)
    crowd = VectorDocument("crowd", unit(*([1, 0, 0, i / 1000] for i in range(60))))
    others = [VectorDocument(f"o{i}", unit([1, 1 + i, 0, 0])) for i in range(5)]
    index = build_dense(tmp_path, [crowd, *others], settings=HNSW)
    [hits] = index.search(unit([1, 0, 0, 0]), 4)
    assert found(hits) == ["crowd", "o0", "o1", "o2"]


def test_same_vectors_give_the_same_graph(tmp_path: Path) -> None:
    documents = random_documents(300, 12, seed=10)
    for name in "ab":
        write_segments(tmp_path / name, documents, 1, HNSW)
    first, second = ((tmp_path / name / "000" / "graph.faiss").read_bytes() for name in "ab")
    assert first == second


def test_unscaled_vectors_are_ranked_by_inner_product(tmp_path: Path) -> None:
    """[3, 4].[1, 2] = 11 and [3, 4].[0, 2] = 8: a longer vector may win over a nearer one."""
    documents = [
        VectorDocument("short", np.array([[0.6, 0.8]], np.float32)),
        VectorDocument("long", np.array([[1, 2]], np.float32)),
        VectorDocument("up", np.array([[0, 2]], np.float32)),
    ]
    [hits] = build_dense(tmp_path, documents).search(np.array([[3, 4]], np.float32), 3)
    assert [(hit.doc_id, hit.score) for hit in hits] == [("long", 11.0), ("up", 8.0), ("short", 5.0)]


def test_vectors_are_mapped_not_read(tmp_path: Path) -> None:
    [folder] = write_segments(tmp_path, random_documents(5, 12, seed=1), 1, EXACT)
    base = open_vectors(folder).vectors.base
    assert isinstance(base, np.memmap)


def test_joined_segments_search_as_one_built_from_what_is_left(tmp_path: Path) -> None:
    documents = random_documents(50, 12, seed=11)
    folders = write_segments(tmp_path / "parts", documents, 3, EXACT)
    live = np.array([not document.removed for document in documents])
    bounds = np.linspace(0, 50, 4).astype(int)
    masks = [live[start:end] for start, end in pairwise(bounds)]
    left = [document for document in documents if not document.removed]
    for settings_ in (EXACT, HNSW):
        target = tmp_path / settings_.kind
        assert merge_vectors(target, folders, masks, settings_) == len(left)
        joined = FaissDenseIndex([target], table_of(left), settings_)
        assert joined.search(QUERIES, 8) == build_dense(tmp_path / "fresh", left).search(QUERIES, 8)
    np.testing.assert_array_equal(open_vectors(target).owners, encoded(left).owners)


def test_joining_refuses_what_does_not_fit(tmp_path: Path) -> None:
    folders = write_segments(tmp_path / "a", random_documents(6, 12, seed=1), 2, EXACT)
    other = write_segments(tmp_path / "b", random_documents(3, 8, seed=1), 1, EXACT)
    with pytest.raises(ConfigError, match="masks"):
        merge_vectors(tmp_path / "c", folders, [None], EXACT)
    with pytest.raises(ConfigError, match="4 entries"):
        merge_vectors(tmp_path / "c", folders, [None, np.ones(4, bool)], EXACT)
    with pytest.raises(ConfigError, match="dimension"):
        merge_vectors(tmp_path / "c", [*folders, *other], [None] * 3, EXACT)
    with pytest.raises(ConfigError, match="no document"):
        merge_vectors(tmp_path / "c", folders, [np.zeros(3, bool)] * 2, EXACT)


@pytest.mark.parametrize("name", ["vectors.npy", "owners.npy", "dense.json", "graph.faiss"])
@pytest.mark.parametrize("damage", ["missing", "cut", "empty"])
def test_damaged_file_is_named(tmp_path: Path, name: str, damage: str) -> None:
    documents = random_documents(30, 12, seed=12)
    [folder] = write_segments(tmp_path, documents, 1, HNSW)
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(IndexDamagedError, match=name):
        FaissDenseIndex([folder], table_of(documents), HNSW)


@pytest.mark.parametrize("owners", [[1, 1, 2], [0, 2, 2], [0, 1, 0], [0, 0, 1]])
def test_owners_out_of_order_are_damage(tmp_path: Path, owners: list[int]) -> None:
    """Each document has a part, in order: for three documents of one part that is 0, 1, 2."""
    documents = [VectorDocument(name, unit([1, 0])) for name in "abc"]
    [folder] = write_segments(tmp_path, documents, 1, EXACT)
    np.save(folder / "owners.npy", np.array(owners))
    with pytest.raises(IndexDamagedError, match="owners"):
        open_vectors(folder)


def test_foreign_graph_is_damage(tmp_path: Path) -> None:
    documents = random_documents(30, 12, seed=12)
    [folder] = write_segments(tmp_path / "a", documents, 1, HNSW)
    [other] = write_segments(tmp_path / "b", documents[:20], 1, HNSW)
    (folder / "graph.faiss").write_bytes((other / "graph.faiss").read_bytes())
    with pytest.raises(IndexDamagedError, match="vectors"):
        FaissDenseIndex([folder], table_of(documents), HNSW)


def test_vectors_of_other_documents_are_damage(tmp_path: Path) -> None:
    documents = random_documents(30, 12, seed=12)
    folders = write_segments(tmp_path, documents, 2, EXACT)
    with pytest.raises(IndexDamagedError, match="15 documents"):
        FaissDenseIndex(folders[:1], table_of(documents), EXACT)


def test_query_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    index = build_dense(tmp_path, random_documents(3, 12, seed=1))
    with pytest.raises(QueryError, match="finite"):
        index.search(np.full((1, 12), np.nan, np.float32), 3)


def test_every_durable_step_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes come last, so a segment that lacks any file does not open."""
    steps: list[tuple[str, str]] = []
    monkeypatch.setattr(_io, "FAULT_HOOK", lambda step, path: steps.append((step, path.name)))
    write_vectors(tmp_path / "s", encoded(random_documents(5, 12, seed=1)), HNSW)
    files = [name for step, name in steps if step == "write"]
    assert files == ["vectors.npy", "owners.npy", "graph.faiss", "dense.json"]
    assert {name for step, name in steps if step == "fsync"} >= {
        "vectors.npy",
        "owners.npy",
        "graph.faiss",
        "s",
    }
    assert json.loads((tmp_path / "s" / "dense.json").read_text())["documents"] == 5
