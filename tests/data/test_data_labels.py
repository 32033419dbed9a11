"""Labels: normal spelling, a user's mapping, order, and hints."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.data import ColumnMapping, ReadOptions, ReadReport, normalise_label, read_documents, read_domain_map
from dmnrag.data.labels import similar_labels
from dmnrag.errors import ConfigError, DataError
from dmnrag.types import Domain

QAD = ColumnMapping(("q",), ("a",), ("d",))


def read(tmp_path: Path, cells: list[str], **options: object) -> tuple[list[Domain], ReadReport]:
    path = tmp_path / "f.jsonl"
    path.write_text("".join(json.dumps({"q": f"q{i}", "a": "a", "d": d}) + "\n" for i, d in enumerate(cells)))
    documents, report = read_documents([path], QAD, options=ReadOptions(**options))  # type: ignore[arg-type]
    return [d.domain for d in documents], report


def map_of(tmp_path: Path, content: str, name: str = "map.csv") -> dict[str, Domain]:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return dict(read_domain_map(path))


@pytest.mark.parametrize(
    ("label", "normal"),
    [
        ("物权（含房产）", "物权（含房产）"),
        ("物权 (含房产)", "物权（含房产）"),
        ("其他:未分类", "其他：未分类"),
        ("⼼ 内科", "心内科"),  # U+2F3C, the radical, as PDF files have it
        ("内\u200b科", "内科"),
        ("ＩＣＵ 病房", "ICU病房"),
        ("Surgery  （general）", "Surgery (general)"),
        ("Ear, Nose", "Ear, Nose"),
        ("ENT", "ENT"),
        ("\u200b", ""),
    ],
)
def test_a_label_has_one_spelling(label: str, normal: str) -> None:
    assert normalise_label(label) == normal


@given(st.text(max_size=12))
def test_normal_spelling_stays(label: str) -> None:
    assert normalise_label(normalise_label(label)) == normalise_label(label)


def test_spellings_are_joined_and_counted(tmp_path: Path) -> None:
    domains, report = read(tmp_path, ["物权（含房产）", "物权(含房产)", "物权 (含房产)", "物权(含房产)", "\u200b"])
    assert domains == [("物权（含房产）",)] * 4 + [()]
    assert report.label_work.normalised == {
        ("物权(含房产)", "物权（含房产）"): 2,
        ("物权 (含房产)", "物权（含房产）"): 1,
    }
    assert report.to_dict()["labels_normalised"] == 3


def test_real_labels_keep_their_names(shared: Path) -> None:
    for name in ("medical_departments", "legal_casetypes"):
        path = shared / "data" / f"{name}.jsonl"
        _, report = read_documents([path], ColumnMapping(("question",), ("answers",), ("domain",)))
        assert report.label_work.normalised == {}


def test_path_keeps_the_order_of_the_data_and_set_is_sorted(tmp_path: Path) -> None:
    cells = ["内科,呼吸科", "呼吸科,内科,呼吸科"]
    assert read(tmp_path, cells)[0] == [("内科", "呼吸科"), ("呼吸科", "内科")]
    # U+5185 before U+547C.
    assert read(tmp_path, cells, domain_kind="set")[0] == [("内科", "呼吸科")] * 2
    with pytest.raises(ConfigError, match="allowed are path, set"):
        ReadOptions(domain_kind="tree")  # type: ignore[arg-type]


def test_mapping_renames_lengthens_and_drops_labels_once(tmp_path: Path) -> None:
    mapping = {"呼吸内科": ("内科", "呼吸科"), "其他": (), "a": ("b",), "b": ("c",)}
    cells = ["呼吸内科", "内科,呼吸内科", "其他", "外科,其他", "a,b"]
    domains, report = read(tmp_path, cells, domain_map=mapping)
    assert domains == [("内科", "呼吸科"), ("内科", "呼吸科"), (), ("外科",), ("b", "c")]
    work = report.label_work.mapping
    assert work is not None
    assert work.mapped == {"呼吸内科": 2, "其他": 2, "a": 1, "b": 1}
    assert (work.unused, work.unmapped) == ({}, {"外科": 1})
    assert report.without_label == 1


def test_entries_that_match_no_label_are_reported_with_the_nearest(tmp_path: Path) -> None:
    mapping = {"呼吸内": ("呼吸科",), "儿科": ("小儿科",), "呼吸科": ("呼吸科",)}
    _, report = read(tmp_path, ["呼吸内科", "呼吸科"], domain_map=mapping)
    # Ratio of 呼吸内 and 呼吸内科: 2 * 3 / 7; 儿科 shares one of two characters with 呼吸科: 2 * 1 / 5.
    assert report.label_work.to_dict()["domain_map"] == {
        "entries": 3,
        "labels_mapped": 0,
        "mapped": {},
        "unused": {"呼吸内": "呼吸内科", "儿科": ""},
        "unmapped": {"呼吸内科": 1},
    }


def test_mapping_without_a_domain_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("q,a\nx,y\n")
    with pytest.raises(ConfigError, match="no domain column"):
        read_documents([path], ColumnMapping(("q",), ("a",)), options=ReadOptions(domain_map={"a": ("b",)}))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("map.csv", 'from,to\n呼吸内科,"内科,呼吸科"\n其他,\n\n'),
        ("map.tsv", "to\tfrom\tnote\n内科>呼吸科\t 呼吸内科\tx\n\t其他\t\n"),
        ("map.json", '[{"from": "呼吸内科", "to": ["内科", "呼吸科"]}, {"from": "其他", "to": null}]'),
        ("map.json", '{"呼吸内科": "内科/呼吸科", "其他": ""}'),
        ("map.jsonl", '{"from": "呼吸内科", "to": "内科,呼吸科"}\n{"from": "其他"}\n'),
    ],
)
def test_mapping_files_of_several_formats_say_the_same(tmp_path: Path, name: str, content: str) -> None:
    assert map_of(tmp_path, content, name) == {"呼吸内科": ("内科", "呼吸科"), "其他": ()}


def test_mapping_is_compared_and_given_in_normal_spelling(tmp_path: Path) -> None:
    content = "from,to\n物权 (含房产),(房产)\n"
    assert map_of(tmp_path, content) == {"物权（含房产）": ("（房产）",)}


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("map.csv", "form,to\na,b\n", r"no column 'from'. Did you mean 'form'\?"),
        ("map.csv", "from,two\na,b\n", r"no column 'to'. Did you mean 'two'\?"),
        ("map.json", '[{"from": "a", "two": "b"}]', "no column 'to'"),
        ("map.csv", "from,to\na,b\na,b\na,c\n", "row 4: 'a' becomes 'c' here and 'b' in row 2"),
        ("map.csv", "from,to\na,b\na,\n", "row 3: 'a' becomes nothing here and 'b' in row 2"),
        ("map.csv", "from,to\na,b\n,c\n", "row 3: 'to' is 'c' and 'from' is empty"),
        ("map.csv", "from,to\na,b,c\n", "row 2: more cells than the header has columns; each row is"),
        ("map.csv", "from,to\n", "maps no label"),
        ("map.csv", "", "is empty"),
        ("map.json", '[{"from": ["a", "b"], "to": "c"}]', "row 1, 'from': one text is needed"),
        ("map.json", '[{"from": "a", "to": [["c"]]}]', "row 1, 'to': a list of texts is needed"),
        ("map.json", "[5]", "row 1: not a JSON object"),
    ],
)
def test_mapping_file_that_cannot_be_used_names_the_row(tmp_path: Path, name: str, content: str, match: str) -> None:
    with pytest.raises(DataError, match=match):
        map_of(tmp_path, content, name)


def test_mapping_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a file"):
        read_domain_map(tmp_path)


def test_labels_with_a_little_put_in_are_hinted_at() -> None:
    labels = (
        "呼吸科",
        "呼吸内科",
        "心内科",
        "心血管内科",
        "神经内科",
        "神经外科",
        "小儿心血管内科",
        "小儿心血管外科",
        "ENT",
        "ent",
    )
    assert similar_labels(dict.fromkeys(labels, 1)) == (("呼吸科", "呼吸内科"), ("ENT", "ent"))
    assert similar_labels({}) == ()


def test_read_options_survive_the_manifest(tmp_path: Path) -> None:
    options = ReadOptions("gb18030", "|", "表", "+", {"a": ("b", "c"), "d": ()}, "set", True)
    assert ReadOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options
    assert ReadOptions.from_dict({"encoding": "big5"}) == ReadOptions("big5")
    with pytest.raises(ConfigError, match="colour"):
        ReadOptions.from_dict({"colour": "red"})
