"""ROUGE against hand-made numbers and two other packages."""

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_chinese import Rouge
from rouge_score.rouge_scorer import RougeScorer

from dmnrag.errors import ConfigError, DataError
from dmnrag.metrics import RougeScores, RougeVariant, best_rouge, rouge, score_texts
from dmnrag.text import tokenize_characters, tokenize_words

# Marks stand alone, as segmenters give them; rouge-chinese splits tokens that hold such marks inside.
TOKENS = st.lists(st.sampled_from(["心", "心梗", "的", "a", "bb", "。", "？", "”", ",", "......"]), max_size=25)
LATIN_TOKENS = st.lists(st.sampled_from(["a", "b", "heart", "attack", "7"]), max_size=25)
VARIANTS: tuple[RougeVariant, ...] = ("clipped", "unique")


def close(ours: RougeScores, rouge1: float, rouge2: float, rouge_l: float) -> bool:
    return (ours.rouge1, ours.rouge2, ours.rouge_l) == pytest.approx((rouge1, rouge2, rouge_l), abs=1e-6)


def test_clipped_counts_by_hand() -> None:
    # candidate a a b c, reference a b a d
    # 1: min counts a 2, b 1 = 3 of 4 and 4          -> 2*3/8 = .75
    # 2: aa ab bc against ab ba ad: ab = 1 of 3 and 3 -> 2*1/6 = 1/3
    # L: "a a" or "a b" = 2 of 4 and 4                -> 2*2/8 = .5
    assert close(rouge(list("aabc"), list("abad")), 0.75, 1 / 3, 0.5)


def test_unique_counts_by_hand() -> None:
    # {a b c} against {a b d}: 2 of 3 and 3 -> 2*2/6 = 2/3; pairs as above
    assert close(rouge(list("aabc"), list("abad"), "unique"), 2 / 3, 1 / 3, 0.5)


def test_repetition_costs_in_clipped_counts_only() -> None:
    # a a a a against a: clipped 2*1/(4+1) = .4, unique 1
    assert rouge(["a"] * 4, ["a"]).rouge1 == pytest.approx(0.4)
    assert rouge(["a"] * 4, ["a"], "unique").rouge1 == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_equal_texts_score_one_and_empty_ones_zero(variant: RougeVariant) -> None:
    assert rouge(["心", "梗"], ["心", "梗"], variant) == RougeScores(1, 1, 1)
    for candidate, reference in (([], []), (["a"], []), ([], ["a"])):
        assert rouge(candidate, reference, variant) == RougeScores(0, 0, 0)


def test_a_text_of_one_token_has_no_bigram() -> None:
    assert rouge(["a"], ["a"]) == RougeScores(1, 0, 1)


def expect_as_rouge_chinese(candidate: list[str], reference: list[str]) -> None:
    theirs = Rouge().get_scores(" ".join(candidate), " ".join(reference))[0]
    expected = (theirs["rouge-1"]["f"], theirs["rouge-2"]["f"], theirs["rouge-l"]["f"])
    assert close(rouge(candidate, reference, "unique"), *expected)


@given(TOKENS.filter(bool), TOKENS.filter(bool))
def test_unique_equals_rouge_chinese(candidate: list[str], reference: list[str]) -> None:
    expect_as_rouge_chinese(candidate, reference)


def test_unique_equals_rouge_chinese_on_real_answers(shared: Path) -> None:
    def answers(name: str, key: str) -> list[str]:
        lines = (shared / "data" / "lecoqa_answers" / name).read_text("utf-8").splitlines()
        return [row[key] if key == "answer" else row[key][0] for row in map(json.loads, lines)]

    pairs = list(zip(answers("qwen7b-rag.jsonl", "answer"), answers("gold.jsonl", "references"), strict=True))
    for candidate, reference in Random(0).sample(pairs, 12):
        for tokenize in (tokenize_words, tokenize_characters):
            expect_as_rouge_chinese(tokenize(candidate), tokenize(reference))


@given(LATIN_TOKENS, LATIN_TOKENS)
def test_clipped_equals_rouge_score(candidate: list[str], reference: list[str]) -> None:
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    theirs = scorer.score(" ".join(reference), " ".join(candidate))
    expected = (theirs["rouge1"].fmeasure, theirs["rouge2"].fmeasure, theirs["rougeL"].fmeasure)
    assert close(rouge(candidate, reference), *expected)


@given(TOKENS, TOKENS, st.sampled_from(VARIANTS))
def test_figures_are_symmetric_and_between_zero_and_one(a: list[str], b: list[str], variant: RougeVariant) -> None:
    ours = rouge(a, b, variant)
    assert ours == rouge(b, a, variant)
    assert all(0 <= value <= 1 for value in (ours.rouge1, ours.rouge2, ours.rouge_l))


def test_best_takes_the_highest_of_each_figure() -> None:
    # a b c against c b a: 1, 0, 1/3; against a b x y: 2*2/7, 2*1/5, 2*2/7
    best = best_rouge(list("abc"), [list("cba"), list("abxy")])
    assert close(best, 1, 2 / 5, 4 / 7)


def test_results_carry_their_segmentation() -> None:
    result = score_texts(
        ["心肌梗死。", ""],
        [["心肌梗死。", "别的"], ["心"]],
        tokenize=tokenize_characters,
        segmentation="character",
        variant="unique",
    )
    assert (result.segmentation, result.variant) == ("character", "unique")
    assert result.scores == (RougeScores(1, 1, 1), RougeScores(0, 0, 0))


def test_what_cannot_be_scored_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown ROUGE variant 'clip': allowed are clipped, unique"):
        rouge(["a"], ["a"], "clip")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="at least one reference"):
        best_rouge(["a"], [])
    with pytest.raises(DataError, match=r"candidate 1 \(from 0\) has no reference"):
        score_texts(["a", "b"], [["a"], []], tokenize=str.split, segmentation="word")
    with pytest.raises(DataError, match="1 candidates but 2 lists"):
        score_texts(["a"], [["a"], ["b"]], tokenize=str.split, segmentation="word")
