"""Text to terms: what each segmenter gives, and that index and query are treated alike."""

import pickle
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.errors import ConfigError
from dmnrag.text import SEGMENTER_NAMES, SegmenterName, SegmenterSettings, make_segmenter
from dmnrag.text.characters import CJK_CHARACTER, makes_term

MIXED_SCRIPTS = st.text(
    st.one_of(
        st.sampled_from("心肌梗死急性的病かナ한글𠀀㐀々abz019 ,。！\n\u200b\x00\ud800ＡＢ臟"),
        st.characters(exclude_categories=()),
    ),
    max_size=60,
)

EVERYTHING = SegmenterSettings(
    dictionary=("急性心梗", "b超", "心"),
    stop_words=("的", "，", "病人"),
    synonyms=(("心肌梗死", "心梗"), ("mri", "核磁", "磁共振")),
)


def terms(text: str, name: SegmenterName = "bigram", **lists: Any) -> list[str]:
    return make_segmenter(SegmenterSettings(name, **lists)).segment(text)


def test_bigrams_are_pairs_and_latin_runs_and_lone_characters_stay_whole() -> None:
    assert terms("心肌梗死，用CT扫 3次") == ["心肌", "肌梗", "梗死", "用", "ct", "扫", "3", "次"]


def test_unigrams_and_bigrams_give_a_lone_character_once() -> None:
    assert terms("心肌梗 用ct", "unigram+bigram") == ["心", "肌", "梗", "用", "ct", "心肌", "肌梗"]


def test_jieba_gives_long_words_and_the_words_inside_them() -> None:
    assert terms("急性心肌梗死怎么办？", "jieba") == ["急性", "心肌", "梗死", "心肌梗死", "怎么", "怎么办"]


def test_mixed_gives_words_and_then_pairs() -> None:
    assert terms("心肌梗死 CT", "mixed") == ["心肌", "梗死", "心肌梗死", "ct", "心肌", "肌梗", "梗死"]


@pytest.mark.parametrize("run", ["𠀀𠀁𠀂", "㐀㐁㐂", "\ufa0e\ufa0f\ufa11", "ひらが", "カナー", "한국어", "人々が"])
def test_every_script_without_spaces_gives_pairs(run: str) -> None:
    assert terms(run) == [run[:2], run[1:]]


def test_other_scripts_keep_their_words() -> None:
    assert terms("Боль в сердце, πόνος x_1") == ["боль", "в", "сердце", "πόνος", "x", "1"]


@pytest.mark.parametrize("name", SEGMENTER_NAMES)
def test_variants_of_a_synonym_group_match_each_other(name: SegmenterName) -> None:
    segmenter = make_segmenter(SegmenterSettings(name, synonyms=(("心肌梗死", "心梗", "MI"),)))
    assert segmenter.segment("得了心梗怎么办") == segmenter.segment("得了心肌梗死怎么办")
    # in other company too: the canonical form is always a term
    for text in ("心梗", "急性心肌梗死", "他有MI吗", "梗死心梗塞"):
        assert "心肌梗死" in segmenter.segment(text)


def test_a_canonical_form_is_left_alone_where_a_variant_stands_inside_it() -> None:
    assert "心肌心肌" not in "".join(terms("心肌梗死", synonyms=(("心肌梗死", "梗死"),)))


def test_the_longest_variant_is_replaced_first() -> None:
    assert terms("心梗塞", synonyms=(("甲乙", "心梗"), ("丙丁", "心梗塞"))) == ["丙丁"]


def test_a_latin_variant_is_not_replaced_inside_a_longer_word() -> None:
    assert terms("family mi mi2 demi", synonyms=(("心梗", "mi"),)) == ["family", "心梗", "mi2", "demi"]


def test_a_variant_is_found_right_behind_a_false_start() -> None:
    assert terms("心心梗", synonyms=(("甲", "心梗"),)) == ["心甲", "甲"]


def test_a_latin_canonical_form_does_not_run_into_its_neighbours() -> None:
    assert terms("ct核磁磁共振3", synonyms=(("mri", "核磁", "磁共振"),)) == ["ct", "mri", "mri", "3"]


def test_synonyms_are_found_in_any_width_and_case() -> None:
    assert terms("ＭＩ") == ["mi"]
    assert terms("ｍＩ", synonyms=(("心梗", "Mi"),)) == ["心梗"]


def test_dictionary_words_are_further_terms_of_ngrams_at_every_occurrence() -> None:
    lists: dict[str, Any] = {"dictionary": ("肌梗死", "心肌梗", "心肌", "ct")}
    # 心肌 and ct are terms anyway and are not given twice
    assert terms("心肌梗死ct", **lists) == ["心肌", "肌梗", "梗死", "ct", "心肌梗", "肌梗死"]


def test_a_dictionary_word_of_one_character_is_a_term_inside_a_run() -> None:
    assert terms("心肌", dictionary=("心",)) == ["心肌", "心"]


def test_jieba_keeps_dictionary_words_whole_with_the_words_inside_them() -> None:
    # jieba alone cuts 门/冬/胰岛素 here; the words inside the dictionary word come before it
    expected = ["得", "了", "门冬", "胰岛", "胰岛素", "冬胰", "门冬胰岛素", "过敏"]
    assert terms("得了门冬胰岛素过敏", "jieba", dictionary=("门冬胰岛素", "冬胰")) == expected


@pytest.mark.parametrize("name", SEGMENTER_NAMES)
def test_a_dictionary_word_is_a_term_wherever_it_stands(name: SegmenterName) -> None:
    segmenter = make_segmenter(SegmenterSettings(name, dictionary=("得心", "covid-19", "维生素 c")))
    assert "得心" in segmenter.segment("他觉得心里难受")
    assert "covid-19" in segmenter.segment("患COVID-19后")
    assert "维生素 c" in segmenter.segment("吃维生素\u3000C片")
    assert "covid-19" not in segmenter.segment("covid-190")


def test_stop_words_drop_whole_terms_only() -> None:
    assert terms("病人 的 人的病", stop_words=("的", "病人", "，")) == ["人的", "的病"]


def test_simplified_and_traditional_text_give_the_same_terms_when_asked() -> None:
    segmenter = make_segmenter(SegmenterSettings(simplify=True, dictionary=("心臟病",), stop_words=("頭髮",)))
    assert segmenter.segment("心臟病 頭髮") == segmenter.segment("心脏病 头发") == ["心脏", "脏病", "心脏病"]
    assert terms("心臟") == ["心臟"]


@pytest.mark.parametrize("text", ["", " \n\t", "，。！…", "😀👍", "\x00\u200b\ud800", "___"])
@pytest.mark.parametrize("name", SEGMENTER_NAMES)
def test_text_without_letters_gives_no_terms(name: SegmenterName, text: str) -> None:
    assert terms(text, name) == []


@pytest.mark.parametrize("lists", [{}, {"all": True}])
@pytest.mark.parametrize("name", SEGMENTER_NAMES)
@given(texts=st.lists(MIXED_SCRIPTS, max_size=5))
def test_all_texts_together_equal_one_by_one_and_terms_are_clean(
    name: SegmenterName, lists: dict[str, bool], texts: list[str]
) -> None:
    content = (EVERYTHING if lists else SegmenterSettings()).to_dict() | {"name": name}
    segmenter = make_segmenter(SegmenterSettings.from_dict(content))
    together = segmenter.segment_all(texts)
    assert together == [segmenter.segment(text) for text in texts]
    for term in (term for terms in together for term in terms):
        assert term == term.strip()
        assert "\n" not in term
        assert makes_term(term)
        assert any(unicodedata.category(c)[0] in "LNMC" for c in term)


@given(MIXED_SCRIPTS)
def test_bigrams_equal_a_plain_loop(text: str) -> None:
    import re

    from dmnrag.text import normalise

    expected: list[str] = []
    for run in re.findall(f"{CJK_CHARACTER}+|[^\\W_]+?(?={CJK_CHARACTER}|[\\W_]|$)", normalise(text)):
        is_cjk = re.match(CJK_CHARACTER, run) is not None
        expected += [run[i : i + 2] for i in range(len(run) - 1)] if is_cjk and len(run) > 1 else [run]
    assert terms(text) == expected


@pytest.mark.parametrize("name", SEGMENTER_NAMES)
def test_a_pickled_segmenter_cuts_alike(name: SegmenterName) -> None:
    content = EVERYTHING.to_dict() | {"name": name, "simplify": True}
    segmenter = make_segmenter(SegmenterSettings.from_dict(content))
    before = segmenter.segment("急性心梗的b超與MRI")
    assert pickle.loads(pickle.dumps(segmenter)).segment("急性心梗的b超與MRI") == before


def test_a_form_in_two_synonym_groups_is_refused_in_any_width() -> None:
    with pytest.raises(ConfigError, match="'mi' stands in two synonym groups, those of '心梗' and '米'"):
        make_segmenter(SegmenterSettings(synonyms=(("心梗", "MI"), ("米", "ｍｉ"))))


def test_a_dictionary_word_of_marks_only_is_refused() -> None:
    with pytest.raises(ConfigError, match="'，' has no letter, digit or ideograph"):
        make_segmenter(SegmenterSettings(dictionary=("，",)))


def test_segmenters_show_their_name_and_settings() -> None:
    segmenter = make_segmenter(EVERYTHING)
    assert (segmenter.name, segmenter.settings) == ("bigram", EVERYTHING)
