"""More than ROUGE: support, diversity, domain agreement and the documents given, by hand."""

import importlib
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from report_builder import cell, questions, write

from dmnrag.data.samples import load_sample
from dmnrag.errors import DataError
from dmnrag.experiments.matrix.runner import run_experiment
from dmnrag.experiments.matrix.spec_files import LoadedSpec, spec_from_dict
from dmnrag.experiments.records import Cell
from dmnrag.experiments.reporting.contents import build_report
from dmnrag.experiments.reporting.measures import agreement
from dmnrag.experiments.reporting.measures.agreement import DOMAIN_AGREEMENT, DomainReader
from dmnrag.experiments.reporting.measures.agreement_file import measure_agreement
from dmnrag.experiments.reporting.measures.diversity import distinct_column, distinct_n, distinct_overall
from dmnrag.experiments.reporting.measures.more import DISTINCT_2, SUPPORTED, with_measures
from dmnrag.experiments.reporting.study import read_study
from dmnrag.experiments.results import ResultsFolder
from dmnrag.methods import METHODS
from dmnrag.types import Document, Example


def test_distinct_n_is_different_over_all() -> None:
    assert distinct_n([list("aab"), list("ab")], 1) == 2 / 5
    assert distinct_n([list("aab"), list("ab")], 2) == 2 / 3  # aa ab ab
    assert distinct_n([["a"]], 2) is None
    assert distinct_n([], 1) is None


def test_diversity_inside_an_answer_and_over_all_answers_differ() -> None:
    same = ["多喝水", "多喝水"]
    assert distinct_column(same, 1) == (1.0, 1.0)
    assert distinct_overall(same, 1) == 0.5
    assert distinct_column([""], 1) == (None,)


MEDICINE = ["按时服用降压药，监测血压", "血压高要少吃盐", "测血压前静坐", "降压药不要自行停用"]
LAW = ["可以申请劳动仲裁", "公司应支付经济补偿", "劳动合同要书面签订", "仲裁时效为一年"]


def corpus() -> list[Document]:
    return [Document(f"m{i}", "问", (t,), ("内科", "心血管内科")) for i, t in enumerate(MEDICINE)] + [
        Document(f"l{i}", "问", (t,), ("劳动纠纷",)) for i, t in enumerate(LAW)
    ]


def test_an_answer_agrees_where_the_classifier_sees_its_domain() -> None:
    reader = DomainReader.train(corpus())
    answers = ["血压高就要服用降压药", "可以申请仲裁要求经济补偿", "血压高就要服用降压药", "", None, "血压"]
    domains = [("内科", "心血管内科"), ("劳动纠纷",), ("劳动纠纷",), ("劳动纠纷",), ("劳动纠纷",), ()]
    assert reader.agreement(answers, domains) == (1.0, 1.0, 0.0, 0.0, None, None)


def test_repeating_the_label_is_no_agreement() -> None:
    reader = DomainReader.train(corpus())
    echoed = "劳动纠纷" * 10 + "血压"
    assert reader.agreement([echoed], [("劳动纠纷",)]) == (0.0,)
    assert reader.agreement([echoed], [("内科", "心血管内科")]) == (1.0,)


def test_labels_without_order_agree_in_any() -> None:
    documents = [Document(f"{i}", "问", (t,), ("内科", "急诊")) for i, t in enumerate(MEDICINE)]
    documents += [Document(f"l{i}", "问", (t,), ("劳动纠纷",)) for i, t in enumerate(LAW)]
    reader = DomainReader.train(documents, "set")
    assert reader.agreement(["可以申请仲裁要求经济补偿"], [("劳动纠纷", "合同纠纷")]) == (1.0,)


def test_one_domain_alone_cannot_be_told_from_others() -> None:
    with pytest.raises(DataError, match="at least two domains"):
        DomainReader.train(corpus()[:4])


def test_answers_without_a_common_ngram_are_refused_in_our_words() -> None:
    documents = [Document("a", "问", ("甲乙",), ("内科",)), Document("b", "问", ("丙丁",), ("外科",))]
    with pytest.raises(DataError, match="cannot be learnt from 2 answers"):
        DomainReader.train(documents)


def test_a_large_index_is_read_once_and_thinned_but_for_its_rare_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"内科": 60, "外科": 30, "儿科": 4}
    domains = [("医", label) for label, n in sizes.items() for _ in range(n)]
    documents = [Document(f"d{i}", "问", ("".join(domain) + "甲乙丙",), domain) for i, domain in enumerate(domains)]
    monkeypatch.setattr(agreement, "_MOST_DOCUMENTS", 24)
    learnt: list[Counter[str]] = []
    svm = importlib.import_module("sklearn.svm").LinearSVC
    fit = svm.fit

    def counted(self: object, texts: object, labels: list[str]) -> object:
        learnt.append(Counter(labels))
        return fit(self, texts, labels)

    monkeypatch.setattr(svm, "fit", counted)
    DomainReader.train(iter([*documents, Document("none", "问", ("甲",))]))
    assert learnt[0]["儿科"] == 4
    assert sum(learnt[0].values()) <= 24


def test_an_experiment_whose_index_teaches_no_domain_says_so_and_ends(tmp_path: Path) -> None:
    texts = ["甲乙丙", "丁戊己", "庚辛壬", "癸子丑", "寅卯辰", "巳午未", "申酉戌", "亥天地"]
    rows = [
        json.dumps({"q": f"头疼{text}怎么办", "a": text, "d": ("内科", "外科")[i % 2]}, ensure_ascii=False)
        for i, text in enumerate(texts)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    spec = {
        "methods": ["no-Dmn"],
        "questions": 0,
        "retrieval_table": "none",
        "controls": [],
        "retrieval": [{"layer": "sparse"}],
        "corpus": [
            {
                "name": "m", "files": [str(tmp_path / "rows.jsonl")], "question": ["q"], "answer": ["a"],
                "domain": ["d"], "test_size": 0.25, "encoder": "none",
            }
        ],
        "llm": [{"name": "fake"}],
    }  # fmt: skip
    said: list[str] = []
    outcome = run_experiment(
        LoadedSpec("m", spec_from_dict(spec, "spec"), tmp_path), tmp_path / "out", on_message=said.append
    )
    assert outcome.incomplete == {}
    (message,) = said
    assert message.startswith("corpus m: domain agreement is not measured: domain agreement cannot be learnt from")
    assert read_study(ResultsFolder.open(tmp_path / "out")).corpora[0].references_agreement is None


def test_answers_of_the_samples_show_their_domain() -> None:
    documents, examples = load_sample("legal")
    found = DomainReader.train(documents).agreement(
        [e.references[0] for e in examples], [e.query.domain for e in examples]
    )
    assert sum(v or 0 for v in found) / len(found) > 0.9


def test_a_study_gains_the_measures_that_its_folder_allows(tmp_path: Path) -> None:
    asked = questions(6)

    def texts(one: Cell, example: Example) -> str:
        return example.references[0] if one.row == "Dmn" else "毫不相干的一段话，毫不相干的一段话。"

    cells = [cell("no-Dmn"), cell("Dmn"), cell("closed-book", control="closed-book")]
    folder = write(tmp_path, cells, lambda _: 0.5, examples=asked, texts=texts, unanswered={"closed-book": 1})
    base, dmn, closed = with_measures(read_study(folder)).arms
    # The first document is the gold one, and the question's domain is its own only for the joint method.
    assert dmn.values["same-domain@2"] == (0.5, 1.0, 0.5) * 2  # d0 is 内科 and the other one 外科
    assert base.values["same-domain@2"] == (0.0, 1.0, 0.0) * 2
    assert dmn.values["recall@2"] == (1.0,) * 6
    assert dmn.values["MRR@2"] == (1.0,) * 6
    assert dmn.values[SUPPORTED] == (1.0,) * 6
    assert base.values[SUPPORTED] == (1.0,) * 6
    assert (base.values[DISTINCT_2][0] or 0) < 1 == dmn.values[DISTINCT_2][0]
    assert closed.values == {}


def index_documents(asked: list[Example]) -> list[Document]:
    """Two documents a question, of its domain."""
    return [
        Document(f"{e.query.query_id}-{i}", "问", (e.references[0][: 12 + i],), e.query.domain)
        for e in asked
        for i in (0, 1)
    ]


def test_agreement_is_measured_once_and_read_by_the_study(tmp_path: Path) -> None:
    asked = questions(9)
    folder = write(tmp_path, [cell("no-Dmn"), cell("Dmn")], lambda _: 0.9, examples=asked, unanswered={"Dmn": 2})
    calls = 0

    def documents() -> list[Document]:
        nonlocal calls
        calls += 1
        return index_documents(asked)

    assert measure_agreement(folder, "medical", documents)
    assert not measure_agreement(folder, "medical", documents)
    assert calls == 1
    study = read_study(folder)
    base, dmn = study.arms
    assert set(base.values[DOMAIN_AGREEMENT]) <= {0.0, 1.0}
    assert len(base.values[DOMAIN_AGREEMENT]) == 9
    assert dmn.values == {}  # incomplete: measured when it is whole
    assert study.corpora[0].references_agreement == 1.0
    (table,) = [t for t in build_report(study).tables if t.name == "beyond-rouge-1"]
    assert ("medical", DOMAIN_AGREEMENT) in table.columns
    assert any("medical 100%" in note for note in table.notes)


def test_agreement_of_other_answers_is_not_taken_for_that_of_the_present_ones(tmp_path: Path) -> None:
    asked = questions(9)
    folder = write(tmp_path, [cell("no-Dmn")], lambda _: 0.9, examples=asked)
    measure_agreement(folder, "medical", lambda: index_documents(asked))
    (one,) = folder.cells()
    metrics = folder.metrics(one)
    assert metrics is not None
    folder.write_metrics(one.id, replace(metrics, inputs="other"))
    assert DOMAIN_AGREEMENT not in read_study(folder).arms[0].values
    assert measure_agreement(folder, "medical", lambda: index_documents(asked))
    assert DOMAIN_AGREEMENT in read_study(folder).arms[0].values


def test_claim_8_is_tested_once_agreement_is_there(tmp_path: Path) -> None:
    asked = questions(24)

    def texts(one: Cell, example: Example) -> str:
        return "毫不相干的一段话" if one.row == "no-Dmn" else example.references[0]

    cells = [cell(m.name) for m in METHODS]
    folder = write(tmp_path, cells, lambda _: 0.5, examples=asked, texts=texts)
    measure_agreement(folder, "medical", lambda: index_documents(asked))
    claims = {claim.number: claim for claim in build_report(read_study(folder)).claims}
    assert claims[8].outcome == "held"
    assert len(claims[8].parts) == 5
