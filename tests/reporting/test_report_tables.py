"""Tables: their formats, which arms stand in them, and what they say of gaps, copying and significance."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from report_builder import ABLATIONS, cell, questions, write

from dmnrag.experiments.records import ABLATIONS_TABLE, METHODS_TABLE, Cell, Retrieval
from dmnrag.experiments.reporting.contents import Report, build_report
from dmnrag.experiments.reporting.entries import mean_entry
from dmnrag.experiments.reporting.panels import panels
from dmnrag.experiments.reporting.study import Study, read_study
from dmnrag.experiments.reporting.table import Figure, Table, to_csv, to_latex, to_markdown
from dmnrag.methods import METHODS
from dmnrag.types import Example, GenerationSettings

TABLE = Table(
    "t-1",
    "A & B",
    (("method",), ("medical", "zero-shot", "ROUGE-1"), ("medical", "LoRA", "ROUGE-1"), ("note",)),
    (
        ("no-Dmn", Figure(1.005, -0.5, 2.0, " ↑"), "incomplete (3 of 4)", "a|b"),
        ("50%_x", Figure(-2.0), Figure(3.14159, signed=True), "=1+1"),
    ),
    ("first note",),
)


def even(_: Cell) -> float:
    return 0.5


def by_name(report: Report, name: str) -> Table:
    (found,) = [table for table in report.tables if table.name == name]
    return found


def entry(table: Table, row: str, *path: str) -> object:
    (cells,) = [cells for cells in table.rows if cells[0] == row]
    return cells[table.columns.index(path)]


def study_of(folder: Path, *args: object, **kwargs: object) -> Study:
    return read_study(write(folder, *args, **kwargs))  # type: ignore[arg-type]


def test_markdown_escapes_and_prints_intervals_and_notes() -> None:
    lines = to_markdown(TABLE).splitlines()
    assert lines[0] == "### A & B"
    assert lines[2] == "| method | medical zero-shot ROUGE-1 | medical LoRA ROUGE-1 | note |"
    assert lines[3] == "| --- | ---: | ---: | --- |"
    assert lines[4] == "| no-Dmn | 1.00 ↑ [−0.50, 2.00] | incomplete (3 of 4) | a\\|b |"
    assert lines[5] == "| 50%_x | −2.00 | +3.14 | =1+1 |"
    assert lines[-1] == "- first note"


def test_csv_keeps_numbers_whole_and_disarms_formulas() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE).removeprefix("\ufeff"))))
    assert rows[0]["medical zero-shot ROUGE-1"] == "1.005"
    assert (rows[0]["medical zero-shot ROUGE-1 low"], rows[0]["medical zero-shot ROUGE-1 high"]) == ("-0.5", "2.0")
    assert rows[0]["medical zero-shot ROUGE-1 mark"] == " ↑"
    assert rows[0]["medical LoRA ROUGE-1"] == "incomplete (3 of 4)"
    assert rows[1]["medical LoRA ROUGE-1"] == "3.14159"
    assert rows[1]["note"] == "'=1+1"


def test_latex_groups_headings_and_escapes() -> None:
    text = to_latex(TABLE)
    assert r"\caption{A \& B}" in text
    assert r"\multicolumn{2}{c}{medical}" in text
    assert r"50\%\_x" in text
    assert r"1.00 $\uparrow$ {\scriptsize [$-$0.50, 2.00]}" in text
    assert text.count(r"\\") == 3 + 2  # lines of headings and rows
    assert r"\begin{tabular}{lrrl}" in text


def test_headings_are_merged_only_under_the_same_beginning() -> None:
    table = Table("t", "t", (("m",), ("a", "x", "1"), ("a", "y", "1"), ("b", "x", "1")), ())
    assert table.heading(0) == [("", 1), ("a", 2), ("b", 1)]
    assert table.heading(1) == [("", 1), ("x", 1), ("y", 1), ("x", 1)]
    assert table.heading(2) == [("m", 1), ("1", 1), ("1", 1), ("1", 1)]


def test_the_mean_of_an_arm_is_in_points(tmp_path: Path) -> None:
    asked = questions(2)

    def texts(_: Cell, example: Example) -> str:
        reference = example.references[0]
        return reference if example is asked[0] else reference[:8] + "零" * 16

    study = study_of(tmp_path, [cell("no-Dmn")], even, examples=asked, texts=texts)
    (arm,) = study.arms
    found = mean_entry(study.corpora[0], arm, "ROUGE-1 (character)")
    assert isinstance(found, Figure)
    assert found.value == pytest.approx((1 + 8 / 24) / 2 * 100)  # 8 of 24 characters kept in the second


def test_repeats_are_one_arm_and_their_spread_is_shown(tmp_path: Path) -> None:
    sampled = [cell("no-Dmn", repeat=r, parameters=GenerationSettings(temperature=0.8, seed=r)) for r in range(3)]
    study = study_of(tmp_path, sampled, even)
    (arm,) = study.arms
    assert arm.repeats == 3
    means = arm.repeat_means["ROUGE-1 (word)"]
    assert len(set(means)) == 3
    spread = arm.seed_spread("ROUGE-1 (word)")
    middle = sum(means) / 3
    assert spread == pytest.approx((sum((m - middle) ** 2 for m in means) / 2) ** 0.5)
    # A question counts once: its value is the mean over the seeds.
    assert len(arm.values["ROUGE-1 (word)"]) == 12
    assert sum(v or 0 for v in arm.values["ROUGE-1 (word)"]) / 12 == pytest.approx(middle)
    table = by_name(build_report(study), "seeds")
    assert table.rows[0][4] == "3"
    assert table.rows[0][5] == Figure(pytest.approx(spread * 100))  # type: ignore[arg-type]


def test_a_cell_with_gaps_says_so_and_is_neither_averaged_nor_compared(tmp_path: Path) -> None:
    cells = [cell(m.name) for m in METHODS]
    report = build_report(study_of(tmp_path, cells, even, unanswered={"Dmn": 5}))
    table = by_name(report, "methods-1")
    assert entry(table, "Dmn", "medical", "zero-shot", "ROUGE-1") == "incomplete (7 of 12)"
    assert isinstance(entry(table, "no-Dmn", "medical", "zero-shot", "ROUGE-1"), Figure)
    assert "medical, Dmn, zero-shot: incomplete (7 of 12): not averaged, not compared." in table.notes
    differences = by_name(report, "methods-1-differences")
    assert {row[2] for row in differences.rows} == {
        f"{m.name} − no-Dmn" for m in METHODS if m.name not in ("no-Dmn", "Dmn")
    }
    claims = {claim.number: claim.outcome for claim in report.claims}
    assert claims[1] == "not tested here"


def test_a_cell_that_was_not_run_yet_is_incomplete(tmp_path: Path) -> None:
    folder = write(tmp_path, [cell("no-Dmn"), cell("Dmn")], even)
    path = folder.cell_folder("001-Dmn")
    for name in ("predictions.jsonl", "metrics.json", "evidence.jsonl"):
        (path / name).unlink()
    table = by_name(build_report(read_study(folder)), "methods-1")
    assert entry(table, "Dmn", "medical", "zero-shot", "ROUGE-1") == "incomplete (0 of 12)"


def test_only_significant_differences_carry_a_sign(tmp_path: Path) -> None:
    def quality(one: Cell) -> float:
        return {"no-Dmn": 0.3, "Dmn-ques-front": 0.9}.get(one.row, 0.3)

    report = build_report(study_of(tmp_path, [cell(m.name) for m in METHODS], quality, n=30))
    table = by_name(report, "methods-1")
    best = entry(table, "Dmn-ques-front", "medical", "zero-shot", "ROUGE-1")
    assert isinstance(best, Figure)
    assert best.mark == " ↑"
    verdicts = {(row[2], row[3]): row[8] for row in by_name(report, "methods-1-differences").rows}
    assert verdicts["Dmn-ques-front − no-Dmn", "ROUGE-1 (word)"] == "higher"
    for row in table.rows:
        for column, value in zip(table.columns, row, strict=True):
            if isinstance(value, Figure) and not value.mark and column[-1].startswith("ROUGE") and row[0] != "no-Dmn":
                assert verdicts[f"{row[0]} − no-Dmn", f"{column[-1]} (word)"] == "no difference shown"


def test_n_p_detectable_and_length_stand_beside_every_difference(tmp_path: Path) -> None:
    report = build_report(study_of(tmp_path, [cell(m.name) for m in METHODS], even))
    table = by_name(report, "methods-1-differences")
    names = [column[0] for column in table.columns]
    assert names[4:] == [
        "n", "points", "p (Holm)", "detectable", "verdict", "length-matched points", "length-matched verdict",
    ]  # fmt: skip
    assert len(table.rows) == 5 * 3
    assert all(isinstance(row[7], Figure) and row[4] == "12" for row in table.rows)
    assert ("medical", "zero-shot", "length") in by_name(report, "methods-1").columns
    assert any("15 tests" in note for note in table.notes)


def test_a_method_that_does_not_beat_copying_says_so(tmp_path: Path) -> None:
    cells = [cell("no-Dmn"), cell("Dmn"), cell("copy-first", control="copy-first", llm=None)]
    cells.append(cell("copy-first (Dmn)", method="Dmn", control="copy-first", llm=None))

    def quality(one: Cell) -> float:
        return {"no-Dmn": 0.9, "copy-first": 0.2}.get(one.row, 0.5)

    report = build_report(study_of(tmp_path, cells, quality, n=30))
    notes = " ".join(by_name(report, "methods-1").notes)
    assert "not shown to beat copying the answer of the first document in ROUGE-1, ROUGE-2, ROUGE-L: Dmn." in notes
    assert "no-Dmn." not in notes
    copying = by_name(report, "methods-1-copying")
    assert {(row[2], row[8]) for row in copying.rows} >= {("no-Dmn − copy-first", "higher")}


def test_controls_stand_below_the_methods_and_copying_stands_in_the_tables_of_every_llm(paper: Study) -> None:
    found = panels(paper, METHODS_TABLE)
    assert [panel.llm for panel in found] == ["ChatGLM2-6B", "Baichuan2-7B-chat"]
    assert found[1].rows == [*(m.name for m in METHODS), "closed-book", "copy-first", "copy-first (Dmn)"]
    assert found[0].generations("legal") == ["zero-shot", "lora"]
    (ablations, _) = panels(paper, ABLATIONS_TABLE)
    assert ablations.rows == list(ABLATIONS)


def test_layers_divide_tables_and_a_control_without_layers_stands_in_each(tmp_path: Path) -> None:
    cells = [cell(m, layer=layer) for layer in ("dense", "hybrid") for m in ("no-Dmn", "Dmn")]
    cells.append(cell("closed-book", control="closed-book", layer="sparse", retriever=None))
    found = panels(study_of(tmp_path, cells, even, n=2), METHODS_TABLE)
    assert [panel.setting for panel in found] == ["layer dense", "layer hybrid"]
    for panel in found:
        assert panel.rows == ["no-Dmn", "Dmn", "closed-book"]
        assert panel.find("medical", "Dmn") is not None


def test_the_whole_paper_gives_every_table_and_figure(paper_report: Report) -> None:
    report = paper_report
    names = {table.name for table in report.tables}
    for llm in "12":
        assert {f"methods-{llm}", f"methods-{llm}-differences", f"methods-{llm}-characters", f"ablations-{llm}",
                f"ablations-{llm}-differences", f"beyond-rouge-{llm}", f"noise-{llm}"} <= names  # fmt: skip
    assert {"claims", "data-1", "data-2", "cost", "domains-1-1"} <= names
    assert {plan.name for plan in report.figures} == {"temperature-1", "temperature-2", "top_k-1", "top_k-2"}
    assert [claim.number for claim in report.claims] == list(range(1, 10))
    assert len(names) == len(report.tables)  # no file is written twice


def test_wrong_domains_stand_beside_right_ones_with_what_survives(tmp_path: Path) -> None:
    right = [cell("no-Dmn", table=("methods", "domain-noise")), cell("Dmn", table=("methods", "domain-noise"))]
    wrong = cell("Dmn", domain="wrong", domain_noise=0.5, table=("domain-noise",))
    report = build_report(study_of(tmp_path, [*right, wrong], even))
    assert [row[:2] for row in by_name(report, "noise-1").rows] == [
        ("no-Dmn", "given"), ("Dmn", "given"), ("Dmn", "wrong for 50%"),
    ]  # fmt: skip
    settings = [row[1] for row in by_name(report, "noise-1-differences").rows]
    assert settings == ["domain given"] * 3 + ["domain wrong for 50%"] * 3
    assert len(by_name(report, "methods-1").rows) == 2  # the wrong ones are no methods


def test_retrieval_alone_is_a_table_with_its_tests(tmp_path: Path) -> None:
    values = {"joint": {"recall@3": (1.0, 1.0, 0.0, 1.0)}, "plain": {"recall@3": (0.0, 1.0, 0.0, None)}}
    found = Retrieval(4, ("a", "b", "c", "d"), values, (("joint", "plain"),), "f" * 64)
    report = build_report(study_of(tmp_path, [cell("no-Dmn")], even, retrieval={"medical": found}))
    table = by_name(report, "retrieval-1")
    assert entry(table, "joint", "recall@3") == Figure(75.0, *_bounds(table, "joint"))
    plain = entry(table, "plain", "recall@3")
    assert isinstance(plain, Figure)
    assert plain.value == pytest.approx(100 / 3)
    (difference,) = by_name(report, "retrieval-1-differences").rows
    assert difference[2:5] == ("joint − plain", "recall@3", "3")


def _bounds(table: Table, row: str) -> tuple[float | None, float | None]:
    found = entry(table, row, "recall@3")
    assert isinstance(found, Figure)
    return found.low, found.high


def test_the_domain_breakdown_compares_inside_each_domain(tmp_path: Path) -> None:
    def texts(one: Cell, example: Example) -> str:
        gains = one.row == "Dmn" and example.query.domain == ("儿科",)
        return example.references[0] if gains else example.references[0][:12]

    report = build_report(study_of(tmp_path, [cell("no-Dmn"), cell("Dmn")], even, texts=texts))
    table = by_name(report, "domains-1-1")
    gains = {row[0]: row[3] for row in table.rows}
    for domain in ("内科", "外科"):
        assert isinstance(gains[domain], Figure)
        assert gains[domain].value == 0  # type: ignore[union-attr]
    assert gains["儿科"].value > 20  # type: ignore[union-attr]
    assert [row[1] for row in table.rows] == ["4", "4", "4"]


def test_figures_and_tables_do_not_depend_on_the_order_of_the_cells(tmp_path: Path) -> None:
    cells = [cell(m.name) for m in METHODS]
    one = build_report(study_of(tmp_path / "a", cells, even))
    other = build_report(study_of(tmp_path / "b", list(reversed(cells)), even))
    assert to_csv(by_name(one, "methods-1")) == to_csv(by_name(other, "methods-1"))
    # Rows of the same family may stand in another order; their numbers are the same.
    assert by_name(one, "methods-1-differences").rows == by_name(other, "methods-1-differences").rows


def test_the_cells_table_is_no_part_of_what_an_arm_is(tmp_path: Path) -> None:
    sampled = [
        cell("no-Dmn", repeat=r, parameters=GenerationSettings(seed=r), table=(t,)) for r, t in ((0, "a"), (1, "b"))
    ]
    study = study_of(tmp_path, [replace(c) for c in sampled], even)
    (arm,) = study.arms
    assert arm.cell.table == ("a", "b")


def test_a_method_that_only_says_more_is_higher_plainly_and_not_at_equal_length(tmp_path: Path) -> None:
    def texts(one: Cell, example: Example) -> str:
        return example.references[0] if one.row == "Dmn" else example.references[0][:12]

    report = build_report(study_of(tmp_path, [cell("no-Dmn"), cell("Dmn")], even, n=20, texts=texts))
    for row in by_name(report, "methods-1-differences").rows:
        plain, matched = row[5], row[9]
        assert isinstance(plain, Figure)
        assert isinstance(matched, Figure)
        assert plain.value > 10
        assert matched.value == 0
        assert (row[8], row[10]) == ("higher", "no difference shown")


def test_length_matching_pairs_the_seeds(tmp_path: Path) -> None:
    def texts(one: Cell, example: Example) -> str:
        # Seed 0 says half in both methods, seed 1 all: cut against its own seed nothing is lost.
        return example.references[0][: 12 if one.repeat == 0 else 24]

    cells = [cell(row, repeat=r, parameters=GenerationSettings(seed=r)) for row in ("no-Dmn", "Dmn") for r in (0, 1)]
    report = build_report(study_of(tmp_path, cells, even, texts=texts))
    for row in by_name(report, "methods-1-differences").rows:
        assert isinstance(row[9], Figure)
        assert row[9].value == 0


def test_a_cell_without_figures_says_that_it_is_not_measured(tmp_path: Path) -> None:
    folder = write(tmp_path, [cell("no-Dmn"), cell("Dmn")], even)
    (folder.cell_folder("001-Dmn") / "metrics.json").unlink()
    table = by_name(build_report(read_study(folder)), "methods-1")
    assert entry(table, "Dmn", "medical", "zero-shot", "ROUGE-1") == "not measured yet"


def test_a_spec_with_fewer_metrics_still_makes_a_report(tmp_path: Path) -> None:
    folder = write(tmp_path, [cell("no-Dmn"), cell("Dmn-ques-front")], even)
    for one in folder.cells():
        metrics = folder.metrics(one)
        assert metrics is not None
        kept = {name: column for name, column in metrics.values.items() if name == "ROUGE-2 (word)"}
        folder.write_metrics(one.id, replace(metrics, values=kept))
    report = build_report(read_study(folder))
    assert report.examples == ()
    assert entry(by_name(report, "methods-1"), "no-Dmn", "medical", "zero-shot", "ROUGE-1") == "–"
    assert len(by_name(report, "methods-1-differences").rows) == 1


def test_a_method_that_comes_to_the_point_late_is_lower_at_equal_length(tmp_path: Path) -> None:
    def texts(one: Cell, example: Example) -> str:
        reference = example.references[0]
        return "零" * 12 + reference if one.row == "Dmn" else reference[:12]

    report = build_report(study_of(tmp_path, [cell("no-Dmn"), cell("Dmn")], even, n=20, texts=texts))
    rows = {row[3]: row for row in by_name(report, "methods-1-differences").rows}
    assert rows["ROUGE-1 (word)"][8] == "higher"
    assert rows["ROUGE-1 (word)"][10] == "lower"
