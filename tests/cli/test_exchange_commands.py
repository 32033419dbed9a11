"""BEIR folders in and out, TREC runs and qrels out, and `evaluate` on a foreign collection."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Outcome, RunCli

from dmnrag.data.exchange import read_beir, read_qrels, read_run, write_qrels
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.types import Document, Example, Query

DOCUMENTS = [
    Document("a", "高血压能喝酒吗", ("最好不要喝酒。",), ("内科",)),
    Document("b", "发烧怎么办", ("先物理降温。", "多喝水。"), ("儿科",), {"医院": "一院"}),
    Document("c", "骨折多久能走", ("六到八周。",), ("骨科",)),
]
EXAMPLES = [
    Example(Query("q1", "血压高能饮酒吗", ("内科",)), ("不能",), ("a",), "1"),
    Example(Query("q2", "孩子发烧", ("儿科",)), ("降温",), ("b", "a"), "2"),
    Example(Query("q3", "怎么走路", ()), ("慢慢走",), (), "3"),
]


@pytest.fixture
def index(tmp_path: Path) -> Path:
    build_index(tmp_path / "index", DOCUMENTS, IndexSettings(), examples=EXAMPLES)
    return tmp_path / "index"


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def refused(done: Outcome, code: int, *said: str) -> None:
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1, done.err
    for part in said:
        assert part in done.err


def test_index_exported_as_beir_is_indexed_again_in_one_command(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    beir = tmp_path / "beir"
    done = run_cli("export", index, "--to", "beir", "--out", beir)
    assert done.out == f"3 documents and 2 judged questions in {beir}\n"
    assert "1 of 3 held-out questions name no document" in done.err
    collection = read_beir(beir)
    assert collection.documents == DOCUMENTS
    assert collection.qrels == {"q1": {"a": 1}, "q2": {"b": 1, "a": 1}}
    again = run_cli("index", beir, "--out", tmp_path / "again", "--encoder", "none", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["read"]["files"][0]["format"] == "BEIR"
    with Index.open(tmp_path / "again", verify=True) as opened:
        assert list(opened.all_documents()) == DOCUMENTS
    added = write_lines(tmp_path / "more" / "corpus.jsonl", [{"_id": "d", "title": "", "text": "失眠要早睡"}])
    assert run_cli("add", tmp_path / "again", added.parent).out.startswith("1 added; 4 documents")


def test_beir_folder_leaves_nothing_to_choose(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    run_cli("export", index, "--to", "beir", "--out", tmp_path / "beir")
    done = run_cli("index", tmp_path / "beir", "--out", tmp_path / "i", "--encoder", "none", "--mask")
    refused(done, 2, "is a BEIR folder")
    table = write_lines(tmp_path / "f.jsonl", [{"q": "x", "a": "y"}])
    done = run_cli("index", table, "--out", tmp_path / "i", "--encoder", "none")
    refused(done, 2, "--question-column is missing")
    run_cli("index", tmp_path / "beir", "--out", tmp_path / "i", "--encoder", "none")
    refused(run_cli("add", tmp_path / "i", table), 2, "which column holds the question", "--question-column")


def test_trec_export_holds_judgements_and_the_run_of_a_layer(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    out = tmp_path / "trec"
    done = run_cli("export", index, "--to", "trec", "--out", out, "--layer", "sparse", "-k", "2")
    assert done.code == 0, done.err
    assert read_qrels(out / "qrels.txt") == {"q1": {"a": 1}, "q2": {"b": 1, "a": 1}}
    run = read_run(out / "run.sparse.trec")
    assert (run["q1"][0].doc_id, run["q2"][0].doc_id) == ("a", "b")
    assert max(map(len, run.values())) <= 2


def test_export_that_cannot_be_says_why_and_writes_nothing(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused(run_cli("export", index, "--to", "csv", "--out", out), 2, "allowed are beir, trec, dpr-json")
    refused(run_cli("export", index, "--to", "trec", "--out", out, "--layer", "dense"), 2, "needs vectors")
    refused(run_cli("export", index, "--to", "beir", "--out", out, "--layer", "sparse"), 2, "--layer is for")
    build_index(tmp_path / "bare", DOCUMENTS, IndexSettings())
    done = run_cli("export", tmp_path / "bare", "--to", "trec", "--out", out)
    refused(done, 2, "0 of 0 held-out questions")
    refused(run_cli("export", tmp_path / "bare", "--to", "trec", "--out", out, "--layer", "sparse"), 2, "no held-out")
    assert not out.exists()


def test_foreign_collection_is_evaluated_from_beir_and_from_trec_files_alike(
    run_cli: RunCli, index: Path, tmp_path: Path
) -> None:
    beir = tmp_path / "beir"
    run_cli("export", index, "--to", "beir", "--out", beir)
    of_beir = run_cli(
        "evaluate", index, "--queries", beir / "queries.jsonl", "--qrels", beir / "qrels/test.tsv", "--json"
    )
    assert of_beir.code == 0, of_beir.err
    rows = [{"query_id": e.query.query_id, "text": e.query.text, "domain": list(e.query.domain)} for e in EXAMPLES]
    queries = write_lines(tmp_path / "queries.jsonl", rows)
    write_qrels(tmp_path / "qrels.txt", {"q1": {"a": 1}, "q2": {"b": 1, "a": 1}})
    of_trec = run_cli("evaluate", index, "--queries", queries, "--qrels", tmp_path / "qrels.txt", "--json")
    assert json.loads(of_trec.out) == json.loads(of_beir.out)
    assert "1 questions have no judgement" in of_trec.err
    found = json.loads(of_trec.out)
    assert found["n"] == 2
    cells = {(row["name"], row["metric"]): row["mean"] for row in found["rows"]}
    # q1 finds its one document first; q2 finds b first and not a: recall (1 + 1/2) / 2, both ranks 1.
    assert cells["BM25 joint", "recall@3"] == pytest.approx(0.75)
    assert cells["BM25 joint", "MRR@10"] == pytest.approx(1.0)
    assert {row["metric"] for row in found["rows"]} == {"recall@3", "recall@10", "MRR@10", "nDCG@10"}
    assert {(c["a"], c["b"]) for c in found["comparisons"]} == {("BM25 joint", "BM25 plain")}
    text = run_cli("evaluate", index, "--queries", queries, "--qrels", tmp_path / "qrels.txt")
    assert "nDCG@10" in text.out
    assert "paired difference" in text.out


def test_documents_that_the_index_lacks_count_as_never_found(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    queries = write_lines(tmp_path / "q.jsonl", [{"query_id": "1", "text": "高血压能喝酒吗"}])
    write_qrels(tmp_path / "qrels", {"1": {"a": 1, "gone": 2, "irrelevant": 0}})
    done = run_cli("evaluate", index, "--queries", queries, "--qrels", tmp_path / "qrels", "--json")
    assert "1 relevant documents are not in the index and count as never found" in done.err
    cells = {(row["name"], row["metric"]): row["mean"] for row in json.loads(done.out)["rows"]}
    assert cells["BM25 plain", "recall@10"] == pytest.approx(0.5)


def test_foreign_files_that_do_not_fit_are_refused(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    queries = write_lines(tmp_path / "q.jsonl", [{"query_id": "1", "text": "发烧", "domain": ["内分泌"]}])
    write_qrels(tmp_path / "qrels", {"1": {"a": 1}})
    write_qrels(tmp_path / "other", {"2": {"a": 1}})
    both = ("--queries", queries, "--qrels", tmp_path / "qrels")
    refused(run_cli("evaluate", index, "--queries", queries), 2, "belong together")
    refused(run_cli("evaluate", index, *both, "--llm", "fake"), 2, "leave one out")
    refused(run_cli("evaluate", index, *both), 2, "no document carries the domain '内分泌'")
    assert run_cli("evaluate", index, *both, "--allow-unknown-domain").code == 0
    refused(run_cli("evaluate", index, *both[:3], tmp_path / "other"), 1, "1 queries are judged but have no text")
    refused(run_cli("evaluate", index, *both[:3], tmp_path / "none"), 1, "cannot be read")
    refused(run_cli("evaluate", index, "--queries", tmp_path / "none", *both[2:]), 1, "cannot be read")


def test_figures_of_a_run_are_the_same_in_pytrec_eval(run_cli: RunCli, shared: Path, tmp_path: Path) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    source = shared / "data" / "airline_queries.jsonl"
    rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    queries = write_lines(tmp_path / "queries.jsonl", [{"query_id": r["id"], "text": r["question"]} for r in rows])
    qrels = {row["id"]: {row["gold_id"]: 1} for row in rows}
    write_qrels(tmp_path / "qrels.txt", qrels)
    columns = ("--question-column", "question", "--answer-column", "answers", "--id-column", "id")
    index, run_path = tmp_path / "index", tmp_path / "run.trec"
    done = run_cli("index", shared / "data" / "airline_faq.jsonl", "--out", index, *columns, "--encoder", "none")
    assert done.code == 0, done.err
    searched = run_cli("search", index, "--queries", queries, "--layer", "sparse", "-k", "10", "--run", run_path)
    assert searched.code == 0, searched.err
    done = run_cli("evaluate", index, "--queries", queries, "--qrels", tmp_path / "qrels.txt", "--json")
    figures = {row["metric"]: row["mean"] for row in json.loads(done.out)["rows"] if row["name"] == "BM25 plain"}
    with run_path.open(encoding="utf-8") as file:
        run = pytrec_eval.parse_run(file)
    names = {"recall@3": "recall_3", "recall@10": "recall_10", "MRR@10": "recip_rank", "nDCG@10": "ndcg_cut_10"}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"recall.3,10", "recip_rank", "ndcg_cut.10"})
    values = evaluator.evaluate(run)
    assert len(rows) == 112
    for ours, theirs in names.items():
        # A question without hits is missing from the run and counts 0 here.
        mean = sum(values[q][theirs] if q in values else 0.0 for q in qrels) / len(qrels)
        assert figures[ours] == pytest.approx(mean, abs=1e-9), ours
    assert figures["recall@10"] > 0.8


def test_export_as_dpr_json_is_what_the_field_reads(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    out = tmp_path / "set"
    run_cli("export", index, "--to", "dpr-json", "--out", out)
    rows = [json.loads(line) for line in (out / "training-set.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows
    for row in rows:
        assert {"question", "answers", "positive_ctxs", "negative_ctxs", "hard_negative_ctxs"} <= set(row)
        texts = [context["text"] for context in row["positive_ctxs"]]
        assert all(any(answer in text for answer in row["answers"]) for text in texts)
    assert json.loads((out / "card.json").read_text(encoding="utf-8"))


def test_export_of_a_training_set_refuses_what_it_cannot_do(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    out = tmp_path / "set"
    asked = ("export", index, "--out", out, "--to")
    refused(run_cli(*asked, "dpr-json", "--first-layer", "dense"), 2, "allowed are joint, plain, none")
    refused(run_cli(*asked, "beir", "--first-layer", "plain"), 2, "--first-layer is for --to dpr-json")
    refused(run_cli("export", index, "--out", index, "--to", "dpr-json"), 2, "is an index")
    assert not out.exists()


def test_run_that_could_not_be_written_is_refused_before_the_search(
    run_cli: RunCli, index: Path, tmp_path: Path
) -> None:
    queries = write_lines(tmp_path / "q.jsonl", [{"query_id": "1", "text": "发烧怎么办"}])
    before = queries.read_bytes()
    asked = ("search", index, "--queries", queries, "--layer", "sparse", "--run")
    refused(run_cli(*asked, tmp_path / "no" / "run.trec"), 2, "there is no folder")
    refused(run_cli(*asked, queries), 2, "is the file of questions")
    assert queries.read_bytes() == before
