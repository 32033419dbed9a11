"""The data card of `dmnrag index`, as text and as JSON, and what of it the index keeps."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmnrag.cli import reading
from dmnrag.data import ColumnMapping, ReadOptions
from dmnrag.index import Index

Run = Callable[..., Any]

POST = "我有高血压这两天女婿来的时候给我拿了些党参泡水喝您好高血压可以吃党参吗"
ROWS = [
    {"q": "头痛怎么办", "a": "多休息，或打13812345678", "d": "神经内科,内科", "u": "a@b.cn"},
    {"q": "咳嗽怎么办", "a": "多喝水", "d": "呼吸内科", "u": ""},
    {"q": "发烧怎么办", "a": "量体温", "d": "呼吸科", "u": ""},
    {"q": f"{POST}？", "a": "可以", "d": "内科(综合)", "u": ""},
    {"q": f"{POST}呢？", "a": "不可以", "d": "内科（综合）", "u": ""},
    {"q": "骨折怎么办", "a": "", "d": "骨科", "u": ""},
    {"q": "发烧怎么办", "a": "量体温", "d": "呼吸科", "u": ""},
]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    rows, labels = tmp_path / "rows.jsonl", tmp_path / "labels.csv"
    rows.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS), encoding="utf-8")
    labels.write_text('from,to\n呼吸内科,"内科,呼吸科"\n骨伤科,骨科\n', encoding="utf-8")
    return rows, labels


@pytest.fixture
def index(run_cli: Run, files: tuple[Path, Path], tmp_path: Path) -> Run:
    columns = ("--question-column", "q", "--answer-column", "a", "--domain-column", "d", "--metadata-column", "u")

    def _index(*more: object) -> Any:
        return run_cli("index", files[0], "--out", tmp_path / "out", *columns, "--encoder", "none", *more)

    return _index


def test_data_card_says_everything_that_happened(index: Run, files: tuple[Path, Path]) -> None:
    done = index("--domain-map", files[1], "--mask")
    assert done.code == 0
    lines = done.err.splitlines()
    for expected in (
        f"{files[0]}: 7 rows of JSON lines (encoding utf-8)",
        f"{files[0]}: 1 rows dropped, no answer (rows 6)",
        # Rows 4 and 5 are one post, rows 3 and 7 are equal: two groups of two.
        "6 documents of 7 rows; 1 repeat an earlier one exactly; 4 are near-identical posts in 2 groups,"
        " the largest of 2",
        "labels: 呼吸科 3, 内科 2, 内科（综合） 2, 神经内科 1",
        "1 labels put into normal spelling: '内科(综合)' to '内科（综合）'",
        "domain map of 2 entries: 1 labels mapped (呼吸内科 1)",
        "entries of the domain map whose label does not occur: '骨伤科'",
        "labels that the domain map does not name: 内科（综合）, 神经内科",
        "masked: 1 e-mail addresses, 0 identity numbers, 0 bank cards, 1 phone numbers",
    ):
        assert expected in lines
    # Questions have 5, 5, 5, 36, 37 and 5 characters: (5 * 4 + 36 + 37) / 6 = 15.5.
    assert any(line.startswith("characters in a question: 5 (shortest)") and "mean 16" in line for line in lines)


def test_labels_that_look_like_one_are_hinted_at(index: Run) -> None:
    assert "labels that look like one (--domain-map joins them): 呼吸科 / 呼吸内科" in index().err.splitlines()


def test_json_holds_the_same_and_the_index_keeps_it(index: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    done = index("--domain-map", files[1], "--mask", "--json")
    read = json.loads(done.out)["read"]
    assert read["dropped"] == [{"path": str(files[0]), "reason": "no answer", "count": 1, "rows": [6]}]
    assert read["reposts"] == {"groups": 2, "rows": 4, "largest": 2}
    assert read["labels"] == {"呼吸科": 3, "内科": 2, "内科（综合）": 2, "神经内科": 1}
    assert read["label_spellings"] == [{"found": "内科(综合)", "label": "内科（综合）", "count": 1}]
    assert read["domain_map"]["unused"] == {"骨伤科": ""}
    assert read["masked"] == {"email": 1, "identity_number": 0, "bank_card": 0, "phone": 1}
    assert read["question_characters"]["mean"] == 15.5
    assert (read["files"][0]["encoding"], read["exact_duplicates"], read["similar_labels"]) == ("utf-8", 1, [])
    with Index.open(tmp_path / "out") as opened:
        kept = opened.manifest.source
        document = opened.documents(["rows-0000001"])[0]
    assert kept["read"] == read
    assert (document.answers, document.metadata) == (("多休息，或打[电话]",), {"u": "[邮箱]"})
    # What a later addition needs to read alike: the values, not the path of the mapping.
    options = ReadOptions.from_dict(kept["reading"])
    assert options == ReadOptions(domain_map={"呼吸内科": ("内科", "呼吸科"), "骨伤科": ("骨科",)}, mask=True)


def test_masking_is_off_unless_asked_for(index: Run, tmp_path: Path) -> None:
    done = index("--json")
    assert json.loads(done.out)["read"]["masked"] is None
    with Index.open(tmp_path / "out") as opened:
        assert opened.documents(["rows-0000001"])[0].answers == ("多休息，或打13812345678",)


def test_labels_of_a_set_are_sorted_and_a_path_keeps_its_order(index: Run, tmp_path: Path) -> None:
    for kind, domain in (("path", ("神经内科", "内科")), ("set", ("内科", "神经内科"))):
        assert index("--domain-kind", kind).code == 0
        with Index.open(tmp_path / "out") as opened:
            assert domain in opened.domains
    refused = index("--domain-kind", "tree")
    assert refused.code == 2
    assert refused.err == "error: domain_kind is 'tree': allowed are path, set\n"


def test_reposts_are_found_once_also_for_the_split(index: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    find = reading.repost_groups
    monkeypatch.setattr(reading, "repost_groups", lambda *texts: calls.append(texts) or find(*texts))
    done = index("--test-size", "0.4", "--json")
    assert json.loads(done.out)["read"]["reposts"]["groups"] == 2
    assert len(calls) == 1


def test_reposts_stay_on_one_side_of_the_split(files: tuple[Path, Path]) -> None:
    sides = set()
    for seed in range(10):
        split, _ = reading.read_and_split([files[0]], ColumnMapping(("q",), ("a",)), ReadOptions(), 0.4, seed)
        held_out = {example.query.query_id for example in split.test}
        sides.add(frozenset(held_out & {"rows-0000004", "rows-0000005"}))
    assert sides == {frozenset(), frozenset({"rows-0000004", "rows-0000005"})}


def test_reposts_of_many_rows_are_only_looked_for_when_something_is_held_out(
    index: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_REPOSTS_ALWAYS", 5)
    assert "re-posts were not looked for" in index().err
    assert json.loads(index("--json").out)["read"]["reposts"] is None
    assert json.loads(index("--json", "--test-size", "0.4").out)["read"]["reposts"]["groups"] == 2


def test_bad_domain_map_is_refused_with_its_row_before_anything_is_written(
    index: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    files[1].write_text("from,to\na,b\na,c\n")
    done = index("--domain-map", files[1])
    assert (done.code, done.out) == (1, "")
    assert done.err == f"error: {files[1]}, row 3: 'a' becomes 'c' here and 'b' in row 2; keep one of them\n"
    assert not (tmp_path / "out").exists()
