"""`dmnrag calibrate`, and what `ask` makes of it."""

import json
from pathlib import Path

import pytest
from cli_runner import RunCli

from dmnrag.data import load_sample
from dmnrag.index import IndexSettings, build_index, update_index

FOREIGN = "qwxz vbnk"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refusal") / "index"
    documents, examples = load_sample("medical")
    build_index(folder, documents, IndexSettings(), examples=examples, with_domain_model=False)
    return folder


def test_calibrated_index_refuses_and_can_be_told_not_to(built: Path, run_cli: RunCli) -> None:
    question = load_sample("medical")[0][0].question
    before = json.loads(run_cli("ask", built, FOREIGN, "--llm", "fake", "--json").out)
    assert before["evidence"] is None
    assert before["refused"] is False

    done = run_cli("calibrate", built, "--limit", "120", "--json")
    assert done.code == 0, done.err
    calibrated = json.loads(done.out)
    assert (calibrated["folder"], calibrated["layer"], calibrated["k"]) == (str(built), "sparse", 3)

    refused = json.loads(run_cli("ask", built, FOREIGN, "--llm", "fake", "--json").out)
    assert refused["refused"] is True
    assert refused["evidence"]["enough"] is False
    assert refused["evidence"]["score"] < refused["evidence"]["threshold"] == calibrated["threshold"]
    assert "is not enough to answer this question" in refused["answer"]

    shown = run_cli("ask", built, FOREIGN, "--llm", "fake")
    assert shown.code == 0
    assert "(evidence score 0." in shown.out
    assert "--answer-anyway" in shown.err

    answered = json.loads(run_cli("ask", built, question, "--llm", "fake", "--json").out)
    assert answered["evidence"]["enough"] is True
    assert answered["refused"] is False
    for option in ("--answer-anyway", "--no-refusal"):
        told = json.loads(run_cli("ask", built, FOREIGN, "--llm", "fake", "--json", option).out)
        assert told["evidence"] is None
        assert told["refused"] is False
        assert told["llm"] == "fake"

    other_k = run_cli("ask", built, FOREIGN, "--llm", "fake", "-k", "1", "--json")
    assert json.loads(other_k.out)["evidence"] is None
    assert "calibrated for layer sparse and k from 3 on" in other_k.err

    update_index(built, remove=["med-248"])
    stale = run_cli("ask", built, FOREIGN, "--llm", "fake", "--json")
    assert json.loads(stale.out)["refused"] is True
    assert "has changed since it was calibrated" in stale.err


def test_calibrate_shows_a_table(tmp_path: Path, run_cli: RunCli) -> None:
    documents, _ = load_sample("legal")
    build_index(tmp_path / "i", documents, IndexSettings(), with_domain_model=False)
    done = run_cli("calibrate", tmp_path / "i", "--limit", "120")
    assert done.code == 0, done.err
    assert "with evidence" in done.out
    assert "95 % intervals" in done.out
    assert done.out.splitlines()[3].startswith("all ")


def test_calibrate_without_enough_documents_leaves_the_index_as_it_was(tmp_path: Path, run_cli: RunCli) -> None:
    documents, _ = load_sample("legal")
    build_index(tmp_path / "i", documents[:5], IndexSettings(), with_domain_model=False)
    before = sorted(path.name for path in (tmp_path / "i").iterdir())
    done = run_cli("calibrate", tmp_path / "i")
    assert done.code == 1
    assert "too small to calibrate" in done.err
    assert sorted(path.name for path in (tmp_path / "i").iterdir()) == before
