import json
import os
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_runner import RunCli

from dmnrag.cli import demo
from dmnrag.experiments.demo import Demo
from dmnrag.pipeline import Pipeline
from dmnrag.types import Example, Query

CSV = "\n".join(
    [
        "科室,标题,提问,回答,医院",
        "心血管内科,能喝酒吗,我血压高可以喝酒吗,高血压的人最好不要喝酒。,一院",
        "心血管内科,胸口疼,胸口一阵阵疼怎么办,马上去急诊做心电图。,一院",
        "儿科,发烧,孩子发烧三十九度怎么办,先物理降温再用退烧药。,二院",
        "儿科,咳嗽,宝宝夜里咳嗽怎么护理,抬高床头并保持空气湿润。,二院",
        "骨科,骨折,骨折以后多久可以走路,一般六到八周复查以后再走。,三院",
    ]
)
COLUMNS = ("--question-column", "标题,提问", "--answer-column", "回答", "--domain-column", "科室")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "问答.csv"
    path.write_text(CSV, encoding="gb18030")
    return path


@pytest.fixture
def folder(table: Path, tmp_path: Path, run_cli: RunCli) -> Path:
    out = tmp_path / "index"
    done = run_cli("index", table, "--out", out, *COLUMNS, "--metadata-column", "医院", "--encoder", "none")
    assert done.code == 0, done.err
    return out


def test_index_says_what_it_read_and_where_it_wrote(table: Path, tmp_path: Path, run_cli: RunCli) -> None:
    done = run_cli("index", table, "--out", tmp_path / "i", *COLUMNS, "--encoder", "none", "--json")
    found = json.loads(done.out)
    assert (found["documents"], found["generation"], found["examples"]) == (5, 1, 0)
    assert found["read"]["files"][0]["encoding"] == "gb18030"


def test_search_as_json_has_the_documented_shape(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("search", folder, "血压高喝酒", "--domain", "心血管内科", "-k", "2", "--json")
    found = json.loads(done.out)
    assert list(found) == ["question", "domain", "layer", "hits"]
    assert (found["question"], found["domain"], found["layer"]) == ("血压高喝酒", ["心血管内科"], "sparse")
    first = found["hits"][0]
    assert {"rank", "doc_id", "score", "domain", "question", "answers"} <= first.keys()
    assert first["answers"] == ["高血压的人最好不要喝酒。"]
    assert first["metadata"] == {"医院": "一院"}


def test_search_as_text_shows_the_hit_with_its_columns(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("search", folder, "孩子发烧")
    assert "先物理降温再用退烧药。" in done.out
    assert "医院: 二院" in done.out


def test_many_questions_give_a_line_each_and_a_trec_run(folder: Path, tmp_path: Path, run_cli: RunCli) -> None:
    queries = tmp_path / "queries.jsonl"
    rows = [{"query_id": "a", "text": "发烧", "domain": ["儿科"]}, {"query_id": "b", "text": "骨折走路", "domain": []}]
    queries.write_text("\n".join(json.dumps(r) for r in rows))
    done = run_cli("search", folder, "--queries", queries, "--run", tmp_path / "run.trec", "--json")
    assert [json.loads(line)["query_id"] for line in done.out.splitlines()] == ["a", "b"]
    lines = (tmp_path / "run.trec").read_text().splitlines()
    assert lines[0].split()[0] == "a"
    assert lines[0].split()[3] == "1"


def test_ask_as_json_has_the_documented_shape(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("ask", folder, "血压高喝酒", "--domain", "心血管内科", "--llm", "fake", "--json")
    found = json.loads(done.out)
    wanted = {"question", "domain", "layer", "hits", "method", "llm", "answer", "prompt", "citations", "timings_ms"}
    assert wanted <= found.keys()
    assert (found["method"], found["llm"]) == ("Dmn-ques-front", "fake")
    assert "高血压的人最好不要喝酒" in found["prompt"]


def test_ask_streams_the_answer_and_lists_its_documents(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("ask", folder, "骨折走路", "--llm", "fake")
    assert done.code == 0
    assert "六到八周" in done.out
    assert "method no-Dmn" in done.err


def test_ask_without_an_llm_says_which_there_are(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("ask", folder, "骨折走路")
    assert done.code == 2
    assert "--llm" in done.err


def test_evaluate_has_the_documented_shape(table: Path, tmp_path: Path, run_cli: RunCli) -> None:
    out = tmp_path / "i"
    run_cli("index", table, "--out", out, *COLUMNS, "--encoder", "none", "--test-size", "0.4", "--seed", "1")
    done = run_cli("evaluate", out, "--llm", "fake", "--json")
    found = json.loads(done.out)
    assert found["n"] == 2
    assert {"name", "metric", "mean", "low", "high", "n"} == found["rows"][0].keys()
    assert {"a", "b", "metric", "difference", "low", "high", "p"} <= found["comparisons"][0].keys()
    names = {row["name"] for row in found["rows"]}
    assert {"BM25 plain", "BM25 joint", "no-Dmn", "Dmn-ques-front"} <= names


def test_evaluate_without_held_out_questions_says_how_to_get_some(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("evaluate", folder)
    assert done.code == 2
    assert "--test-size" in done.err


def test_the_demo_ends_with_the_commands_that_ask_its_index_and_serve_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: RunCli
) -> None:
    """Without its minutes of work: what the demo computes is for the heavier tests."""
    example = Example(Query("q1", "血压高能喝酒吗", ("内科", "心血管内科")), ("少喝。",))
    figures = SimpleNamespace(to_dict=dict)
    nothing = SimpleNamespace(n_documents=0, examples=(), close=lambda: None)
    monkeypatch.setattr(demo, "prepare_index", lambda *_: nothing)
    monkeypatch.setattr(demo, "train_demo", lambda *_: None)
    monkeypatch.setattr(Pipeline, "open", lambda *_, **__: nothing)
    monkeypatch.setattr(demo, "run_demo", lambda *_: Demo(figures, figures, [(example, [])]))  # type: ignore[arg-type]
    monkeypatch.setattr(demo, "_text", lambda _: "figures")
    out = tmp_path / "out"
    out.mkdir()
    done = run_cli("demo", "medical", "--out", out)
    assert done.code == 0, done.err
    *_, ask, _, serve = [shlex.split(line) for line in done.out.splitlines()]
    assert ask[1:] == ["ask", str(out / "index"), "血压高能喝酒吗", "--domain", "心血管内科", "--llm", "builtin"]
    assert serve[1:] == ["serve", str(out / "index"), "--llm", "builtin"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("search", "INDEX", "？！"), 2, "holds no word"),
        (("search", "INDEX", "发烧", "-k", "0"), 2, "k is 0"),
        (("search", "INDEX", "发烧", "--layer", "hybrid"), 2, "needs vectors"),
        (("search", "INDEX", "发烧", "--layer", "hybird"), 2, "allowed are sparse"),
        (("search", "INDEX", "发烧", "--domain", "心内科"), 2, "心血管内科"),
        (("search", "INDEX"), 2, "either a question or --queries"),
        (("search", "INDEX", "发烧", "--domain-weight", "-1"), 2, "allowed are numbers from 0"),
        (("search", "no-such-folder", "发烧"), 1, "there is no folder"),
        (("info", "."), 1, "is not an index"),
        (("ask", "INDEX", "发烧", "--llm", "fake", "--method", "Dmn"), 2, "give one with --domain"),
        (("ask", "INDEX", "发烧", "--llm", "fake", "--temperature", "-1"), 2, "temperature is -1"),
        (("ask", "INDEX", "发烧", "--llm", "builtn"), 2, "Did you mean 'builtin'"),
        (("ask", "INDEX", "发烧", "--llm", "fake", "--template", "no-such"), 2, "cited"),
        (("demo", "finance"), 2, "medical, legal"),
        (("evaluate", "INDEX", "--limit", "-5"), 2, "--limit is -5"),
        (("evaluate", "INDEX", "-k", "0"), 2, "-k is 0"),
        (("evaluate", "INDEX", "--layer", "dense", "--limit", "9"), 2, "--limit, --layer act on answers"),
    ],
)
def test_wrong_use_is_one_clear_line(
    folder: Path, run_cli: RunCli, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = run_cli(*(folder if a == "INDEX" else a for a in arguments))
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_k_beyond_the_corpus_gives_what_there_is(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("search", folder, "发烧怎么办", "-k", "1000", "--json")
    assert 1 <= len(json.loads(done.out)["hits"]) <= 5


def test_info_counts_and_verifies(folder: Path, run_cli: RunCli) -> None:
    found = json.loads(run_cli("info", folder, "--json").out)
    assert found["documents"] == 5
    assert found["domains"][0] == {"domain": ["儿科"], "documents": 2}
    assert found["retrievers"] == {}
    done = run_cli("info", folder, "--verify")
    assert "hashes of" in done.err


def test_doctor_checks_an_index(folder: Path, run_cli: RunCli) -> None:
    assert run_cli("doctor", folder).code == 0
    (folder / "CURRENT").write_text("000099\n")
    done = run_cli("doctor", folder, "--json")
    assert done.code == 1
    assert not json.loads(done.out)["checks"][-1]["ok"]


def test_an_unexpected_fault_is_said_without_a_traceback(
    folder: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("dmnrag.cli.info.summarise", broken)
    done = run_cli("info", folder)
    assert (done.code, done.err) == (1, "error: unexpected RuntimeError: planted (DMNRAG_DEBUG=1 shows where)\n")


def test_bytes_that_are_no_text_still_give_valid_json(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("search", folder, "发烧\udcff", "--json")
    assert json.loads(done.out.encode())["question"] == "发烧?"


def test_a_run_follows_a_link_and_writes_to_a_pipe_without_replacing_it(
    folder: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    queries = tmp_path / "queries.jsonl"
    queries.write_text(json.dumps({"query_id": "a", "text": "发烧", "domain": []}))
    (tmp_path / "link").symlink_to(tmp_path / "target.trec")
    assert run_cli("search", folder, "--queries", queries, "--run", tmp_path / "link").code == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target.trec").read_text().startswith("a Q0")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run_cli("search", folder, "--queries", queries, "--run", pipe).code == 0
        assert os.read(reader, 1000).startswith(b"a Q0")
        assert pipe.is_fifo()
    finally:
        os.close(reader)


def test_domain_none_sets_the_domains_of_a_file_of_questions_aside(
    folder: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    queries = tmp_path / "queries.jsonl"
    queries.write_text(json.dumps({"query_id": "a", "text": "发烧", "domain": ["儿科"]}))
    asked = ("search", folder, "--queries", queries, "--json")
    assert json.loads(run_cli(*asked).out)["domain"] == ["儿科"]
    assert json.loads(run_cli(*asked, "--domain", "none").out)["domain"] == []
