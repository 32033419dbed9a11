"""BEIR folders in and out."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmnrag.data.exchange import BeirCollection, read_beir, read_judgements, write_beir
from dmnrag.errors import DataError
from dmnrag.types import Document, Query

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NONEMPTY = TEXTS.filter(lambda text: bool(text.strip()))
IDS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp"), exclude_characters="\ufeff"),
    min_size=1,
    max_size=5,
).filter(lambda text: bool(text.strip()))
DOMAINS = st.lists(NONEMPTY, max_size=2, unique=True).map(tuple)
METADATA = st.dictionaries(NONEMPTY.filter(lambda key: key not in ("domain", "answers")), TEXTS, max_size=2)


@st.composite
def collections(draw: st.DrawFn) -> BeirCollection:
    documents = [
        Document(doc_id, draw(TEXTS), tuple(draw(st.lists(NONEMPTY, max_size=3))), draw(DOMAINS), draw(METADATA))
        for doc_id in draw(st.lists(IDS, min_size=1, max_size=4, unique=True))
    ]
    queries = [
        Query(query_id, draw(NONEMPTY), draw(DOMAINS))
        for query_id in draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
    ]
    judged = st.dictionaries(st.sampled_from([d.doc_id for d in documents]), st.integers(0, 3), min_size=1)
    return BeirCollection(documents, queries, {q.query_id: draw(judged) for q in queries})


@settings(max_examples=50)
@given(collections())
def test_a_folder_reads_back_equal(tmp_path_factory: pytest.TempPathFactory, collection: BeirCollection) -> None:
    folder = tmp_path_factory.mktemp("beir")
    write_beir(folder, collection.documents, collection.queries, collection.qrels)
    assert read_beir(folder) == collection
    assert read_judgements(folder / "qrels" / "test.tsv") == collection.qrels


def foreign(folder: Path, **changes: Any) -> Path:
    """A small folder as others write it; `changes` replaces a file's whole text."""
    files = {
        "corpus": '{"_id": "d1", "title": "题", "text": "答", "metadata": {}}\n{"_id": 2, "text": "无题"}\n',
        "queries": '{"_id": "q1", "text": "问", "metadata": {}}\n{"_id": "q2", "text": "别的"}\n',
        "qrels": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\t2\t0\n",
    } | changes
    (folder / "qrels").mkdir()
    (folder / "corpus.jsonl").write_text(files["corpus"], encoding="utf-8")
    (folder / "queries.jsonl").write_text(files["queries"], encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text(files["qrels"], encoding="utf-8")
    return folder


def test_a_foreign_folder_gives_title_as_question_text_as_answer_and_only_judged_queries(tmp_path: Path) -> None:
    found = read_beir(foreign(tmp_path))
    assert found.documents == [Document("d1", "题", ("答",)), Document("2", "", ("无题",))]
    assert found.queries == [Query("q1", "问")]
    assert found.qrels == {"q1": {"d1": 1, "2": 0}}
    assert found.absent_doc_ids == ()


def test_labels_stand_in_metadata_and_further_metadata_is_kept_as_text(tmp_path: Path) -> None:
    row = {"_id": "d1", "text": "答", "metadata": {"domain": "内科", "url": "u", "year": 2020, "none": None}}
    found = read_beir(foreign(tmp_path, corpus=json.dumps(row)))
    assert found.documents == [Document("d1", "", ("答",), ("内科",), {"url": "u", "year": "2020"})]


def test_judged_documents_that_the_corpus_lacks_are_reported_and_stay_judged(tmp_path: Path) -> None:
    found = read_beir(foreign(tmp_path, qrels="query-id\tcorpus-id\tscore\nq1\tgone\t1\n"))
    assert found.absent_doc_ids == ("gone",)
    assert found.qrels == {"q1": {"gone": 1}}


def test_a_written_corpus_row_has_the_documented_shape(tmp_path: Path) -> None:
    document = Document("d1", "问", ("甲", "乙"), ("内科", "心内科"), {"hospital": "一院"})
    write_beir(tmp_path, [document], [Query("q1", "?", ("内科",))], {"q1": {"d1": 1}})
    assert json.loads((tmp_path / "corpus.jsonl").read_text(encoding="utf-8")) == {
        "_id": "d1",
        "title": "问",
        "text": "甲\n乙",
        "metadata": {"domain": ["内科", "心内科"], "answers": ["甲", "乙"], "hospital": "一院"},
    }
    assert json.loads((tmp_path / "queries.jsonl").read_text(encoding="utf-8")) == {
        "_id": "q1",
        "text": "?",
        "metadata": {"domain": ["内科"]},
    }
    assert (tmp_path / "qrels" / "test.tsv").read_text() == "query-id\tcorpus-id\tscore\nq1\td1\t1\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus": '{"_id": "d1", "text": "a"}\nno json'}, "corpus.jsonl, line 2: not JSON"),
        ({"corpus": '{"_id": "d1"}'}, "line 1: no 'text'; its keys are '_id'"),
        ({"corpus": '{"_id": "d1", "text": ["a"]}'}, "line 1: 'text' is ['a']; a text is needed"),
        ({"corpus": '{"_id": "", "text": "a"}'}, "line 1: '_id' is empty"),
        ({"corpus": '{"_id": "a", "text": ""}\n\n{"_id": "a", "text": ""}'}, "line 3: _id 'a' stands"),
        ({"corpus": '{"_id": "a", "text": "", "metadata": []}'}, "'metadata' is []"),
        ({"corpus": '{"_id": "a", "text": "", "metadata": {"domain": [1]}}'}, "'domain' holds 1"),
        ({"corpus": "[]"}, "line 1: a JSON object is needed, found list"),
        ({"corpus": ""}, "corpus.jsonl holds no line"),
        ({"queries": '{"_id": "q2", "text": "?"}'}, "1 queries are judged but have no text: q1"),
        ({"queries": '{"_id": "q1", "text": " "}'}, "line 1: 'text' is empty"),
        ({"qrels": "q1\td1\t1\n"}, "line 1: a header is needed"),
        ({"qrels": "query-id\tcorpus-id\tscore\n"}, "holds no judgement"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq1\td1\n"}, "line 2: found ['q1', 'd1']"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq1\td1\tx\n"}, "line 2: relevance 'x'"),
        ({"qrels": 'query-id\tcorpus-id\tscore\nq1\t"d1\t1\n'}, "line 2: unexpected end of data"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td1\t1"}, "line 3: document 'd1' is judged"),
    ],
)
def test_a_broken_folder_is_an_error_that_names_the_line(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(DataError) as error:
        read_beir(foreign(tmp_path, **changes))
    assert message in str(error.value)


def test_a_missing_split_names_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no qrels/dev\.tsv; splits there are: test"):
        read_beir(foreign(tmp_path), "dev")


def test_what_a_folder_cannot_hold_is_refused(tmp_path: Path) -> None:
    document, query, qrels = Document("d", "", ("a",)), Query("q", "?"), {"q": {"d": 1}}
    with pytest.raises(DataError, match="control character"):
        write_beir(tmp_path, [Document("a\tb", "", ("a",))], [query], qrels)
    with pytest.raises(DataError, match=r"'d' would stand in corpus\.jsonl twice"):
        write_beir(tmp_path, [document, document], [query], qrels)
    with pytest.raises(DataError, match="1 queries are judged but have no text: other"):
        write_beir(tmp_path, [document], [query], {"other": {"d": 1}})
    with pytest.raises(DataError, match="further column 'domain'"):
        write_beir(tmp_path, [Document("d", "", ("a",), (), {"domain": "x"})], [query], qrels)
    with pytest.raises(DataError, match="half a surrogate pair"):
        write_beir(tmp_path, [Document("d", "\ud800", ("a",))], [query], qrels)
