"""`dmnrag feedback`: what a service kept, out as new pairs and gone on request."""

import json
from pathlib import Path
from typing import Any

import pytest
from trust_events import add
from typer.testing import CliRunner

from dmnrag.cli.feedback import feedback
from dmnrag.cli.main import app
from dmnrag.errors import ConfigError
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.service.store import Store, StoreError
from dmnrag.types import Document


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite"
    with Store.open(path) as opened:
        add(opened, "a1", "desk", "血压高能喝酒吗", "最好不要[1]，见 [2] 和[9]。", generation=3)
        opened.add_feedback("a1", "desk", good=True, comment="有用")
        add(opened, "a2", "web", "孩子发烧怎么办", "物理降温 [1]。", domain=("儿科",), method="no-Dmn")
        opened.add_feedback("a2", "web", good=False)
        add(opened, "a3", "web", "股票怎么买", "没有足够的依据。", domain=(), outcome="refused")
    return path


def run(*arguments: object) -> str:
    """stdout of a run that succeeds; errors of the package are raised."""
    done = CliRunner().invoke(app, ["feedback", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def exported(store: Path, *arguments: object) -> list[dict[str, Any]]:
    out = store.parent / "pairs.jsonl"
    run("export", store, "--out", out, *arguments)
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def test_export_writes_pairs_with_what_a_reviewer_wants_to_know(store: Path) -> None:
    first, second, third = exported(store)
    assert first.pop("asked_at")
    assert first == {
        "id": "a1", "question": "血压高能喝酒吗", "answer": "最好不要，见 [2] 和[9]。",
        "domain": ["内科", "心血管内科"], "vote": "good", "comment": "有用",
        "outcome": "answered", "doc_ids": ["d1"], "generation": 3,
    }  # fmt: skip
    assert (second["answer"], second["vote"], second["generation"]) == ("物理降温。", "bad", None)
    assert (third["answer"], third["vote"], third["outcome"]) == ("", None, "refused")


@pytest.mark.parametrize(("only", "ids"), [("good", ["a1"]), ("bad", ["a2"]), ("all", ["a1", "a2", "a3"])])
def test_export_by_vote(store: Path, only: str, ids: list[str]) -> None:
    assert [row["id"] for row in exported(store, "--only", only)] == ids


def test_another_choice_is_refused(store: Path) -> None:
    with pytest.raises(ConfigError, match="allowed are all, good, bad"):
        run("export", store, "--out", store.parent / "x", "--only", "best")
    assert not (store.parent / "x").exists()


def test_the_reviewed_file_goes_into_an_index(store: Path, tmp_path: Path) -> None:
    build_index(tmp_path / "index", [Document("d1", "骨折多久能走", ("六到八周。",), ("骨科",))], IndexSettings())
    exported(store)
    columns = ("--question-column", "question", "--answer-column", "answer", "--domain-column", "domain")
    done = CliRunner().invoke(
        app,
        ["add", str(tmp_path / "index"), str(tmp_path / "pairs.jsonl"), *columns, "--id-column", "id"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    with Index.open(tmp_path / "index") as index:
        documents = {document.doc_id: document for document in index.all_documents()}
    assert set(documents) == {"d1", "a1", "a2"}  # the refused question has no answer yet
    assert documents["a1"] == Document("a1", "血压高能喝酒吗", ("最好不要，见 [2] 和[9]。",), ("内科", "心血管内科"))
    assert documents["a2"] == Document("a2", "孩子发烧怎么办", ("物理降温。",), ("儿科",))


def test_show_counts(store: Path) -> None:
    assert json.loads(run("show", store, "--json")) == {
        "questions": 3, "good": 1, "bad": 1,
        "domains": [
            {"domain": [], "questions": 1, "good": 0, "bad": 0},
            {"domain": ["儿科"], "questions": 1, "good": 0, "bad": 1},
            {"domain": ["内科", "心血管内科"], "questions": 1, "good": 1, "bad": 0},
        ],
        "methods": [
            {"method": "Dmn-ques-front", "questions": 2, "good": 1, "bad": 0},
            {"method": "no-Dmn", "questions": 1, "good": 0, "bad": 1},
        ],
        "outcomes": [
            {"outcome": "answered", "questions": 2, "good": 1, "bad": 1},
            {"outcome": "refused", "questions": 1, "good": 0, "bad": 0},
        ],
    }  # fmt: skip
    text = run("show", store)
    assert "内科 > 心血管内科" in text
    assert "no domain" in text


def test_show_of_an_empty_store(tmp_path: Path) -> None:
    Store.open(tmp_path / "store.sqlite").close()
    assert "questions" in run("show", tmp_path / "store.sqlite")


def test_delete_by_owner_and_by_answer(store: Path) -> None:
    assert run("delete", store, "--owner", "web") == "2 answers deleted\n"
    assert run("delete", store, "--answer", "a1") == "1 answers deleted\n"
    assert run("delete", store, "--answer", "a1") == "0 answers deleted\n"
    assert json.loads(run("show", store, "--json"))["questions"] == 0


@pytest.mark.parametrize("options", [(), ("--owner", "web", "--answer", "a1")])
def test_delete_wants_one_of_the_two(store: Path, options: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="either --owner NAME or --answer ID"):
        run("delete", store, *options)
    assert json.loads(run("show", store, "--json"))["questions"] == 3


def test_an_index_folder_stands_for_the_store_in_it(store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"holds no service\.sqlite"):
        run("show", folder)
    store.rename(folder / "service.sqlite")
    assert json.loads(run("show", folder, "--json"))["questions"] == 3


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no store"):
        run("show", tmp_path / "none.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question,answer\n" * 300, encoding="utf-8")
    with pytest.raises(StoreError, match="not a database"):
        run("show", tmp_path / "a.csv")


def test_the_group_has_three_commands() -> None:
    assert {command.callback.__name__ for command in feedback.registered_commands if command.callback} == {
        "delete", "export", "show",
    }  # fmt: skip
