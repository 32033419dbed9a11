"""Whether documents say what an answer says, by hand."""

import json
from importlib import resources

import pytest

from dmnrag.data.samples import SAMPLES, load_sample
from dmnrag.grounding.support import (
    bigram_set,
    calibrate,
    calibration,
    clauses,
    overlap,
    overlap_with,
    supported_share,
)


def test_clauses_end_at_marks_and_short_ones_state_nothing() -> None:
    assert clauses("您好，血压要早晚各测一次。首先，别吃太咸！") == ["血压要早晚各测一次", "别吃太咸"]
    assert clauses("您好。") == []


def test_overlap_is_the_share_of_bigrams_in_the_best_document() -> None:
    # 早晚 晚各 各测: two of three stand in the first document, one in the second.
    assert overlap("早晚各测", ["早晚各量", "各测"]) == pytest.approx(2 / 3)
    assert overlap("早晚各测", []) == 0
    # Bigrams do not reach over two documents.
    assert overlap("甲乙丙丁", ["甲乙", "丙丁"]) == pytest.approx(1 / 3)


def test_the_supported_share_counts_clauses() -> None:
    answer = "血压要早晚各测一次。可以去爬珠穆朗玛峰。"
    assert supported_share(answer, ["每天血压要早晚各测一次并记录"], threshold=0.5) == 0.5
    assert supported_share(answer, [], threshold=0.5) == 0
    assert supported_share("您好", ["您好"], threshold=0.5) is None


def test_the_threshold_separates_the_marked_pairs_best() -> None:
    marked = [(0.1, False), (0.2, False), (0.4, True), (0.6, True)]
    found = calibrate(marked)
    assert found.threshold == pytest.approx(0.3)
    # Left out in turn: thresholds .3, .25 (.1 and .4 remain), .4 (.2 and .6), .3; .4 >= .4 is right.
    assert found.accuracy == 1.0
    assert calibrate([*marked, (0.9, False)]).accuracy < 1


def test_the_shipped_pairs_are_balanced_known_and_well_separated() -> None:
    lines = (resources.files("dmnrag.grounding") / "clause_pairs.jsonl").read_text(encoding="utf-8").splitlines()
    header, *rows = map(json.loads, lines)
    assert "by one person" in header["about"]
    known = {document.doc_id for name in SAMPLES for document in load_sample(name)[0]}
    assert all(row["doc_id"] in known for row in rows)
    assert len({row["clause"] for row in rows}) == len(rows) >= 60
    assert 0.4 <= sum(row["supported"] for row in rows) / len(rows) <= 0.6
    found = calibration()
    assert found.n == len(rows)
    assert found.accuracy >= 0.9
    assert 0.2 < found.threshold < 0.5


def test_overlap_with_known_bigrams_is_the_same() -> None:
    documents = ["早晚各量", "各测"]
    assert overlap_with("早晚各测", [bigram_set(text) for text in documents]) == overlap("早晚各测", documents)
