"""People and LLMs as judges: blind sheets, marks, agreement, and both orders of presentation."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_builder import cell, write

from dmnrag.errors import ConfigError, DataError, EndpointError
from dmnrag.experiments.records import Cell
from dmnrag.experiments.reporting.judge import judge_pairs, judge_section, verdict
from dmnrag.experiments.reporting.pairing import Item, chosen_names, items
from dmnrag.experiments.reporting.raters import key_items, rate, ratings_section, read_marks, write_sheet
from dmnrag.experiments.reporting.study import Study, read_study
from dmnrag.llm import FakeGenerator
from dmnrag.types import Example, Prompt, Query

NAMES = ("alpha-rag", "beta-rag")


def pairs(n: int) -> list[Item]:
    return [
        Item(
            "medical",
            Example(Query(f"q{i}", f"问题{i}", ("内科",)), ("答",), cluster=f"c{i}"),
            f"c{i}",
            f"新{i}",
            f"旧{i}",
        )
        for i in range(n)
    ]


def sheet(folder: Path, n: int = 6) -> tuple[list[dict[str, str]], dict[str, object]]:
    write_sheet(folder, pairs(n), NAMES)
    text = (folder / "sheet.csv").read_text(encoding="utf-8-sig")
    return list(csv.DictReader(io.StringIO(text))), json.loads((folder / "key.json").read_text(encoding="utf-8"))


def test_the_sheet_is_blind_and_both_sides_are_used_equally(tmp_path: Path) -> None:
    rows, key = sheet(tmp_path)
    sheet_name = rows[0]["item"].removesuffix("-1")
    assert re.fullmatch(r"s[0-9a-f]{6}", sheet_name)
    assert [row["item"] for row in rows] == [f"{sheet_name}-{i}" for i in range(1, 7)] == key_items(key)
    assert all({row["answer_1"][0], row["answer_2"][0]} == {"新", "旧"} for row in rows)
    assert sum(row["answer_1"].startswith("新") for row in rows) == 3
    for name in ("sheet.csv", "sheet.html"):
        text = (tmp_path / name).read_text(encoding="utf-8-sig")
        assert not any(system in text for system in NAMES)
    shown = {entry["item"]: entry["answers"][0] for entry in key["items"]}  # type: ignore[attr-defined]
    for row in rows:
        assert shown[row["item"]] == NAMES[not row["answer_1"].startswith("新")]


def test_a_text_that_looks_like_a_formula_or_markup_is_harmless(tmp_path: Path) -> None:
    evil = Item("m", Example(Query("q", "=cmd()<script>x</script>"), ("r",)), "c", "=1+1", "<b>")
    write_sheet(tmp_path, [evil], NAMES)
    (row,) = csv.DictReader(io.StringIO((tmp_path / "sheet.csv").read_text(encoding="utf-8-sig")))
    assert row["question"].startswith("'=")
    assert (tmp_path / "sheet.html").read_text().count("<script>") == 1  # its own


def marked(folder: Path, name: str, rows: list[dict[str, str]], better: list[str], domain: list[str]) -> Path:
    path = folder / name
    with path.open("w", newline="", encoding="utf-8-sig") as out:
        writer = csv.DictWriter(out, ["item", "better", "domain"])
        writer.writeheader()
        for row, one, other in zip(rows, better, domain, strict=True):
            writer.writerow({"item": row["item"], "better": one, "domain": other})
    return path


def for_new(rows: list[dict[str, str]], wanted: list[int]) -> list[str]:
    """Marks that prefer the new system (1), the old one (-1) or neither (0)."""
    marks = []
    for row, sign in zip(rows, wanted, strict=True):
        first_is_new = row["answer_1"].startswith("新")
        marks.append("0" if sign == 0 else "1" if (sign == 1) == first_is_new else "2")
    return marks


def test_marks_are_read_against_the_key(tmp_path: Path) -> None:
    rows, key = sheet(tmp_path)
    better = for_new(rows, [1, 1, 1, 1, -1, 0])
    path = marked(tmp_path, "a.csv", rows, better, [""] * 6)
    (found,) = rate(key, [read_marks(path, key_items(key))])
    preference = found.preference
    assert (preference.first, preference.second) == (pytest.approx(4 / 6), pytest.approx(1 / 6))
    assert preference.net.difference == pytest.approx(0.5)  # (4 - 1) / 6
    assert (found.raters, found.cohen, found.krippendorff) == (1, None, None)


def test_marks_of_another_sheet_are_refused(tmp_path: Path) -> None:
    rows, _ = sheet(tmp_path / "a")
    other_rows, key = sheet(tmp_path / "b", 5)
    path = marked(tmp_path, "a.csv", rows, ["1"] * 6, ["0"] * 6)
    names = [found[0]["item"].removesuffix("-1") for found in (rows, other_rows)]
    with pytest.raises(DataError, match=re.escape(f"of another sheet ({names[0]}) than the key of this folder")):
        read_marks(path, key_items(key))
    numbers = marked(tmp_path, "old.csv", [{"item": "1"}], ["1"], ["0"])
    with pytest.raises(DataError, match=r"of another sheet \(without a name\)"):
        read_marks(numbers, key_items(key))


def test_other_answers_or_another_order_are_another_sheet(tmp_path: Path) -> None:
    made = pairs(6)
    changed = [*made[:5], replace(made[5], a="另一个回答")]
    names = set()
    for number, (chosen, seed) in enumerate([(made, 0), (changed, 0), (made, 1)]):
        write_sheet(tmp_path / str(number), chosen, NAMES, seed=seed)
        key = json.loads((tmp_path / str(number) / "key.json").read_text(encoding="utf-8"))
        names.add(key["items"][0]["item"])
    assert len(names) == 3


def test_the_key_of_another_sheet_is_not_overwritten(tmp_path: Path) -> None:
    sheet(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=r"key\.json belongs to another sheet.*--out"):
        write_sheet(tmp_path, pairs(5), NAMES)
    (tmp_path / "key.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="belongs to another sheet"):
        write_sheet(tmp_path, pairs(6), NAMES)
    (tmp_path / "key.json").write_bytes(before["key.json"])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_same_sheet_again_leaves_a_filled_one_and_brings_back_what_is_missing(tmp_path: Path) -> None:
    sheet(tmp_path)
    page = (tmp_path / "sheet.html").read_bytes()
    (tmp_path / "sheet.csv").write_text("filled", encoding="utf-8")
    (tmp_path / "sheet.html").unlink()
    write_sheet(tmp_path, pairs(6), NAMES)
    assert (tmp_path / "sheet.csv").read_text(encoding="utf-8") == "filled"
    assert (tmp_path / "sheet.html").read_bytes() == page


def test_agreement_of_two_raters_by_hand(tmp_path: Path) -> None:
    rows, key = sheet(tmp_path, 4)
    one = marked(tmp_path, "a.csv", rows, for_new(rows, [1, 1, -1, -1]), [""] * 4)
    two = marked(tmp_path, "b.csv", rows, for_new(rows, [1, 1, -1, 1]), [""] * 4)
    (found,) = rate(key, [read_marks(p, key_items(key)) for p in (one, two)])
    # They agree on 3 of 4; by chance on 2/4 * 3/4 + 2/4 * 1/4 = 1/2: kappa (3/4 - 1/2) / (1/2) = 1/2.
    assert found.cohen == pytest.approx(0.5)
    # Nominal alpha: 8 values, 5 of +1 and 3 of -1. Observed disagreement 1/4; expected 2 * 5 * 3 / (8 * 7) = 15/28.
    assert found.krippendorff == pytest.approx(1 - (1 / 4) / (15 / 28))
    # An item's value is the mean of its raters: 1, 1, -1, 0.
    assert found.preference.net.difference == pytest.approx(0.25)


def test_three_raters_with_gaps_and_both_questions(tmp_path: Path) -> None:
    rows, key = sheet(tmp_path, 4)
    files = [
        marked(tmp_path, "a.csv", rows, for_new(rows, [1, 1, 1, 1]), for_new(rows, [1, 0, 1, -1])),
        marked(tmp_path, "b.csv", rows, [*for_new(rows, [1, 1, 1, 1])[:3], ""], for_new(rows, [1, 0, 1, -1])),
        marked(tmp_path, "c.csv", rows, for_new(rows, [1, 1, 1, 1]), for_new(rows, [1, 0, 1, -1])),
    ]
    better, domain = rate(key, [read_marks(p, key_items(key)) for p in files])
    assert better.krippendorff is None  # everyone says the same of everything: chance cannot be told from it
    assert domain.krippendorff == pytest.approx(1)
    assert better.cohen is domain.cohen is None
    assert better.preference.net.p_holm is not None
    (table,) = ratings_section([better, domain], NAMES).tables
    assert [row[0] for row in table.rows] == ["Which answer is better?", "Which answer keeps closer to the domain?"]
    assert table.rows[0][-3:] == ("3", "–", "–")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("item,better,domain\nsab-1,3,0\n", "row 2: better is '3': allowed are 1, 2, and 0"),
        ("item,better,domain\nsab-9,1,0\n", "item 'sab-9' is not on the sheet"),
        ("item,better,domain\nsab-1,1,0\nsab-1,1,0\n", "row 3: item 'sab-1' stands there twice"),
        ("item,better\nsab-1,1\n", "column 'domain' is missing"),
    ],
)
def test_marks_that_cannot_be_used_name_the_row(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "marks.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(problem)):
        read_marks(path, ["sab-1", "sab-2"])


def test_marks_in_another_encoding_are_refused_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "marks.csv").write_bytes("item,better,domain,comment\n1,1,0,好\n".encode("gb18030"))
    with pytest.raises(DataError, match="save the sheet as CSV UTF-8"):
        read_marks(tmp_path / "marks.csv", ["1"])


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("1", 1),
        ("Answer 2 is better", 2),
        ("0", 0),
        ("<think>1 or 2? 1</think>2", 2),
        ("<think>1", None),
        ("neither", None),
    ],
)
def test_a_verdict_is_read_from_a_reply(reply: str, found: int | None) -> None:
    assert verdict(reply) == found


def first_answer(prompt: Prompt) -> str:
    return prompt.user.split("Answer 1: ")[1].split("\n")[0]


def test_a_judge_that_favours_a_place_decides_nothing(tmp_path: Path) -> None:
    found = judge_pairs(pairs(10), NAMES, FakeGenerator(["1"]), tmp_path / "verdicts.jsonl")
    assert (found.preference.first, found.preference.second) == (0, 0)
    assert (found.consistent, found.first_place) == (0, 1)
    assert found.preference.net.verdict == "not shown"


def test_a_judge_that_favours_a_system_is_asked_in_both_orders(tmp_path: Path) -> None:
    judge = FakeGenerator(lambda prompt: "1" if first_answer(prompt).startswith("新") else "2")
    found = judge_pairs(pairs(10), NAMES, judge, tmp_path / "verdicts.jsonl")
    assert len(judge.prompts) == 20
    assert (found.preference.first, found.consistent, found.first_place) == (1, 1, 0.5)
    assert found.preference.net.verdict == "higher"
    (table,) = judge_section(found).tables
    assert table.rows[0][6] == "alpha-rag preferred"


def test_replies_without_a_verdict_are_left_out_and_counted(tmp_path: Path) -> None:
    judge = FakeGenerator(lambda prompt: "no idea" if "问题0" in prompt.user else "0")
    found = judge_pairs(pairs(4), NAMES, judge, tmp_path / "verdicts.jsonl")
    assert (found.unusable, found.preference.net.n) == (1, 3)
    with pytest.raises(DataError, match="named no verdict in any reply"):
        judge_pairs(pairs(2), NAMES, FakeGenerator(["?"]), tmp_path / "other.jsonl")


def test_a_judge_that_dies_keeps_what_it_said_and_is_asked_only_for_the_rest(tmp_path: Path) -> None:
    kept = tmp_path / "verdicts.jsonl"
    dying = FakeGenerator(["0"], failures={9: EndpointError("down")})
    with pytest.raises(EndpointError):
        judge_pairs(pairs(10), NAMES, dying, kept)
    again = FakeGenerator(["0"])
    judge_pairs(pairs(10), NAMES, again, kept)
    assert len(again.prompts) == 12  # a batch of 8 was kept of 20
    third = FakeGenerator(["0"])
    judge_pairs(pairs(10), NAMES, third, kept)
    assert third.prompts == []


def study(folder: Path) -> Study:
    def texts(one: Cell, example: Example) -> str:
        return "一样的回答" if example.query.query_id == "q0" else f"{one.row} 的回答"

    return read_study(write(folder, [cell("no-Dmn"), cell("Dmn-ques-front")], lambda _: 0.5, texts=texts, n=8))


def test_pairs_are_drawn_from_questions_that_were_answered_differently(tmp_path: Path) -> None:
    made = study(tmp_path)
    names = chosen_names(made, None)
    assert names == ("Dmn-ques-front", "no-Dmn")
    found = items(made, names, 5, seed=1)
    assert len(found) == 5
    assert items(made, names, 5, seed=1) == found
    assert items(made, names, 5, seed=2) != found
    everything = items(made, names, 100)
    assert len(everything) == 7
    assert "q0" not in {item.example.query.query_id for item in everything}
    assert all(item.a.startswith("Dmn-ques-front") and item.b.startswith("no-Dmn") for item in everything)


def test_a_pair_that_is_not_there_is_refused(tmp_path: Path) -> None:
    made = study(tmp_path)
    with pytest.raises(ConfigError, match="it has no-Dmn, Dmn-ques-front"):
        chosen_names(made, ("Dmn", "no-Dmn"))
    with pytest.raises(ConfigError, match="two different rows"):
        chosen_names(made, ("no-Dmn", "no-Dmn"))
    with pytest.raises(ConfigError, match="whole numbers from 1"):
        items(made, chosen_names(made, None), 0)
