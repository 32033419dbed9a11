"""Adding, removing, merging and reopening score as one build of what remains."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_builder import Row, Words, live_masks, open_rows, rows_of, table_of, write_rows

from dmnrag.errors import ConfigError
from dmnrag.retrieval.sparse import Bm25Settings, EmbeddedSparseIndex, merge_segments
from dmnrag.testing.sparse_contract import USES, expected_hits, reference_scores
from dmnrag.types import Document, Domain, Hit, Query

WORDS = st.sampled_from(["rest", "pain", "heart", "lung", "night", "water", "心"])
LABELS = st.lists(st.sampled_from(["heart", "lung", "night water", "心 rest"]), max_size=2).map(tuple)
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[Row]], frozenset[str]]:
    """Segments in the order they were added, and the ids removed since."""
    sizes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    ids = iter(draw(st.permutations([f"d{i:02d}" for i in range(sum(sizes))])))
    segments = [[(next(ids), draw(TEXTS), draw(LABELS)) for _ in range(size)] for size in sizes]
    known = [row[0] for rows in segments for row in rows]
    return segments, frozenset(draw(st.sets(st.sampled_from(known))) if known else ())


QUERIES = st.builds(Query, st.just("q"), TEXTS, LABELS)
FILTERS = st.none() | LABELS


def same(left: list[Hit], right: list[Hit]) -> bool:
    return [h.doc_id for h in left] == [h.doc_id for h in right] and np.allclose(
        [h.score for h in left], [h.score for h in right], rtol=1e-6, atol=0
    )


@settings(max_examples=60, deadline=None)
@given(histories(), QUERIES, st.sampled_from(USES), FILTERS, st.integers(1, 8))
def test_any_adds_and_removes_equal_one_build(
    history: tuple[list[list[Row]], frozenset[str]], query: Query, use, allowed: Domain | None, k: int
) -> None:
    segments, removed = history
    remaining = [row for rows in segments for row in rows if row[0] not in removed]
    with TemporaryDirectory() as name:
        folder = Path(name)
        grown = open_rows(folder / "grown", segments, removed)
        once = open_rows(folder / "once", [remaining])
        [expected] = once.search([query], k, use=use, allowed=[allowed])
        [found] = grown.search([query], k, use=use, allowed=[allowed])
        assert same(found, expected)

        paths = sorted((folder / "grown").iterdir())
        n_merged = merge_segments(folder / "merged", paths, live_masks(segments, removed), block_postings=3)
        assert n_merged == len(remaining)
        merged = EmbeddedSparseIndex([folder / "merged"], table_of([remaining]), Words(), Bm25Settings())
        assert merged.search([query], k, use=use, allowed=[allowed]) == [expected]


@settings(max_examples=60, deadline=None)
@given(histories(), QUERIES, st.sampled_from(USES), FILTERS)
def test_scores_equal_the_slow_reference(
    history: tuple[list[list[Row]], frozenset[str]], query: Query, use, allowed: Domain | None
) -> None:
    segments, removed = history
    documents = [Document(i, t, (), d) for rows in segments for i, t, d in rows if i not in removed]
    expected = reference_scores(documents, query, use, k1=1.2, b=0.75, indexed_text="question+answer")
    keep = {d.doc_id for d in documents if allowed is None or set(allowed) & set(d.domain)}
    with TemporaryDirectory() as name:
        [hits] = open_rows(Path(name), segments, removed).search([query], 50, use=use, allowed=[allowed])
    ranked = expected_hits({d: s for d, s in expected.items() if d in keep}, 50)
    assert {h.doc_id: h.score for h in hits} == pytest.approx(dict(ranked), rel=1e-9)


SEGMENTS: list[list[Row]] = [
    [("d1", "rest helps the heart", ("heart",)), ("d2", "心 pain at night", ("lung", "night water"))],
    [("d3", "drink water at night and rest", ()), ("d4", "", ("lung",))],
]
EXAMPLES = [
    Query("q1", "rest at night", ("lung",)),
    Query("q2", "心 water"),
    Query("q3", "heart", ("night water",)),
]


def test_reopened_index_gives_the_same_hits(tmp_path: Path) -> None:
    first = open_rows(tmp_path, SEGMENTS).search(EXAMPLES, 9)
    again = EmbeddedSparseIndex(sorted(tmp_path.iterdir()), table_of(SEGMENTS), Words(), Bm25Settings()).search(
        EXAMPLES, 9
    )
    assert again == first
    assert all(first)


def test_build_in_many_chunks_equals_one(tmp_path: Path) -> None:
    rows = [(f"d{i:04d}", f"w{i % 7} w{i % 11} x{i} rest", (("heart", "lung")[i % 2],)) for i in range(1200)]
    write_rows(tmp_path / "whole", rows)
    write_rows(tmp_path / "chunks", rows, chunk_tokens=500)
    names = sorted(p.name for p in (tmp_path / "whole").iterdir())
    assert sorted(p.name for p in (tmp_path / "chunks").iterdir()) == names
    for name in names:
        assert np.array_equal(np.load(tmp_path / "whole" / name), np.load(tmp_path / "chunks" / name)), name


def test_k1_and_b_are_chosen_when_opening(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "s", SEGMENTS[0])
    results = [
        EmbeddedSparseIndex([folder], table_of(SEGMENTS[:1]), Words(), Bm25Settings(k1, b)).search(EXAMPLES, 9)
        for k1, b in ((1.2, 0.75), (0.5, 0.1))
    ]
    assert results[0] != results[1]


def test_index_without_live_documents_finds_nothing(tmp_path: Path) -> None:
    everything = frozenset({"d1", "d2", "d3", "d4"})
    assert open_rows(tmp_path, SEGMENTS, everything).search(EXAMPLES, 3) == [[], [], []]
    empty = EmbeddedSparseIndex([], table_of([]), Words(), Bm25Settings())
    assert empty.search(EXAMPLES, 3) == [[], [], []]


def test_merge_drops_what_only_removed_documents_had(tmp_path: Path) -> None:
    paths = [write_rows(tmp_path / str(i), rows) for i, rows in enumerate(SEGMENTS)]
    merge_segments(tmp_path / "merged", paths, live_masks(SEGMENTS, frozenset({"d2", "d3"})))
    terms = np.load(tmp_path / "merged" / "text_terms.npy").tobytes().decode()
    assert terms == "hearthelpsrestthe"


def test_merge_refuses_masks_that_do_not_fit(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "s", SEGMENTS[0])
    with pytest.raises(ConfigError, match="mask of 3"):
        merge_segments(tmp_path / "m", [folder], [np.ones(3, np.bool_)])
    with pytest.raises(ConfigError, match="0 segments"):
        merge_segments(tmp_path / "m", [], [])


def test_counts_beyond_a_byte_are_kept(tmp_path: Path) -> None:
    rows = [("d1", "rest " * 70_000, ()), ("d2", "rest " * 300, ()), ("d3", "other", ())]
    write_rows(tmp_path / "s", rows)
    assert np.load(tmp_path / "s" / "text_counts.npy").tolist() == [1, 70_000, 300]


def test_progress_adds_up_to_the_number_of_documents(tmp_path: Path) -> None:
    from dmnrag.retrieval.sparse import write_segment

    done: list[int] = []
    documents = ((f"text {i}", ()) for i in range(700))
    assert write_segment(tmp_path / "s", documents, Words(), on_progress=done.append) == 700
    assert sum(done) == 700
    assert len(done) > 1


def test_lone_surrogate_does_not_stop_a_build(tmp_path: Path) -> None:
    class Plain(Words):
        def segment(self, text: str) -> list[str]:
            return text.split()

    from dmnrag.retrieval.sparse import write_segment

    write_segment(tmp_path / "s", [("broken\ud800 text", ())], Plain())
    index = EmbeddedSparseIndex([tmp_path / "s"], table_of([[("d1", "", ())]]), Plain(), Bm25Settings())
    assert len(index.search([Query("q", "broken\ud800")], 1)[0]) == 1


def test_contract_documents_give_rows_for_both_indexed_texts() -> None:
    document = Document("d", "q", ("a", "b"), ("x",))
    assert rows_of([document], "answer") == [("d", "a\nb", ("x",))]
