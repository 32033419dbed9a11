"""Scoring answers made elsewhere: figures by hand, controls, and the command."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dmnrag.cli import score as command
from dmnrag.data.exchange import read_answers, read_gold
from dmnrag.errors import ConfigError, DataError
from dmnrag.experiments.score import LENGTH, UNANSWERED, score_systems, unanswered
from dmnrag.experiments.statistics import Contrast, Evaluation, Row
from dmnrag.types import Example, Query

REFERENCE_1 = "甲乙丙丁"
REFERENCE_2 = "子丑寅卯"
R1, R1_MATCHED = "ROUGE-1 (character)", "ROUGE-1 (character, length-matched)"


def gold(*references: str) -> list[Example]:
    return [
        Example(Query(str(i), f"问题{i}"), (reference,), cluster=str(i))
        for i, reference in enumerate(references, start=1)
    ]


def row(found: Evaluation, name: str, metric: str) -> Row:
    (only,) = [r for r in found.rows if (r.name, r.metric) == (name, metric)]
    return only


def contrast(found: Evaluation, a: str, b: str, metric: str) -> Contrast:
    (only,) = [c for c in found.comparisons if (c.a, c.b, c.metric) == (a, b, metric)]
    return only


TWO = gold(REFERENCE_1, REFERENCE_2)


def test_rouge_by_character_and_length_are_means_over_the_questions() -> None:
    found = score_systems({"s": {"1": "甲乙戊己", "2": "子丑"}}, TWO)
    # ROUGE-1: 2 * 2 / (4 + 4) = 1/2 and 2 * 2 / (2 + 4) = 2/3. ROUGE-2: 2 * 1 / (3 + 3) and 2 * 1 / (1 + 3).
    assert row(found, "s", R1).mean == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert row(found, "s", "ROUGE-2 (character)").mean == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert row(found, "s", "ROUGE-L (character)").mean == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert row(found, "s", LENGTH).mean == 3.0  # (4 + 2) / 2
    assert found.n == 2
    assert found.comparisons == []


def test_rouge_by_word_counts_words() -> None:
    found = score_systems({"s": {"1": "hello world"}}, gold("hello there", "x")[:1])
    assert row(found, "s", "ROUGE-1 (word)").mean == pytest.approx(0.5)  # 1 of 2 words each


def test_the_best_of_several_right_answers_counts() -> None:
    examples = [Example(Query("1", "问"), (REFERENCE_2, REFERENCE_1), cluster="1"), *gold("x", "y")[1:]]
    found = score_systems({"s": {"1": REFERENCE_1, "2": "y"}}, examples)
    assert row(found, "s", R1).mean == 1.0


def test_a_missing_answer_scores_zero_and_is_counted_and_has_no_length() -> None:
    found = score_systems({"half": {"1": REFERENCE_1}, "empty": {"1": REFERENCE_1, "2": " \n"}}, TWO)
    for name in ("half", "empty"):
        assert row(found, name, R1).mean == 0.5  # 1 and 0
        assert row(found, name, R1).n == 2
        assert row(found, name, UNANSWERED).mean == 0.5
        assert (row(found, name, LENGTH).mean, row(found, name, LENGTH).n) == (4.0, 1)
    assert unanswered({"1": "x", "2": " "}, TWO) == 1
    assert unanswered({"1": "x"}, TWO) == 1


def test_nobody_gains_by_skipping_in_the_length_matched_comparison_either() -> None:
    found = score_systems({"all": {"1": REFERENCE_1, "2": REFERENCE_2}, "half": {"1": REFERENCE_1}}, TWO)
    # Question 1: equal. Question 2: 1 against 0.
    assert contrast(found, "all", "half", R1_MATCHED).difference == 0.5
    assert contrast(found, "all", "half", R1).difference == 0.5


def test_length_matching_cuts_the_longer_answer_of_each_question() -> None:
    answers = {"long": {"1": "甲乙丙丁", "2": "子辰"}, "short": {"1": "甲戊", "2": "子丑寅卯"}}
    found = score_systems(answers, TWO)
    # Whole: long 1 and 2 * 1 / 6, short 2 * 1 / 6 and 1: no difference.
    assert contrast(found, "long", "short", R1).difference == pytest.approx(0)
    # Question 1: 甲乙 against 甲戊, 4/6 - 2/6. Question 2: 子辰 against 子丑, 2/6 - 4/6.
    assert contrast(found, "long", "short", R1_MATCHED).difference == pytest.approx(0)
    only_first = score_systems({name: {"1": by_id["1"]} for name, by_id in answers.items()}, TWO)
    # Whole (1 - 1/3) / 2 questions; cut (2/3 - 1/3) / 2 questions.
    assert contrast(only_first, "long", "short", R1).difference == pytest.approx(1 / 3)
    assert contrast(only_first, "long", "short", R1_MATCHED).difference == pytest.approx(1 / 6)


def test_a_system_that_only_says_more_of_the_same_wins_rouge_but_not_at_equal_length() -> None:
    references = [f"{chr(0x4E00 + i)}的全部正确回答共有十二字" for i in range(8)]
    whole = {str(i): text for i, text in enumerate(references, start=1)}
    begun = {query_id: text[:6] for query_id, text in whole.items()}
    found = score_systems({"whole": whole, "begun": begun}, gold(*references))
    assert contrast(found, "whole", "begun", R1).low > 0.2
    matched = contrast(found, "whole", "begun", R1_MATCHED)
    assert (matched.difference, matched.p) == (0, 1)


def test_each_pair_is_compared_once_in_every_metric_but_the_share_of_unanswered() -> None:
    answers = {name: {"1": "甲", "2": "子"} for name in ("a", "b", "c")}
    found = score_systems(answers, TWO)
    rouges = [
        f"ROUGE-{n} ({kind}{m})" for m in ("", ", length-matched") for kind in ("word", "character") for n in "12L"
    ]
    metrics = [*rouges[:6], LENGTH, *rouges[6:]]
    assert [(c.a, c.b, c.metric) for c in found.comparisons] == [
        (a, b, metric) for a, b in (("a", "b"), ("a", "c"), ("b", "c")) for metric in metrics
    ]
    assert all(c.difference == 0 and c.p == 1 for c in found.comparisons)


def test_the_paired_test_finds_a_planted_difference_and_none_between_equals() -> None:
    examples = gold(*[f"{chr(0x4E00 + i)}第一句话说明病因" for i in range(40)])
    right = {e.query.query_id: e.references[0] for e in examples}
    worse = {query_id: text[:4] + "无关内容" for query_id, text in right.items()}
    found = score_systems({"right": right, "worse": worse, "same": right}, examples)
    assert contrast(found, "right", "worse", R1_MATCHED).p < 0.01
    assert contrast(found, "right", "same", R1).p == 1


def test_near_identical_questions_are_drawn_together_where_no_clusters_are_given() -> None:
    repost = "我父亲心口疼痛三天了应该去医院看哪个科室呢"
    texts = [repost, f"{repost}？", "房东不退押金怎么办"]
    examples = [Example(Query(str(i), text), ("甲",)) for i, text in enumerate(texts)]
    grouped = [Example(e.query, e.references, cluster="last" if i == 2 else "repost") for i, e in enumerate(examples)]
    answers = {"s": {"0": "甲", "1": "乙", "2": "甲"}}
    # Two groups, with means 1/2 and 1: each resample of two groups lies between. Single questions reach 0.
    found = row(score_systems(answers, examples), "s", R1)
    assert (found.low, found.high) == (0.5, 1.0)
    assert found == row(score_systems(answers, grouped), "s", R1)


def test_the_same_seed_gives_the_same_figures() -> None:
    examples = gold(*[f"{chr(0x4E00 + i)}回答" for i in range(20)])
    answers = {"s": {e.query.query_id: e.references[0][: i % 3] for i, e in enumerate(examples)}}
    assert score_systems(answers, examples, seed=1) == score_systems(answers, examples, seed=1)
    assert score_systems(answers, examples, seed=1) != score_systems(answers, examples, seed=2)


def test_unknown_questions_are_an_error_that_names_system_and_ids() -> None:
    with pytest.raises(DataError, match=r"s: 1 of 2 answers belong to no gold question: '9'"):
        score_systems({"s": {"1": "x", "9": "y"}}, TWO)


def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no answers to score"):
        score_systems({}, TWO)
    with pytest.raises(DataError, match="no questions with right answers"):
        score_systems({"s": {}}, [])
    with pytest.raises(DataError, match="only 1 different query_ids"):
        score_systems({"s": {}}, [TWO[0], TWO[0]])


@settings(max_examples=20)
@given(st.lists(st.tuples(*[st.text("甲乙丙丁子丑 ", max_size=6)] * 2), min_size=2, max_size=4))
def test_exchanging_two_systems_turns_every_difference_round(texts: list[tuple[str, str]]) -> None:
    examples = gold(*["甲乙丙丁子丑"] * len(texts))
    a = {str(i): first for i, (first, _) in enumerate(texts, start=1)}
    b = {str(i): second for i, (_, second) in enumerate(texts, start=1)}
    forth, back = score_systems({"a": a, "b": b}, examples), score_systems({"b": b, "a": a}, examples)
    for one, other in zip(forth.comparisons, back.comparisons, strict=True):
        assert one.metric == other.metric
        assert one.difference == pytest.approx(-other.difference)
        assert one.p == other.p


# The command


def run(*arguments: object) -> Any:
    app = typer.Typer()
    app.callback()(lambda: None)
    command.register(app)
    return CliRunner().invoke(app, ["score", *map(str, arguments)])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    gold_rows = [
        {"query_id": e.query.query_id, "question": e.query.text, "domain": [], "references": list(e.references)}
        for e in TWO
    ]
    systems = {"one": {"1": REFERENCE_1, "2": REFERENCE_2}, "two": {"1": "甲乙"}}
    write_jsonl(tmp_path / "gold.jsonl", gold_rows)
    for name, by_id in systems.items():
        write_jsonl(tmp_path / f"{name}.jsonl", [{"query_id": q, "answer": a} for q, a in by_id.items()])
    return tmp_path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8")


def test_the_command_prints_one_json_document_of_the_documented_shape(files: Path) -> None:
    result = run(files / "one.jsonl", files / "two.jsonl", "--gold", files / "gold.jsonl", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["n"] == 2
    assert {frozenset(r) for r in found["rows"]} == {frozenset(("name", "metric", "mean", "low", "high", "n"))}
    documented = {"a", "b", "metric", "difference", "low", "high", "p"}
    assert all(documented <= c.keys() for c in found["comparisons"])
    assert {r["name"] for r in found["rows"]} == {"one", "two"}
    assert result.stderr == "two: 1 of 2 questions have no answer and score 0\n"


def test_the_command_prints_tables_and_says_what_the_figures_are(files: Path) -> None:
    result = run(files / "one.jsonl", files / "two.jsonl", "--gold", files / "gold.jsonl")
    assert result.exit_code == 0
    assert "ROUGE-L (word)" in result.stdout
    assert "one - two" in result.stdout
    assert "length-matched: both answers cut to the shorter one's length" in result.stderr


def test_a_file_given_twice_is_refused_and_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    assert command.system_names([Path("a/x.jsonl"), Path("a/y.jsonl.gz")]) == ["x", "y"]
    assert command.system_names([Path("a/x.jsonl"), Path("b/x.jsonl")]) == ["a/x.jsonl", "b/x.jsonl"]
    with pytest.raises(ConfigError, match="given more than once"):
        command.system_names([tmp_path / "x.jsonl", tmp_path / "." / "x.jsonl"])


@pytest.mark.slow
def test_five_real_systems_are_scored_with_the_lengths_that_their_readme_states(shared: Path) -> None:
    folder = shared / "data" / "lecoqa_answers"
    names = ["qwen7b-rag", "qwen14b-direct"]
    answers = {name: read_answers(folder / f"{name}.jsonl") for name in names}
    found = score_systems(answers, read_gold(folder / "gold.jsonl"))
    assert round(row(found, "qwen7b-rag", LENGTH).mean) == 110
    assert round(row(found, "qwen14b-direct", LENGTH).mean) == 421
    assert contrast(found, "qwen7b-rag", "qwen14b-direct", R1_MATCHED).low > 0
