"""Texts encoded on arrays give the segmenter's own terms."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_builder import Words

from dmnrag.retrieval.sparse.encode import Encoded, NgramEncoder, SegmenterEncoder, encoder_for
from dmnrag.text import SegmenterSettings, make_segmenter

# Ideographs (also beyond 16 bits), kana, hangul, Latin, digits, full width, marks, and what normalising drops.
CHARACTERS = "心肌梗死か한𠀀aBé1９ＡΣ_-，。 \u3000\n\xa0\u200b\u0301ﬁ㈱⅓"
TEXTS = st.lists(st.text(st.sampled_from(CHARACTERS) | st.characters(), max_size=12), max_size=5)


def terms_of(encoded: Encoded, n_texts: int) -> list[Counter[str]]:
    found = [Counter() for _ in range(n_texts)]
    for number, owner in zip(encoded.numbers.tolist(), encoded.owners.tolist(), strict=True):
        found[owner][encoded.terms[number]] += 1
    return found


def expected(texts: Sequence[str], chosen: SegmenterSettings) -> list[Counter[str]]:
    return [Counter(terms) for terms in make_segmenter(chosen).segment_all(texts)]


@pytest.mark.parametrize("name", ["bigram", "unigram+bigram"])
@settings(deadline=None)
@given(TEXTS)
def test_arrays_give_the_terms_of_the_segmenter(name: str, texts: list[str]) -> None:
    chosen = SegmenterSettings(name=name)
    encoder = encoder_for(make_segmenter(chosen))
    assert isinstance(encoder, NgramEncoder)
    assert terms_of(encoder.encode(texts), len(texts)) == expected(texts, chosen)


def test_pairs_do_not_reach_into_the_next_text() -> None:
    # 心肌 | 梗 | ct | 死 a: the last text's 死 stands alone, although a Latin letter follows.
    encoded = NgramEncoder(unigrams=False, simplify=False).encode(["心肌", "梗", "", "CT", "死a"])
    assert terms_of(encoded, 5) == [{"心肌": 1}, {"梗": 1}, {}, {"ct": 1}, {"死": 1, "a": 1}]


@pytest.mark.parametrize(
    "chosen",
    [
        SegmenterSettings(name="jieba"),
        SegmenterSettings(name="mixed"),
        SegmenterSettings(stop_words=("心肌",)),
        SegmenterSettings(dictionary=("心肌梗死",)),
        SegmenterSettings(synonyms=(("心肌梗死", "心梗"),)),
    ],
)
def test_other_settings_go_through_the_segmenter(chosen: SegmenterSettings) -> None:
    texts = ["急性心肌梗死与心梗 CT", "", "心肌"]
    encoder = encoder_for(make_segmenter(chosen))
    assert isinstance(encoder, SegmenterEncoder)
    assert terms_of(encoder.encode(texts), 3) == expected(texts, chosen)


def test_foreign_segmenter_is_used_as_it_is() -> None:
    encoded = encoder_for(Words()).encode(["rest rest", "心"])
    assert terms_of(encoded, 2) == [{"rest": 2}, {"心": 1}]


def test_traditional_characters_become_simplified_ones() -> None:
    pytest.importorskip("opencc")
    chosen = SegmenterSettings(simplify=True)
    encoded = encoder_for(make_segmenter(chosen)).encode(["糖尿病藥物", "乾"])
    assert terms_of(encoded, 2) == expected(["糖尿病藥物", "乾"], chosen)


def test_every_number_names_a_term() -> None:
    encoded = NgramEncoder(unigrams=True, simplify=False).encode(["心肌心肌 ab ab c"])
    assert sorted(encoded.terms) == ["ab", "c", "心", "心肌", "肌", "肌心"]
    assert np.bincount(encoded.numbers).sum() == len(encoded.owners) == 10  # 4 characters, 3 pairs, 3 runs
