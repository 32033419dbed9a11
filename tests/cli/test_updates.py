"""`add`, `remove`, `info` and `upgrade` as a person uses them."""

import json
from pathlib import Path

import pytest
from cli_runner import Outcome, RunCli

from dmnrag._io import writer_lock
from dmnrag.index import Index, upgrade
from dmnrag.types import Document

FIRST = "内科,能喝酒吗,血压高可以喝酒吗,高血压最好不要喝酒。"
CSV = f"科室,标题,提问,回答\n{FIRST}\n儿科,发烧,孩子发烧怎么办,先物理降温。\n"
COLUMNS = ("--question-column", "标题,提问", "--answer-column", "回答", "--domain-column", "科室")
MORE = "科室,标题,提问,回答\n骨科,骨折,骨折以后多久可以走路,六到八周复查以后再走。\n"


@pytest.fixture
def index(run_cli: RunCli, tmp_path: Path) -> Path:
    (tmp_path / "first.csv").write_text(CSV, encoding="gb18030")
    done = run_cli("index", tmp_path / "first.csv", "--out", tmp_path / "index", *COLUMNS, "--encoder", "fake")
    assert done.code == 0, done.err
    return tmp_path / "index"


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def documents(folder: Path) -> dict[str, Document]:
    with Index.open(folder, verify=True) as opened:
        return {document.doc_id: document for document in opened.all_documents()}


def refused(done: Outcome, code: int, *said: str) -> None:
    assert (done.code, done.out) == (code, "")
    *progress, last = done.err.splitlines()
    assert all(line.endswith(" done") for line in progress), done.err
    assert last.startswith("error: ")
    assert "unexpected" not in last
    for part in said:
        assert part in last


def test_added_file_is_read_as_the_index_was_built(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    done = run_cli("add", index, written(tmp_path / "more.csv", MORE))
    assert done.code == 0, done.err
    assert done.out == f"1 added; 3 documents in {index} (generation 2)\n"
    found = documents(index)["more-0000002"]
    # The title's characters all stand in the question, which therefore stands alone.
    assert (found.question, found.domain) == ("骨折以后多久可以走路", ("骨科",))
    hits = run_cli("search", index, "骨折走路", "--layer", "hybrid", "--json")
    assert json.loads(hits.out)["hits"][0]["doc_id"] == "more-0000002"
    assert json.loads(run_cli("info", index, "--json").out)["source"]["files"] == ["first.csv", "more.csv"]


def test_columns_and_reading_can_be_named_anew(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    path = tmp_path / "more.txt"
    path.write_bytes("问|答|科\n骨折多久能走|打 13800138000 问\n".replace("问\n", "问|骨科/外科\n").encode("utf-16"))
    options = ("--question-column", "问", "--answer-column", "答", "--domain-column", "科", "--delimiter", "|")
    done = run_cli("add", index, path, *options, "--encoding", "utf-16", "--domain-separators", "/", "--mask", "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert {k: answer[k] for k in ("generation", "added", "replaced", "removed", "documents")} == {
        "generation": 2,
        "added": 1,
        "replaced": 0,
        "removed": 0,
        "documents": 3,
    }
    assert answer["read"]["masked"]["phone"] == 1
    found = documents(index)["more-0000002"]
    assert found.domain == ("骨科", "外科")
    assert "138" not in found.answers[0]


def test_masking_stays_on_unless_switched_off(run_cli: RunCli, tmp_path: Path) -> None:
    first = written(tmp_path / "first.csv", CSV)
    run_cli("index", first, "--out", tmp_path / "i", *COLUMNS, "--encoder", "none", "--mask")
    more = written(tmp_path / "more.csv", MORE.replace("六到八周", "打 13800138000 问，六到八周"))
    assert run_cli("add", tmp_path / "i", more).code == 0
    assert "138" not in documents(tmp_path / "i")["more-0000002"].answers[0]
    assert run_cli("add", tmp_path / "i", more, "--replace", "--no-mask").code == 0
    assert "13800138000" in documents(tmp_path / "i")["more-0000002"].answers[0]


def test_ids_that_are_there_are_refused_unless_replaced(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    changed = written(tmp_path / "first.csv", CSV.replace("先物理降温。", "多喝水。"))
    refused(run_cli("add", index, changed), 1, "2 ids are in the index already", "first-0000002", "--replace")
    assert documents(index)["first-0000003"].answers == ("先物理降温。",)
    done = run_cli("add", index, changed, "--replace")
    assert done.out == f"2 replaced; 2 documents in {index} (generation 2)\n"
    assert documents(index)["first-0000003"].answers == ("多喝水。",)


def test_rows_of_the_held_out_split_are_left_out_counted_and_said(run_cli: RunCli, tmp_path: Path) -> None:
    rows = "".join(f"内科,题{n},第{n}个问题怎么办,第{n}个回答\n" for n in range(10))
    first = written(tmp_path / "first.csv", "科室,标题,提问,回答\n" + rows)
    run_cli("index", first, "--out", tmp_path / "i", *COLUMNS, "--encoder", "none", "--test-size", "0.3")
    with Index.open(tmp_path / "i") as opened:
        held_out = opened.examples[0]
    text = f"科室,标题,提问,回答\n内科,,{held_out.query.text}！,新的回答\n内科,,新的问题,{held_out.references[0]}\n"
    leaking = written(tmp_path / "more.csv", text)
    refused(run_cli("add", tmp_path / "i", leaking), 1, "all 2 documents", "held-out split")
    written(tmp_path / "more.csv", text + "内科,,另一个问题,另一个回答\n")
    done = run_cli("add", tmp_path / "i", leaking)
    assert "2 documents were left out" in done.err
    assert "more-0000002, more-0000003" in done.err
    assert done.out.startswith("1 added; 8 documents")
    again = json.loads(run_cli("add", tmp_path / "i", leaking, "--replace", "--json").out)
    assert again["left_out_for_leakage"] == ["more-0000002", "more-0000003"]


def test_wrong_file_changes_nothing(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    refused(run_cli("add", index, written(tmp_path / "x.csv", "a,b\n1,2\n")), 1, "x.csv has no column '标题'")
    refused(run_cli("add", tmp_path / "none", tmp_path / "x.csv"), 1, "there is no folder")
    refused(run_cli("add", index, tmp_path / "none.csv"), 1, "does not exist")
    assert len(documents(index)) == 2


def test_documents_are_removed_by_id_and_by_a_file_of_ids(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    run_cli("add", index, written(tmp_path / "more.csv", MORE))
    done = run_cli("remove", index, "first-0000002")
    assert done.out == f"1 removed; 2 documents in {index} (generation 3)\n"
    ids = written(tmp_path / "ids.txt", "\ufeffmore-0000002\n\n")
    assert json.loads(run_cli("remove", index, "--ids", ids, "--json").out)["removed"] == 1
    assert list(documents(index)) == ["first-0000003"]


def test_removing_what_cannot_be_removed_changes_nothing(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    refused(run_cli("remove", index), 2, "no id is given", "--ids")
    refused(run_cli("remove", index, "first-0000002", "nothing"), 1, "1 of 2 ids", "nothing was removed")
    refused(run_cli("remove", index, "first-0000002", "first-0000003"), 1, "without a document")
    refused(run_cli("remove", index, "--ids", tmp_path / "none.txt"), 1, "none.txt cannot be read")
    assert len(documents(index)) == 2


def test_two_writers_at_once_the_second_is_told_who_writes(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    with writer_lock(index):
        refused(run_cli("add", index, written(tmp_path / "m.csv", MORE)), 1, "is being written by process")
        refused(run_cli("remove", index, "first-0000002"), 1, "is being written by process")
        assert "process" in json.loads(run_cli("info", index, "--json").out)["lock_holder"]
        assert "being written by" in run_cli("info", index).out
    assert json.loads(run_cli("info", index, "--json").out)["lock_holder"] is None
    assert run_cli("remove", index, "first-0000002").code == 0


def test_info_shows_disk_use_former_generations_and_segments(run_cli: RunCli, index: Path, tmp_path: Path) -> None:
    run_cli("add", index, written(tmp_path / "more.csv", MORE))
    run_cli("remove", index, "first-0000002")
    found = json.loads(run_cli("info", index, "--json").out)
    assert found["segments"] == [
        {"name": "000", "n_documents": 2, "n_removed": 1},
        {"name": "001", "n_documents": 1, "n_removed": 0},
    ]
    of = {g["generation"]: g for g in found["disk"]["generations"]}
    assert list(of) == [2, 3]
    # Generation 2 has everything but its manifest in common with generation 3.
    manifest = (index / "generations" / "000002" / "manifest.json").stat().st_size
    assert of[2]["own_bytes"] == manifest
    on_disk = {p.stat().st_ino: p.stat().st_size for p in index.rglob("*") if p.is_file()}
    assert found["disk"]["bytes"] == sum(on_disk.values())
    text = run_cli("info", index).out
    assert "with former generations 2 (" in text
    assert "1 removed documents still in their files" in text


def test_upgrade_says_that_an_index_is_current(run_cli: RunCli, index: Path) -> None:
    assert "index format 1, the current one; nothing was to be done" in run_cli("upgrade", index).out
    found = json.loads(run_cli("upgrade", index, "--json").out)
    assert found == {"from_version": 1, "to_version": 1, "generation": 1, "domain_model": False}


def test_upgrade_of_an_older_format_says_what_it_did(
    run_cli: RunCli, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmnrag.index.manifest.FORMAT_VERSION", 2)
    monkeypatch.setitem(upgrade.STEPS, 1, lambda _folder, content: content)
    refused(run_cli("info", index), 1, "has index format 1", f"dmnrag upgrade {index}")
    assert "from index format 1 to 2 (generation 2)" in run_cli("upgrade", index).out
    assert run_cli("info", index, "--verify").code == 0
