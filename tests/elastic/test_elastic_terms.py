"""Terms reach the index unchanged, or as a mark and hash; documents are read back as they were written."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from dmnrag.errors import DataError
from dmnrag.retrieval.elastic import IndexedDocument
from dmnrag.retrieval.elastic.rows import from_source, index_actions, to_source
from dmnrag.retrieval.elastic.terms import decode_terms, encode_term, encode_terms, is_kept
from dmnrag.types import Document

TERMS = st.lists(st.text(min_size=1, max_size=6) | st.text("ab \u3000\ue0a7", min_size=1, max_size=3))


@given(TERMS)
@example(["a b", "a", "b"])
@example(["x" * 300, "\ue0a7", "\ud800"])
def test_terms_are_read_back(terms: list[str]) -> None:
    text, replaced = encode_terms(terms)
    assert decode_terms(text, replaced) == terms


@given(TERMS)
def test_no_term_is_cut_by_the_analyzer(terms: list[str]) -> None:
    text, _ = encode_terms(terms)
    assert text.split() == [encode_term(term) for term in terms]
    assert all(len(part.encode("utf-16-le")) <= 2 * 255 for part in text.split())
    text.encode()  # no lone surrogate


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_terms_do_not_meet(one: str, other: str) -> None:
    assert (encode_term(one) == encode_term(other)) == (one == other)


@pytest.mark.parametrize(("term", "kept"), [("高血压", True), ("a\u00a0b", False), ("x" * 121, False), ("", False)])
def test_what_is_kept(term: str, kept: bool) -> None:
    assert is_kept(term) is kept


def test_a_row_is_read_back_without_its_vectors_being_known_to_it() -> None:
    document = Document("d", "q", ("a", "b"), ("l", "m"), {"": "x", "a.b": "y"})
    row = IndexedDocument(document, ("two words", "t", "t"), ("lab",), {"base": np.ones((2, 3), np.float32)})
    source = to_source(row, {"base": "v1"})
    assert source["v1_parts"] == 2
    assert from_source(source, row.vectors) == IndexedDocument(document, ["two words", "t", "t"], ["lab"], row.vectors)


def test_an_empty_document_is_read_back() -> None:
    row = IndexedDocument(Document("d", "", ()), [])
    assert from_source(to_source(row, {}), {}) == IndexedDocument(Document("d", "", ()), [], [])


@pytest.mark.parametrize("doc_id", ["", "药" * 171])
def test_an_id_that_the_server_does_not_take_is_refused_with_its_limit(doc_id: str) -> None:
    with pytest.raises(DataError, match="512 bytes"):
        list(index_actions([IndexedDocument(Document(doc_id, "q", ("a",)), ["t"])], {}))


def test_text_that_is_not_unicode_names_its_document() -> None:
    with pytest.raises(DataError, match="'d7'"):
        list(index_actions([IndexedDocument(Document("d7", "\ud800", ("a",)), ["t"])], {}))


def test_a_row_without_vectors_of_a_retriever_is_refused() -> None:
    with pytest.raises(DataError, match="'d' comes without the vectors of the retriever 'dpr'"):
        list(index_actions([IndexedDocument(Document("d", "q", ("a",)), ["t"])], {"dpr": "v1"}))


def test_floats_travel_as_short_as_they_can_be_read_back() -> None:
    vector = np.array([[0.1, 1 / 3]], np.float32)
    [action] = index_actions([IndexedDocument(Document("d", "q", ()), ["t"], (), {"base": vector})], {"base": "v1"})
    assert b"[0.1,0.33333334]" in action.content
