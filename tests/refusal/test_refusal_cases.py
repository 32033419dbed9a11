"""The parts that cases are made of, by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dmnrag.data import load_sample
from dmnrag.domain import Inference
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.pipeline import Pipeline
from dmnrag.protocols import FloatMatrix
from dmnrag.refusal.blanked import BlankedDense, blanked_sparse
from dmnrag.refusal.cases import label_of, make_cases
from dmnrag.refusal.foreign import foreign_questions, typical_pairs
from dmnrag.types import Document, Domain, Hit, Query

QUERY = np.array([[1.0, 0.0]], np.float32)


class FixedDense:
    """a .9, b .8, c .7 whatever is asked."""

    def search(
        self, vectors: FloatMatrix, k: int, *, allowed: Sequence[Domain | None] | None = None
    ) -> list[list[Hit]]:
        del allowed
        return self.rescore(vectors, [["a", "b", "c"]] * len(vectors), k)

    def rescore(self, vectors: FloatMatrix, candidates: Sequence[Sequence[str]], k: int) -> list[list[Hit]]:
        scores = {"a": 0.9, "b": 0.8, "c": 0.7}
        found = []
        for wanted in candidates:
            ranked = sorted((d for d in wanted if d in scores), key=lambda d: -scores[d])[:k]
            found.append([Hit(d, scores[d], rank) for rank, d in enumerate(ranked, start=1)])
        return found


def test_blanked_documents_have_other_scores() -> None:
    # a has two parts, .2 and .75: the better one counts. d is not in the index's own hits.
    vectors = {
        "a": np.array([[0.2, 0.0], [0.75, 0.0]], np.float32),
        "d": np.array([[0.1, 0.9]], np.float32),
    }
    dense = BlankedDense(FixedDense(), vectors)
    [found] = dense.search(QUERY, 3)
    assert [(hit.doc_id, hit.rank) for hit in found] == [("b", 1), ("a", 2), ("c", 3)]
    assert [hit.score for hit in found] == pytest.approx([0.8, 0.75, 0.7])
    [rescored] = dense.rescore(QUERY, [["c", "a"]], 3)
    assert [hit.doc_id for hit in rescored] == ["a", "c"]
    [deep] = dense.search(QUERY, 10)
    assert (deep[-1].doc_id, deep[-1].rank) == ("d", 4)


def test_blanked_postings_leave_out_the_question_alone(tmp_path: Path) -> None:
    documents = [
        Document("a", "高血压能喝酒吗", ("最好不要。",)),
        Document("b", "高血压能喝酒吗", ("少量可以。",)),
        Document("c", "骨折多久好", ("三个月。",)),
    ]
    build_index(tmp_path / "i", documents, IndexSettings())
    with Index.open(tmp_path / "i") as index:
        sparse = blanked_sparse(index, {"a"}, tmp_path / "sparse")
        [by_question] = sparse.search([Query("1", "高血压")], 5)
        [by_answer] = sparse.search([Query("1", "最好不要")], 5)
    assert [hit.doc_id for hit in by_question] == ["b"]
    assert by_answer[0].doc_id == "a"


def test_a_repost_is_evidence_and_goes_with_its_document(tmp_path: Path) -> None:
    documents = [d for d in load_sample("medical")[0] if d.domain == ("儿科",)]
    answers = ("第一次出现这种情况时先测体温，三十八度五以下多喝水，精神不好马上去医院。",)
    documents = [replace(d, domain=()) for d in documents]
    documents += [Document("x", "孩子发烧到三十八度要不要吃退烧药呢", answers), Document("y", "发烧退烧药", answers)]
    build_index(tmp_path / "i", documents, IndexSettings())
    with Index.open(tmp_path / "i") as index:
        cases = make_cases(Pipeline(index), "sparse", 3, 100)
    own, removed = [case for case in cases if case.found.question == "发烧退烧药"]
    assert own.group == next(case.group for case in cases if case.found.question.startswith("孩子发烧到"))
    assert not {"x", "y"} & {document.doc_id for document in removed.found.documents}


def test_a_corpus_of_the_same_field_is_not_foreign() -> None:
    medical, legal = (load_sample(name)[0] for name in ("medical", "legal"))
    assert typical_pairs("medical").isdisjoint(typical_pairs("legal"))
    of_medical, of_legal = set(foreign_questions(medical)), set(foreign_questions(legal))
    assert {d.question for d in legal} < of_medical
    assert {d.question for d in medical} < of_legal
    assert of_medical.isdisjoint(of_legal)
    assert foreign_questions([*medical, *legal]) == []
    other = [Document(str(i), "how do I reset my password", ("open the settings",)) for i in range(50)]
    assert set(foreign_questions(other)) == of_medical | of_legal


def test_labels_by_which_thresholds_are_chosen() -> None:
    inferred = Inference((), 0.3, True, (("内科", 0.3), ("外科", 0.2)))
    assert label_of(inferred, ("儿科",)) == "内科"
    assert label_of(None, ("儿科", "新生儿")) == "儿科"
    assert label_of(Inference((), 0.0, True, ()), ()) == ""
