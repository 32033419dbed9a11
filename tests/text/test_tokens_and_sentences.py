"""Tokens for ROUGE, and sentence ends."""

import csv
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.text import normalise, split_sentences, tokenize_characters, tokenize_words

ANY_TEXT = st.text(
    st.one_of(st.sampled_from("好的。！？；!?;”’\"') \n\r\u2028啊a"), st.characters(exclude_categories=()))
)


def test_words_keep_punctuation_and_drop_white_space() -> None:
    assert tokenize_words("急性心肌梗死怎么办？ \n查ＣＴ") == ["急性", "心肌梗死", "怎么办", "?", "查", "ct"]


def test_characters_keep_latin_runs_whole_and_marks_apart() -> None:
    assert tokenize_characters("查CT 3.5，ok!?") == ["查", "ct", "3", ".", "5", ",", "ok", "!", "?"]


@given(ANY_TEXT)
def test_tokens_together_are_the_normalised_text_without_spaces(text: str) -> None:
    expected = normalise(text).replace(" ", "")
    assert "".join(tokenize_words(text)) == expected
    assert "".join(tokenize_characters(text)) == expected


@pytest.mark.slow
def test_words_are_those_of_jieba_in_most_real_texts(shared: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jieba's own syntax and pkg_resources warnings
        import jieba
    jieba.setLogLevel(60)
    with (shared / "data" / "medical_im_gb18030.csv").open(encoding="gb18030", newline="") as rows:
        texts = [normalise(row["answer"]) for _, row in zip(range(500), csv.DictReader(rows), strict=False)]
    same = sum(tokenize_words(text) == [w for w in jieba.lcut(text) if not w.isspace()] for text in texts)
    assert same / len(texts) > 0.9  # 0.947 of documents over a larger set (FACTS)


def test_sentences_end_at_marks_and_keep_closing_quotes() -> None:
    assert split_sentences("他说：“好！”然后走了。真的吗？！是; 3.5mg够") == [
        "他说：“好！”",
        "然后走了。",
        "真的吗？！",
        "是; ",
        "3.5mg够",
    ]


def test_line_breaks_end_sentences_and_stay_with_them() -> None:
    assert split_sentences("一\r\n\n  二。\n“三”\n") == ["一\r\n\n  ", "二。\n", "“三”\n"]


def test_an_opening_quote_after_a_space_belongs_to_the_next_sentence() -> None:
    assert split_sentences('Go! "Why?" he said') == ["Go! ", '"Why?" ', "he said"]


def test_empty_text_has_no_sentences() -> None:
    assert split_sentences("") == []


@given(ANY_TEXT)
def test_sentences_joined_are_the_text(text: str) -> None:
    parts = split_sentences(text)
    assert "".join(parts) == text
    assert all(parts)


def test_long_text_without_marks_is_quick() -> None:
    text = "长" * 200_000
    assert split_sentences(text) == [text]
