"""Eq. 2 by hand, Lucene's lengths, and the settings."""

from math import log
from pathlib import Path

import numpy as np
import pytest
from sparse_builder import open_rows

from dmnrag.errors import ConfigError
from dmnrag.retrieval.sparse import Bm25Settings, formulas
from dmnrag.types import PLAIN, DomainUse, Query

ROWS = [("d1", "a a b", ("c",)), ("d2", "b c", ()), ("d3", "b", ("b",))]


def scores(folder: Path, query: Query, use: DomainUse, settings: Bm25Settings) -> dict[str, float]:
    [hits] = open_rows(folder, [ROWS], settings=settings).search([query], 9, use=use)
    return {hit.doc_id: hit.score for hit in hits}


def test_plain_score_by_hand(tmp_path: Path) -> None:
    # N=3; a stands in d1 only, n=1: idf = ln(1 + 2.5/1.5) = ln(8/3). avgdl = (3+2+1)/3 = 2, |d1| = 3.
    # k1=1, b=0.5: factor = 1 * (1 - 0.5 + 0.5*3/2) = 1.25; f=2: 2 * 2 / (2 + 1.25) = 4/3.25.
    found = scores(tmp_path, Query("q", "a", ("c",)), PLAIN, Bm25Settings(k1=1, b=0.5))
    assert found == {"d1": pytest.approx(log(8 / 3) * 4 / 3.25, rel=1e-12)}


def test_repeated_question_term_counts_twice(tmp_path: Path) -> None:
    once = scores(tmp_path / "1", Query("q", "a"), PLAIN, Bm25Settings())
    twice = scores(tmp_path / "2", Query("q", "a a"), PLAIN, Bm25Settings())
    assert twice["d1"] == pytest.approx(2 * once["d1"], rel=1e-12)


def test_joint_score_by_hand(tmp_path: Path) -> None:
    # With labels: d1 = a a b c, d2 = b c, d3 = b b. Lengths 4, 2, 2, avgdl = 8/3.
    # Query "b" + domain "c" of weight 2. b: n=3, idf = ln(1 + 0.5/3.5) = ln(8/7). c: n=2 (d1 by its label,
    # d2 by its text), idf = ln(1 + 1.5/2.5) = ln(1.6). k1=1, b=1: factor = |D|/avgdl = 1.5, 0.75, 0.75.
    # d1: ln(8/7)*2/2.5 + 2*ln(1.6)*2/2.5; d2: ln(8/7)*2/1.75 + 2*ln(1.6)*2/1.75; d3: ln(8/7)*4/2.75.
    found = scores(tmp_path, Query("q", "b", ("c",)), DomainUse(weight=2), Bm25Settings(k1=1, b=1))
    assert found == {
        "d1": pytest.approx((log(8 / 7) + 2 * log(1.6)) * 0.8, rel=1e-12),
        "d2": pytest.approx((log(8 / 7) + 2 * log(1.6)) * 2 / 1.75, rel=1e-12),
        "d3": pytest.approx(log(8 / 7) * 4 / 2.75, rel=1e-12),
    }


def test_domain_in_the_query_alone_by_hand(tmp_path: Path) -> None:
    # Text only: c stands in d2 alone, idf = ln(8/3); k1=0: every factor is 0, f*(0+1)/f = 1.
    found = scores(tmp_path, Query("q", "", ("c",)), DomainUse(in_document=False), Bm25Settings(k1=0))
    assert found == {"d2": pytest.approx(log(8 / 3), rel=1e-12)}


def test_term_in_every_document_still_scores_above_zero() -> None:
    # ln(1 + 0.5/(n+0.5)) > 0
    assert formulas.idf(1000, 1000) == pytest.approx(log(1 + 0.5 / 1000.5))


def test_lucene_lengths_at_the_edges() -> None:
    # 40: rest 16 = 10000b keeps 1000b -> 16. 41: rest 17 loses its last bit -> 40. 55: rest 31 -> 30 -> 54.
    # 56: rest 32 exact. 183: rest 159 = 10011111b -> 10010000b = 144 -> 168.
    # 1000: rest 976 = 1111010000b -> 1111000000b = 960 -> 984.
    lengths = np.array([0, 1, 23, 24, 39, 40, 41, 55, 56, 183, 1000])
    assert formulas.lucene_length(lengths).tolist() == [0, 1, 23, 24, 39, 40, 40, 54, 56, 168, 984]


def test_lucene_lengths_follow_the_bit_by_bit_definition() -> None:
    def small_float(length: int) -> int:
        rest = length - 24
        dropped = max(rest.bit_length() - 4, 0)
        return length if rest < 16 else 24 + (rest >> dropped << dropped)

    lengths = np.unique(np.geomspace(1, 2**31 - 1, 5000).astype(np.int64))
    assert formulas.lucene_length(lengths).tolist() == [small_float(int(x)) for x in lengths]


def test_lucene_lengths_round_the_document_and_not_the_average(tmp_path: Path) -> None:
    # d1 has 41 terms (counts as 40), d2 one: avgdl = 42/2 = 21 exact. x in d1 only: idf = ln(1 + 1.5/1.5).
    # k1=1, b=1: factor = 40/21; f=1: 2 / (1 + 40/21) = 42/61.
    rows = [("d1", "x" + " y" * 40, ()), ("d2", "y", ())]
    index = open_rows(tmp_path, [rows], settings=Bm25Settings(k1=1, b=1, lucene_lengths=True))
    [[hit]] = index.search([Query("q", "x")], 1)
    assert hit.score == pytest.approx(log(2) * 42 / 61, rel=1e-12)


@pytest.mark.parametrize(
    "values",
    [
        {"k1": -0.1},
        {"k1": float("nan")},
        {"k1": float("inf")},
        {"b": 1.01},
        {"b": -1},
        {"b": "x"},
        {"k1": True},
    ],
)
def test_unusable_settings_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(values))} is .*allowed"):
        Bm25Settings(**values)


def test_settings_survive_json_form() -> None:
    settings = Bm25Settings(k1=0.9, b=0.4, lucene_lengths=True)
    assert Bm25Settings.from_dict(settings.to_dict()) == settings
    with pytest.raises(ConfigError, match="delta"):
        Bm25Settings.from_dict({"delta": 1})
    with pytest.raises(ConfigError, match="lucene_lengths"):
        Bm25Settings.from_dict({"lucene_lengths": "no"})
