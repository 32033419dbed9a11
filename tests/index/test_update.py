from pathlib import Path

import numpy as np
import pytest
from conftest_index import DOCUMENTS, SETTINGS
from hypothesis import given, settings
from hypothesis import strategies as st

from dmnrag.errors import DataError
from dmnrag.index import Index, build_index, update_index
from dmnrag.index.update import MAX_SEGMENTS
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import PLAIN, Document, DomainUse, Hit, Query

QUERIES = [Query("1", "高血压怎么吃药", ("内科", "心血管内科")), Query("2", "发烧骨折胃疼", ("儿科",))]


def fake(_name: str) -> HashEncoder:
    return HashEncoder()


def everything_found(index: Index) -> list[list[Hit]]:
    vectors = HashEncoder().encode_queries([q.text for q in QUERIES])
    return [
        *index.sparse.search(QUERIES, 10, use=DomainUse()),
        *index.sparse.search(QUERIES, 10, use=PLAIN),
        *index.dense().search(vectors, 10),
    ]


def assert_same_hits(a: list[list[Hit]], b: list[list[Hit]]) -> None:
    assert [[h.doc_id for h in hits] for hits in a] == [[h.doc_id for h in hits] for hits in b]
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose([h.score for h in x], [h.score for h in y], rtol=1e-6)


def test_an_added_document_is_found(folder: Path) -> None:
    new = Document("d6", "感冒了怎么办", ("多休息，多喝水。",), ("内科", "呼吸内科"))
    report = update_index(folder, add=[new], encoder_for=fake)
    assert (report.n_added, report.n_documents, report.generation) == (1, 6, 2)
    with Index.open(folder, verify=True) as index:
        assert index.sparse.search([Query("1", "感冒")], 3)[0][0].doc_id == "d6"
        assert index.domains["内科", "呼吸内科"] == 1
        assert len(index.examples) == 1


def test_a_removed_document_is_gone_everywhere(folder: Path) -> None:
    update_index(folder, remove=["d1"])
    with Index.open(folder, verify=True) as index:
        assert "d1" not in {h.doc_id for hits in everything_found(index) for h in hits}
        assert index.n_documents == 4
        assert index.domains["内科", "心血管内科"] == 1
        with pytest.raises(DataError, match="d1"):
            index.documents(["d1"])


def test_an_id_that_is_there_is_refused_unless_replaced(folder: Path) -> None:
    new = Document("d2", "胃疼怎么办", ("清淡饮食。",), ("内科", "消化内科"))
    with pytest.raises(DataError, match="--replace"):
        update_index(folder, add=[new], encoder_for=fake)
    report = update_index(folder, add=[new], replace=True, encoder_for=fake)
    assert (report.n_added, report.n_replaced, report.n_documents) == (1, 1, 5)
    with Index.open(folder) as index:
        assert index.documents(["d2"]) == [new]


def test_removing_what_is_not_there_changes_nothing(folder: Path) -> None:
    with pytest.raises(DataError, match="nothing was removed"):
        update_index(folder, remove=["d1", "no-such-id"])
    with Index.open(folder) as index:
        assert (index.manifest.generation, index.n_documents) == (1, 5)


def test_removing_everything_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="without a document"):
        update_index(folder, remove=[d.doc_id for d in DOCUMENTS])


def test_many_additions_are_joined_into_few_segments(folder: Path) -> None:
    for n in range(2 * MAX_SEGMENTS):
        update_index(folder, add=[Document(f"n{n}", f"问题{n}", (f"回答{n}的文字",), ("内科",))], encoder_for=fake)
    with Index.open(folder, verify=True) as index:
        assert len(index.manifest.segments) <= MAX_SEGMENTS
        assert index.n_documents == len(DOCUMENTS) + 2 * MAX_SEGMENTS


def test_a_document_of_the_held_out_split_is_left_out(folder: Path) -> None:
    leaking = Document("leak", "别的问题", ("最好戒酒！",), ("内科",))
    with pytest.raises(DataError, match="all 1 documents"):
        update_index(folder, add=[leaking], encoder_for=fake)
    fine = Document("d6", "感冒了怎么办", ("多休息，多喝水。",))
    report = update_index(folder, add=[leaking, fine], encoder_for=fake)
    assert (report.n_added, report.left_out, report.n_documents) == (1, ("leak",), 6)


def test_gold_that_is_removed_is_no_longer_gold_and_a_replaced_one_stays(folder: Path) -> None:
    new = Document("d1", "高血压能喝酒吗", ("少喝。",), ("内科",))
    update_index(folder, add=[new], replace=True, encoder_for=fake)
    with Index.open(folder) as index:
        assert index.examples[0].gold_doc_ids == ("d1",)
    update_index(folder, remove=["d1"])
    with Index.open(folder, verify=True) as index:
        assert index.examples[0].gold_doc_ids == ()
        assert index.examples[0].query.text == "血压高可以饮酒吗"


def test_an_update_of_nothing_makes_no_generation(folder: Path) -> None:
    with pytest.raises(DataError, match="nothing to add and nothing to remove"):
        update_index(folder)
    with Index.open(folder) as index:
        assert index.manifest.generation == 1


changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 25), min_size=1, max_size=4, unique=True)),
        st.tuples(st.just("remove"), st.integers(0, 100)),
    ),
    max_size=14,
)


@settings(max_examples=15, deadline=None)
@given(changes)
def test_any_order_of_additions_and_removals_equals_one_build(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[tuple[str, list[int] | int]]
) -> None:
    words = ["高血压", "骨折", "发烧", "胃疼", "吃药", "喝酒"]
    base = tmp_path_factory.mktemp("property")
    build_index(base / "changed", DOCUMENTS, SETTINGS, encoder=HashEncoder())
    expected = {d.doc_id: d for d in DOCUMENTS}
    for step, (kind, what) in enumerate(sequence):
        if isinstance(what, list):
            new = [
                Document(f"n{i}", words[i % 6] + str(step), (words[(i + step) % 6] * 2,), DOCUMENTS[i % 5].domain)
                for i in what
            ]
            update_index(base / "changed", add=new, replace=True, encoder_for=fake)
            expected |= {d.doc_id: d for d in new}
        elif kind == "remove" and len(expected) > 1:
            doc_id = sorted(expected)[what % len(expected)]
            update_index(base / "changed", remove=[doc_id])
            del expected[doc_id]
    build_index(base / "once", expected.values(), SETTINGS, encoder=HashEncoder())
    with Index.open(base / "changed", verify=True) as changed, Index.open(base / "once") as once:
        assert {d.doc_id: d for d in changed.all_documents()} == expected
        assert changed.manifest.domains == once.manifest.domains
        assert_same_hits(everything_found(changed), everything_found(once))
