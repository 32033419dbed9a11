"""What a cell's questions are answered from: controls, domains right and wrong, documents brought in."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runner_world import DOMAINS, Llms, document, example, run, values

from dmnrag.errors import ConfigError, DataError
from dmnrag.experiments.matrix.domains import LearntDomains, wrong_domains
from dmnrag.experiments.records import Cell, Evidence
from dmnrag.experiments.results import ResultsFolder
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.types import Document, Domain, Example, Query


def finished(index: Path, out: Path, **changes: Any) -> tuple[ResultsFolder, dict[str, Cell]]:
    run(values(index, **changes), out)
    folder = ResultsFolder.open(out)
    return folder, {cell.row: cell for cell in folder.cells()}


def test_controls_are_given_what_their_names_say(small_index: Path, tmp_path: Path) -> None:
    folder, cells = finished(small_index, tmp_path / "out", methods=["no-Dmn", "Dmn"])
    evidence = {row: folder.evidence(cell) for row, cell in cells.items()}
    assert all(row.documents == () for row in evidence["closed-book"])
    for row in evidence["gold"]:
        [gold] = row.documents
        right = example(int(row.query_id[1:]))
        assert (gold.doc_id, gold.question, gold.answers) == (
            f"gold:{row.query_id}", right.query.text, right.references,
        )  # fmt: skip
    drawn = [tuple(d.doc_id for d in row.documents) for row in evidence["random"]]
    assert all(len(set(ids)) == 3 for ids in drawn)
    assert len(set(drawn)) > 1
    assert all(d.question == document(int(d.doc_id[1:])).question for row in evidence["random"] for d in row.documents)
    for control, method in (("copy-first", "no-Dmn"), ("copy-first (Dmn)", "Dmn")):
        assert evidence[control] == evidence[method]
        copied = [row.answer for row in folder.predictions(cells[control])]
        assert copied == [row.documents[0].answers[0] for row in evidence[method]]
        assert all(row.prompt is None for row in folder.predictions(cells[control]))


def test_controls_ask_without_a_domain_and_closed_book_without_a_document(small_index: Path, tmp_path: Path) -> None:
    llms = Llms()
    run(values(small_index, methods=["no-Dmn"], controls=["closed-book", "gold", "random"]), tmp_path / "out", llms)
    folder = ResultsFolder.open(tmp_path / "out")
    for cell in folder.cells():
        for row in folder.predictions(cell):
            assert row.prompt is not None
            assert row.prompt.user.startswith(f"{example(int(row.query_id[1:])).query.text}请回答该问题")
            assert len(row.prompt.excerpts) == {"closed-book": 0, "gold": 1}.get(cell.row, 3)


def test_gold_documents_of_the_index_are_used_where_the_corpus_names_them(tmp_path: Path) -> None:
    spec = values(Path("x"), methods=["no-Dmn"], controls=["gold"], retrieval=[{"layer": "sparse"}])
    spec["corpus"] = [{"name": "medical", "sample": "medical", "encoder": "none"}]
    run(spec, tmp_path / "out")
    folder = ResultsFolder.open(tmp_path / "out")
    gold = next(cell for cell in folder.cells() if cell.control == "gold")
    wanted = {e.query.query_id: e.gold_doc_ids for e in folder.questions("medical")}
    assert {row.query_id: tuple(d.doc_id for d in row.documents) for row in folder.evidence(gold)} == wanted


def test_random_documents_hang_on_the_seed_alone(small_index: Path, tmp_path: Path) -> None:
    def drawn(name: str, **changes: Any) -> list[Evidence]:
        folder, cells = finished(small_index, tmp_path / name, methods=["no-Dmn"], controls=["random"], **changes)
        return folder.evidence(cells["random"])

    some, more, other = drawn("a", questions=4), drawn("b", questions=8), drawn("c", questions=0, seed=1)
    ids = {row.query_id: [d.doc_id for d in row.documents] for row in more}
    assert all(ids[row.query_id] == [d.doc_id for d in row.documents] for row in some)
    assert any(ids.get(row.query_id, []) != [d.doc_id for d in row.documents] for row in other)


def questions(n: int) -> list[Domain]:
    return [DOMAINS[i % 3] for i in range(n)]


def noisy(share: float, seed: int = 0, n: int = 60) -> list[Domain]:
    return wrong_domains(questions(n), share, dict.fromkeys(DOMAINS, 10), "path", seed)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_as_many_domains_are_wrong_as_the_share_says(share: float) -> None:
    changed = [a != b for a, b in zip(noisy(share), questions(60), strict=True)]
    assert sum(changed) == round(share * 60)
    assert all(domain in DOMAINS for domain in noisy(share))


def test_a_larger_share_keeps_the_wrong_domains_of_a_smaller_one() -> None:
    own, few, many = questions(60), noisy(0.25), noisy(0.5)
    assert all(b == a for a, b, right in zip(few, many, own, strict=True) if a != right)
    assert noisy(0.5) == noisy(0.5) != noisy(0.5, seed=1)


def test_every_other_domain_is_drawn_and_none_that_shares_the_label() -> None:
    known = {("内", "甲"): 9, ("外", "甲"): 1, ("外", "乙"): 1, ("外", "丙"): 1}
    own = [("内", "甲")] * 200
    assert set(wrong_domains(own, 1.0, known, "path", 0)) == {("外", "乙"), ("外", "丙")}
    as_sets = wrong_domains(own, 1.0, known | {("甲", "丁"): 1, ("丁",): 1}, "set", 0)
    assert set(as_sets) == {("外", "乙"), ("外", "丙"), ("丁",)}


def test_questions_without_a_domain_stay_without() -> None:
    assert wrong_domains([(), *questions(3)], 1.0, dict.fromkeys(DOMAINS, 1), "path", 0)[0] == ()


def test_one_domain_alone_cannot_be_wrong() -> None:
    with pytest.raises(ConfigError, match="there is no other domain than 内科,心血管内科"):
        wrong_domains(questions(4), 0.5, {DOMAINS[0]: 3}, "path", 0)


def test_noise_reaches_retrieval_and_prompt_and_leaves_the_questions_alone(small_index: Path, tmp_path: Path) -> None:
    run(
        values(small_index, methods=["Dmn-ques-front"], controls=[], noise={"wrong": [0.5], "none": True}),
        tmp_path / "out",
    )
    folder = ResultsFolder.open(tmp_path / "out")
    right = {e.query.query_id: e.query.domain for e in folder.questions("medical")}
    by_source = {cell.domain: cell for cell in folder.cells()}
    used = {source: {row.query_id: row.domain for row in folder.evidence(cell)} for source, cell in by_source.items()}
    assert used["given"] == right
    assert set(used["none"].values()) == {()}
    assert sum(used["wrong"][q] != right[q] for q in right) == 3
    prompts = {row.query_id: row.prompt for row in folder.predictions(by_source["wrong"])}
    for query_id, domain in used["wrong"].items():
        prompt = prompts[query_id]
        assert prompt is not None
        assert prompt.user.startswith(",".join(domain))
    changed = [q for q in right if used["wrong"][q] != right[q]]
    found = {
        source: {row.query_id: [d.doc_id for d in row.documents] for row in folder.evidence(by_source[source])}
        for source in ("given", "wrong")
    }
    assert any(found["given"][q] != found["wrong"][q] for q in changed)
    assert all(found["given"][q] == found["wrong"][q] for q in right if q not in changed)


class OnlyBones:
    """A classifier that knows one thing."""

    def state(self, index: Index) -> str:
        return "bones"

    def infer(self, index: Index, texts: Sequence[str]) -> list[Domain]:
        assert DOMAINS[2] in index.domains
        return [DOMAINS[2] if "骨折" in text else () for text in texts]


def test_inferred_domains_come_from_the_classifier_or_are_refused(small_index: Path, tmp_path: Path) -> None:
    spec = values(small_index, methods=["Dmn"], controls=[], noise={"inferred": True})
    with pytest.raises(ConfigError, match=r"leave noise\.inferred out"):
        run(spec, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    run(spec, tmp_path / "out", classifier=OnlyBones())
    folder = ResultsFolder.open(tmp_path / "out")
    inferred = next(cell for cell in folder.cells() if cell.domain == "inferred")
    assert {row.domain for row in folder.evidence(inferred) if "骨折" in row.question} <= {DOMAINS[2]}
    assert {row.domain for row in folder.evidence(inferred) if "骨折" not in row.question} == {()}


def test_inferred_domains_are_learnt_from_the_index(tmp_path: Path) -> None:
    """Each domain has its own words here, so that every question shows whose it is."""
    words = {DOMAINS[0]: "血压心跳胸闷", DOMAINS[1]: "胃酸腹泻呕吐", DOMAINS[2]: "骨折扭伤关节"}
    documents = [
        Document(f"{domain[-1]}{i}", f"{text[i % 6]}{text}怎么办{i}", (f"{text}要注意{i}",), domain)
        for domain, text in words.items()
        for i in range(12)
    ]
    asked = [Example(Query(f"q{d[-1]}", f"{text}怎么办", ()), ("好",), cluster=d[-1]) for d, text in words.items()]
    strange = Example(Query("q", "wxyz", ()), ("好",), cluster="q")
    build_index(tmp_path / "index", documents, IndexSettings(), examples=[*asked, strange])
    with Index.open(tmp_path / "index") as index:
        learnt = LearntDomains()
        state = learnt.state(index)
        found = learnt.infer(index, [e.query.text for e in [*asked, strange]])
        assert (found, learnt.state(index)) == ([*words, ()], state)
    rare = [replace(d, domain=(f"domain {i}",)) for i, d in enumerate(documents)]
    build_index(tmp_path / "rare", rare, IndexSettings(), examples=asked)
    spec = values(tmp_path / "rare", methods=["Dmn"], controls=[], retrieval=[{"layer": "sparse"}])
    with pytest.raises(ConfigError, match=r"cannot be inferred in .*rare: no domain .*leave noise\.inferred out"):
        run(spec | {"noise": {"inferred": True}}, tmp_path / "out", classifier=LearntDomains())


def test_a_hard_filter_and_a_reranker_act(small_index: Path, tmp_path: Path) -> None:
    retrieval = [
        {"layer": "hybrid"},
        {"layer": "hybrid", "domain_filter": True},
        {"layer": "sparse", "reranker": "fake"},
    ]
    run(values(small_index, methods=["no-Dmn"], controls=[], retrieval=retrieval), tmp_path / "out")
    folder = ResultsFolder.open(tmp_path / "out")
    soft, hard, reranked = folder.cells()
    right = {e.query.query_id: e.query.domain[-1] for e in folder.questions("medical")}

    def outside(cell: Cell) -> int:
        return sum(d.domain[-1] != right[row.query_id] for row in folder.evidence(cell) for d in row.documents)

    assert outside(soft) > 0 == outside(hard)
    assert all(0 <= d.score <= 1 for row in folder.evidence(reranked) for d in row.documents)
    with Index.open(small_index) as index:
        assert index.n_documents > reranked.k


def test_evidence_goes_out_and_comes_in_again(small_index: Path, tmp_path: Path) -> None:
    folder, cells = finished(small_index, tmp_path / "first", methods=["no-Dmn", "Dmn-ques-front"], controls=[])
    exported = folder.cell_folder(cells["Dmn-ques-front"].id) / "evidence.jsonl"
    brought = [{"corpus": "medical", "row": "no-Dmn", "file": str(exported)}]
    llms = Llms()
    run(values(small_index, methods=["no-Dmn"], controls=[], evidence=brought), tmp_path / "second", llms)
    second = ResultsFolder.open(tmp_path / "second")
    [cell] = second.cells()
    assert cell.evidence == str(exported)
    assert second.evidence(cell) == folder.evidence(cells["Dmn-ques-front"])
    assert second.card("medical").retrievers == ()
    assert len(llms.asked) == 6


def test_evidence_that_lacks_a_question_or_has_another_text_is_refused(small_index: Path, tmp_path: Path) -> None:
    folder, cells = finished(small_index, tmp_path / "first", methods=["no-Dmn"], controls=[])
    lines = (folder.cell_folder(cells["no-Dmn"].id) / "evidence.jsonl").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "evidence.jsonl"
    spec = values(
        small_index,
        methods=["no-Dmn"],
        controls=[],
        evidence=[{"corpus": "medical", "row": "no-Dmn", "file": str(path)}],
    )
    for content, message in (
        ("\n".join(lines[:-2]) + "\n", "no row for 2 of the 6 questions of corpus medical"),
        ("\n".join(lines).replace("应该怎么", "要怎么") + "\n", "has another text than in the corpus"),
        ("\n".join(lines).replace('"score"', '"points"', 1) + "\n", "line 1: documents.0"),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            run(spec, tmp_path / "second")
