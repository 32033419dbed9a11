"""`ask` infers the domain where none is named, `search` where it is asked to; what is said and given of it."""

import json
import shutil
from pathlib import Path

import pytest
from cli_runner import RunCli

from dmnrag.index import IndexSettings, build_index
from dmnrag.types import Document

WORDS = {("内科", "心血管内科"): "血压心跳胸闷", ("内科", "消化内科"): "胃酸腹泻呕吐", ("骨科",): "骨折扭伤关节"}
HEART = "血压高胸闷怎么办"
STRANGE = "wxyz flight"
FORMAT_1 = Path(__file__).parents[1] / "index" / "format-1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("inferred") / "index"
    rows = [
        Document(f"{domain[-1]}{n}", f"{words[n % 6]}{words}怎么办{n}", (f"{words}要注意{n}",), domain)
        for domain, words in WORDS.items()
        for n in range(20)
    ]
    build_index(made, rows, IndexSettings())
    return made


def test_ask_infers_the_domain_and_says_so(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("ask", folder, HEART, "--llm", "fake")
    assert done.code == 0
    first, last = done.err.splitlines()
    assert first.startswith("domain 内科 > 心血管内科 inferred (")
    assert first.endswith(" %)")
    assert last.startswith("method Dmn-ques-front, domain 内科 > 心血管内科, LLM fake")


def test_an_inferred_domain_answers_as_the_same_one_given(folder: Path, run_cli: RunCli) -> None:
    inferred = json.loads(run_cli("ask", folder, HEART, "--llm", "fake", "--domain", "auto", "--json").out)
    given = json.loads(run_cli("ask", folder, HEART, "--llm", "fake", "--domain", "心血管内科", "--json").out)
    found = inferred.pop("inferred")
    assert "inferred" not in given
    for changing in ("timings_ms", "tokens_per_second"):
        del inferred[changing], given[changing]
    assert inferred == given
    assert list(found) == ["probability", "abstained", "alternatives"]
    assert found["probability"] > 0.5
    assert found["abstained"] is False
    assert [label for label, _ in found["alternatives"]] == ["内科", "骨科"]


def test_where_none_is_probable_enough_the_plain_method_answers(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("ask", folder, STRANGE, "--llm", "fake", "--json")
    found = json.loads(done.out)
    assert (found["method"], found["domain"], found["inferred"]["abstained"]) == ("no-Dmn", [], True)
    assert done.err.startswith("no domain is probable enough (likeliest: ")
    assert "骨科" in done.err


def test_a_method_that_needs_a_domain_says_that_none_could_be_inferred(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("ask", folder, STRANGE, "--llm", "fake", "--method", "Dmn")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "no domain is probable enough (likeliest: " in done.err
    assert "give one with --domain" in done.err
    assert "--method no-Dmn" in done.err


def test_none_infers_nothing(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("ask", folder, HEART, "--llm", "fake", "--domain", "none", "--json")
    found = json.loads(done.out)
    assert (found["domain"], found["method"], "inferred" in found, done.err) == ([], "no-Dmn", False, "")


def test_search_infers_only_when_asked_to(folder: Path, run_cli: RunCli) -> None:
    done = run_cli("search", folder, HEART, "--json")
    assert ("inferred" in json.loads(done.out), done.err) == (False, "")
    done = run_cli("search", folder, HEART, "--domain", "AUTO", "--json")
    found = json.loads(done.out)
    assert list(found) == ["question", "domain", "inferred", "layer", "hits"]
    assert found["domain"] == ["内科", "心血管内科"]
    assert "domain 内科 > 心血管内科 inferred" in done.err


def test_of_many_questions_those_without_a_domain_are_inferred(folder: Path, tmp_path: Path, run_cli: RunCli) -> None:
    rows = [
        {"query_id": "a", "text": HEART, "domain": []},
        {"query_id": "b", "text": HEART, "domain": ["骨科"]},
        {"query_id": "c", "text": STRANGE, "domain": []},
    ]
    queries = tmp_path / "queries.jsonl"
    queries.write_text("\n".join(json.dumps(row) for row in rows))
    done = run_cli("search", folder, "--queries", queries, "--domain", "auto", "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [row["domain"] for row in found] == [["内科", "心血管内科"], ["骨科"], []]
    assert ["inferred" in row for row in found] == [True, False, True]
    assert done.err == "domain inferred for 1 of 2 questions that have none\n"
    found = [json.loads(line) for line in run_cli("search", folder, "--queries", queries, "--json").out.splitlines()]
    assert [row["domain"] for row in found] == [[], ["骨科"], []]


def test_an_older_index_says_the_cure_and_goes_on_without(tmp_path: Path, run_cli: RunCli) -> None:
    old = shutil.copytree(FORMAT_1, tmp_path / "old")
    done = run_cli("ask", old, "高血压", "--llm", "fake", "--layer", "sparse", "--json")
    found = json.loads(done.out)
    assert (done.code, found["domain"], "inferred" in found) == (0, [], False)
    assert done.err == (
        f"no domain is inferred: an older release built {old}; `dmnrag upgrade {old}` adds what it takes\n"
    )
    done = run_cli("upgrade", old)
    assert done.out == f"{old} infers domains from now on (generation 4)\n"
    done = run_cli("ask", old, "高血压", "--llm", "fake", "--layer", "sparse", "--json")
    assert "inferred" in json.loads(done.out)
    assert json.loads(run_cli("upgrade", old, "--json").out) == {
        "from_version": 1, "to_version": 1, "generation": 4, "domain_model": False,
    }  # fmt: skip


def test_info_says_how_good_inference_is(folder: Path, run_cli: RunCli) -> None:
    found = json.loads(run_cli("info", folder, "--json").out)["domain_model"]
    assert (found["labels"], found["documents"], found["threshold"]) == (4, 60, 0.5)
    assert list(found["held_out"]) == ["n", "accuracy", "coverage", "covered_accuracy"]
    assert "domain inference" in run_cli("info", folder).out
    assert "4 labels; on 60 held-out questions the likeliest is right in 100.0 %" in run_cli("info", folder).out


def test_info_shows_the_most_frequent_domains_and_counts_the_rest(tmp_path: Path, run_cli: RunCli) -> None:
    rows = [Document(f"d{n}", f"问题{n}", ("回答",), (f"科{n % 40:02d}",)) for n in range(60)]
    build_index(tmp_path / "i", rows, IndexSettings())
    shown = run_cli("info", tmp_path / "i").out
    assert "and 10 rarer ones (--json has all)" in shown
    assert ("科19" in shown, "科39" in shown) == (True, False)
    assert len(json.loads(run_cli("info", tmp_path / "i", "--json").out)["domains"]) == 40
    assert "none: no domain stands on enough documents" in shown


def test_info_of_an_index_without_domains_says_nothing_of_them(tmp_path: Path, run_cli: RunCli) -> None:
    build_index(tmp_path / "i", [Document("a", "退票", ("可以退。",))], IndexSettings())
    assert "domain inference" not in run_cli("info", tmp_path / "i").out
    assert json.loads(run_cli("info", tmp_path / "i", "--json").out)["domain_model"] is None
