"""TREC runs and qrels; pytrec_eval is the oracle of what a written run means to others."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from dmnrag.data.exchange import gold_qrels, read_judgements, read_qrels, read_run, write_qrels, write_run
from dmnrag.data.exchange.trec import falling_scores
from dmnrag.errors import ConfigError, DataError
from dmnrag.metrics import retrieval_measures
from dmnrag.types import Example, Hit, Query

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00\ufeff"), min_size=1, max_size=6).filter(
    lambda text: not any(c.isspace() for c in text)
)
SINGLES = st.floats(width=32, min_value=-(2.0**120), max_value=2.0**120)


def hits(*pairs: tuple[str, float]) -> list[Hit]:
    return [Hit(doc_id, score, rank) for rank, (doc_id, score) in enumerate(pairs, start=1)]


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "file.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@st.composite
def rankings(draw: st.DrawFn) -> dict[str, list[Hit]]:
    """Rankings with many equal and nearly equal scores, in an order that ids do not follow."""
    run = {}
    for query_id in draw(st.lists(WORDS, min_size=1, max_size=3, unique=True)):
        doc_ids = draw(st.lists(WORDS, min_size=1, max_size=12, unique=True))
        base = draw(st.floats(min_value=-1e6, max_value=1e6))
        steps = st.sampled_from([0.0, 0.0, 1e-12, 1e-7, 0.5])
        drops = draw(st.lists(steps, min_size=len(doc_ids), max_size=len(doc_ids)))
        run[query_id] = hits(*zip(doc_ids, (base - np.cumsum(drops)).tolist(), strict=True))
    return run


@settings(max_examples=50)
@given(rankings(), st.data())
def test_pytrec_eval_gives_our_figures_for_a_written_run(
    tmp_path_factory: pytest.TempPathFactory, run: dict[str, list[Hit]], data: st.DataObject
) -> None:
    qrels = {
        query_id: dict.fromkeys(data.draw(st.lists(st.sampled_from([h.doc_id for h in found]), min_size=1)), 1)
        for query_id, found in run.items()
    }
    folder = tmp_path_factory.mktemp("run")
    write_run(folder / "run.trec", run, "tag")
    write_qrels(folder / "qrels", qrels)
    with (folder / "run.trec").open(encoding="utf-8", newline="\n") as lines:
        foreign_run = pytrec_eval.parse_run(lines)
    with (folder / "qrels").open(encoding="utf-8", newline="\n") as lines:
        foreign_qrels = pytrec_eval.parse_qrel(lines)
    evaluator = pytrec_eval.RelevanceEvaluator(foreign_qrels, {"recall.3", "recip_rank", "ndcg_cut.10"})
    theirs: Mapping[str, Mapping[str, float]] = evaluator.evaluate(foreign_run)
    ours = retrieval_measures(run, qrels, ["recall@3", "MRR@1000", "nDCG@10"])
    for query_id in run:
        assert theirs[query_id]["recall_3"] == pytest.approx(ours["recall@3"][query_id], abs=1e-9)
        assert theirs[query_id]["recip_rank"] == pytest.approx(ours["MRR@1000"][query_id], abs=1e-9)
        assert theirs[query_id]["ndcg_cut_10"] == pytest.approx(ours["nDCG@10"][query_id], abs=1e-9)


@settings(max_examples=50)
@given(rankings())
def test_a_written_run_reads_back_in_the_same_order(
    tmp_path_factory: pytest.TempPathFactory, run: dict[str, list[Hit]]
) -> None:
    path = tmp_path_factory.mktemp("run") / "run.trec"
    write_run(path, run, "tag")
    back = read_run(path)
    assert list(back) == list(run)
    for query_id, found in run.items():
        assert [(h.doc_id, h.rank) for h in back[query_id]] == [(h.doc_id, h.rank) for h in found]


@given(st.lists(SINGLES, max_size=20))
def test_written_scores_fall_strictly_in_single_precision(scores: list[float]) -> None:
    singles = np.asarray(falling_scores(scores, "q"), dtype=np.float32)
    assert (singles[1:] < singles[:-1]).all()


@given(st.lists(SINGLES, max_size=20, unique=True))
def test_scores_that_fall_already_stay_exactly_as_they_are(scores: list[float]) -> None:
    falling = sorted(scores, reverse=True)
    assert falling_scores(falling, "q") == falling


def test_a_tie_moves_by_one_step_of_single_precision_and_distinct_scores_do_not_move() -> None:
    step = 2.0**-24  # below 1.0, single precision has steps of 2^-24
    # 0.1 is not a single-precision number and is written as it is.
    assert falling_scores([1.0, 1.0, 1.0, 0.1], "q") == [1.0, 1.0 - step, 1.0 - 2 * step, 0.1]


def test_scores_that_only_double_precision_tells_apart_are_told_apart_for_evaluators() -> None:
    assert np.float32(1.0) == np.float32(1.0 - 1e-12)
    first, second = falling_scores([1.0, 1.0 - 1e-12], "q")
    assert np.float32(first) > np.float32(second)


def test_a_run_has_six_columns_and_exact_scores(tmp_path: Path) -> None:
    write_run(tmp_path / "run", {"q1": hits(("d2", 2.5), ("d1", 0.1)), "q2": []}, "BM25")
    assert (tmp_path / "run").read_text() == "q1 Q0 d2 1 2.5 BM25\nq1 Q0 d1 2 0.1 BM25\n"


def test_a_foreign_run_is_ranked_by_score_then_by_id_from_the_last_whatever_its_rank_column_says(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "q Q0 a 1 1.0 t\r\n\nq Q0 b 0 1.0 t\nq\tQ0  c 7 2e0 t\nr Q0 a 1 -1 t")
    assert read_run(path) == {"q": hits(("c", 2.0), ("b", 1.0), ("a", 1.0)), "r": hits(("a", -1.0))}


def test_a_byte_order_mark_is_no_part_of_the_first_id(tmp_path: Path) -> None:
    assert read_qrels(write(tmp_path, b"\xef\xbb\xbfq 0 d 1\n")) == {"q": {"d": 1}}


def test_scores_beyond_single_precision_are_read_as_equal_and_raise_no_warning(tmp_path: Path) -> None:
    path = write(tmp_path, "q Q0 a 1 1e300 t\nq Q0 b 2 1e200 t\n")
    assert [hit.doc_id for hit in read_run(path)["q"]] == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no line"),
        ("q Q0 d 1 1.0 t\nq Q0 e 2 0.5", "line 2: 5 columns"),
        ("q Q0 d 1 1.0 t\n\nq Q0 d 2 0.5 t", "line 3: document 'd' stands in line 1 for query 'q'"),
        ("q Q0 d one 1.0 t", "line 1: rank 'one'"),
        ("q Q0 d 1 nan t", "line 1: score 'nan'"),
        ("q Q0 d 1 1e999 t", "line 1: score '1e999'"),
        ("q Q0 d 1 1_0 t", "line 1: score '1_0'"),
        ("q Q0 d\x00 1 1 t", "line 1: doc_id"),
        (b"q Q0 d 1 1 t\nq Q0 \xff 1 1 t", "line 2: byte 0xff at position 5"),
    ],
)
def test_a_broken_run_is_an_error_that_names_the_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError) as error:
        read_run(write(tmp_path, text))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n", "holds no line"),
        ("q 0 d 1\nq 0 e", "line 2: 3 columns"),
        ("q 0 d 1\nq 0 d 0", "line 2: document 'd' stands in line 1"),
        ("q 0 d 1.5", "relevance '1.5'"),
        ("q 0 d １", "relevance '１'"),
    ],
)
def test_broken_qrels_are_an_error_that_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        read_qrels(write(tmp_path, text))
    assert message in str(error.value)


@settings(max_examples=50)
@given(st.dictionaries(WORDS, st.dictionaries(WORDS, st.integers(-2, 3), min_size=1, max_size=4), min_size=1))
def test_qrels_read_back_equal(tmp_path_factory: pytest.TempPathFactory, qrels: dict[str, dict[str, int]]) -> None:
    path = tmp_path_factory.mktemp("qrels") / "qrels"
    write_qrels(path, qrels)
    assert read_qrels(path) == qrels
    assert read_judgements(path) == qrels


@pytest.mark.parametrize("bad", ["", "a b", "a\tb", "a\u3000b", "a\xa0b", "a\x00", "\ufeffa", "a\ud800"])
def test_ids_that_a_line_cannot_hold_are_refused_and_nothing_is_written(tmp_path: Path, bad: str) -> None:
    with pytest.raises(DataError, match="one word without spaces"):
        write_run(tmp_path / "run", {bad: []}, "t")
    with pytest.raises(DataError, match="one word without spaces"):
        write_run(tmp_path / "run", {"q": hits(("d", 2.0), (bad, 1.0))}, "t")
    with pytest.raises(DataError, match="one word without spaces"):
        write_qrels(tmp_path / "run", {"q": {bad: 1}})
    with pytest.raises(ConfigError, match="run tag"):
        write_run(tmp_path / "run", {}, bad)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_former_file(tmp_path: Path) -> None:
    path = write(tmp_path, "former")
    with pytest.raises(DataError):
        write_run(path, {"q": hits(("d", 1.0)), "q 2": []}, "t")
    assert path.read_text() == "former"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1e39, -2e38])
def test_a_score_that_evaluators_cannot_hold_is_refused(tmp_path: Path, score: float) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        write_run(tmp_path / "run", {"q": hits(("d", score))}, "t")


def test_ranks_that_do_not_count_from_one_and_repeated_documents_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="place 1 has rank 2"):
        write_run(tmp_path / "run", {"q": [Hit("d", 1.0, 2)]}, "t")
    with pytest.raises(DataError, match="'d' stands in the ranking twice"):
        write_run(tmp_path / "run", {"q": hits(("d", 1.0), ("d", 0.5))}, "t")


def test_a_missing_file_and_a_folder_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_run(tmp_path / "absent")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_qrels(tmp_path)


def test_gold_documents_become_judgements() -> None:
    examples = [Example(Query("q1", "?"), ("r",), ("d1", "d2")), Example(Query("q2", "?"), ("r",))]
    assert gold_qrels(examples) == {"q1": {"d1": 1, "d2": 1}}
