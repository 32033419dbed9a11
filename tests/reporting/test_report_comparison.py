"""Two folders: a planted regression is flagged, equal ones are not called different, gaps are named."""

from dataclasses import replace
from pathlib import Path

import pytest
from report_builder import cell, questions, write

from dmnrag.errors import DataError
from dmnrag.experiments.records import Cell, Retrieval
from dmnrag.experiments.reporting import families
from dmnrag.experiments.reporting.comparison import Comparison, compare_studies
from dmnrag.experiments.reporting.study import Study, read_study
from dmnrag.methods import METHODS
from dmnrag.types import Example, GenerationSettings

METHOD_CELLS = [cell(m.name) for m in METHODS]


def study(folder: Path, cells: list[Cell], **options: object) -> Study:
    quality = options.pop("quality", lambda _: 0.5)
    return read_study(write(folder, cells, quality, **options))  # type: ignore[arg-type]


def test_a_planted_regression_is_flagged_and_only_that(tmp_path: Path) -> None:
    before = study(tmp_path / "a", METHOD_CELLS, n=30)
    after = study(tmp_path / "b", METHOD_CELLS, n=30, quality=lambda c: 0.35 if c.row == "ques-front" else 0.5)
    found = compare_studies(before, after)
    assert {change.label for change in found.regressions} == {"ques-front, fake, temperature 0"}
    assert len(found.regressions) == 3
    assert found.improvements == []
    change = found.regressions[0]
    assert change.contrast.difference < 0
    assert "medical, ques-front, fake, temperature 0, ROUGE-1 (word): -" in change.text
    assert "points, p 0.0" in change.text
    back = compare_studies(after, before)
    assert {change.label for change in back.improvements} == {"ques-front, fake, temperature 0"}
    assert back.regressions == []


def test_the_same_folder_twice_differs_in_nothing(tmp_path: Path) -> None:
    one = study(tmp_path / "a", METHOD_CELLS)
    found = compare_studies(one, study(tmp_path / "b", METHOD_CELLS))
    assert len(found.changes) == 18
    assert all(change.contrast.difference == 0 for change in found.changes)
    assert found.regressions == found.improvements == []
    assert found.notes == ()


def noisy(folder: Path, seed: int) -> Study:
    """Answers as good as those of any other seed, and other ones."""
    settings = GenerationSettings(temperature=0.7, max_tokens=100 + seed)
    return study(folder, [cell("no-Dmn", parameters=settings)], n=25)


def test_equal_systems_are_seldom_called_different(tmp_path: Path) -> None:
    studies = [noisy(tmp_path / str(seed), seed) for seed in range(40)]
    called = [
        bool(found.regressions or found.improvements)
        for a, b in zip(studies[::2], studies[1::2], strict=True)
        for found in [compare_studies(a, b)]
    ]
    assert sum(called) <= 3  # of 20; 5 % of them are 1, and 4 or more would come about in 1.6 % of such trials


def test_what_changed_in_the_settings_is_said(tmp_path: Path) -> None:
    before = study(tmp_path / "a", [cell("Dmn", layer="dense", k=3)])
    after = study(tmp_path / "b", [cell("Dmn", layer="hybrid", k=3)])
    found = compare_studies(before, after)
    assert {change.label for change in found.changes} == {"Dmn, fake, temperature 0 (layer dense → hybrid)"}
    assert found.notes == ()


VARIANTS = [
    cell("Dmn", layer="dense"),
    cell("Dmn", layer="hybrid"),
    cell("Dmn", layer="hybrid", domain_filter=True),
    cell("Dmn", layer="hybrid", domain_weight=2.0),
    cell("Dmn", layer="hybrid", reranker="bge"),
    cell("Dmn", layer="hybrid", k=7),
    cell("Dmn", layer="hybrid", parameters=GenerationSettings(temperature=0, stop=("。",))),
    cell("Dmn", layer="hybrid", domain="none"),
]


@pytest.mark.parametrize("worse", range(len(VARIANTS)))
def test_a_regression_of_any_variant_of_a_row_is_flagged(tmp_path: Path, worse: int) -> None:
    before = study(tmp_path / "a", VARIANTS, n=30)
    bad = replace(VARIANTS[worse], id="")
    after = study(tmp_path / "b", VARIANTS, n=30, quality=lambda c: 0.1 if replace(c, id="") == bad else 0.5)
    found = compare_studies(before, after)
    assert len(found.changes) == 3 * len(VARIANTS)
    assert len({change.label for change in found.changes}) == len(VARIANTS)
    assert {change.contrast.metric for change in found.regressions} == set(families.ROUGES)
    assert len({change.label for change in found.regressions}) == 1


def test_a_label_says_what_tells_an_arm_from_the_others_and_no_more(tmp_path: Path) -> None:
    cells = [cell("no-Dmn"), cell("Dmn", layer="dense"), cell("Dmn"), cell("Dmn", domain="none")]
    found = compare_studies(study(tmp_path / "a", cells), study(tmp_path / "b", cells))
    assert {change.label for change in found.changes} == {
        "no-Dmn, fake, temperature 0",
        "Dmn, fake, temperature 0, layer dense",
        "Dmn, fake, temperature 0, layer hybrid",
        "Dmn, fake, no domain, temperature 0",
    }


def test_comparisons_of_the_same_name_are_refused_and_not_dropped(tmp_path: Path) -> None:
    corpus = study(tmp_path / "a", [cell("no-Dmn"), cell("Dmn")]).corpora[0]
    pair = families.Pair(corpus, corpus.arms[0], corpus.arms[1], ("after", "before"), "same")
    with pytest.raises(DataError, match=r"same name \(medical, same, after, before, ROUGE-1"):
        families.tested([pair, pair], families.ROUGES)


def test_only_questions_that_are_the_same_take_part(tmp_path: Path) -> None:
    asked = questions(12)
    other = [*asked[:8], Example(asked[8].query, ("另一个答案另一个答案另一个答案",), ("d8",), "c8"), *asked[9:11]]
    found = compare_studies(
        study(tmp_path / "a", [cell("Dmn")], examples=asked), study(tmp_path / "b", [cell("Dmn")], examples=other)
    )
    assert {change.contrast.n for change in found.changes} == {10}
    (note,) = found.notes
    assert note.startswith("medical: 10 questions are the same in both folders (12 before, 11 after)")


def test_values_follow_their_questions_when_the_order_differs(tmp_path: Path) -> None:
    asked = questions(12)
    found = compare_studies(
        study(tmp_path / "a", [cell("Dmn")], examples=asked),
        study(tmp_path / "b", [cell("Dmn")], examples=list(reversed(asked))),
    )
    assert all(change.contrast.difference == 0 and change.contrast.p == 1 for change in found.changes)


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    before = study(tmp_path / "a", [cell("Dmn"), cell("ques-rear"), cell("no-Dmn"), cell("Dmn", "legal")])
    after = study(tmp_path / "b", [cell("Dmn"), cell("no-Dmn"), cell("Dmn", "tax")], unanswered={"no-Dmn": 2})
    found = compare_studies(before, after)
    assert {(change.corpus, change.label) for change in found.changes} == {("medical", "Dmn, fake, temperature 0")}
    notes = "\n".join(found.notes)
    for part in (
        "corpus tax is in the second folder alone",
        "corpus legal is in the first folder alone",
        "in the first folder alone: ques-rear, fake, temperature 0",
        "no-Dmn, fake, temperature 0: incomplete, not compared",
    ):
        assert part in notes


def retrieval(values: tuple[float, ...]) -> dict[str, Retrieval]:
    n = len(values)
    clusters = tuple(f"c{i}" for i in range(n))
    return {"medical": Retrieval(n, clusters, {"joint": {"recall@3": values}}, (), "f" * 64)}


def compared_retrieval(folder: Path, before: tuple[float, ...], after: tuple[float, ...]) -> Comparison:
    return compare_studies(
        study(folder / "a", [cell("Dmn")], retrieval=retrieval(before)),
        study(folder / "b", [cell("Dmn")], retrieval=retrieval(after)),
    )


def test_a_regression_of_retrieval_is_flagged_too(tmp_path: Path) -> None:
    found = compared_retrieval(tmp_path, (1.0,) * 30, (0.0,) * 10 + (1.0,) * 20)
    (change,) = found.regressions
    assert (change.label, change.contrast.metric) == ("joint", "recall@3")
    assert change.contrast.difference == -1 / 3


def test_retrieval_over_other_questions_is_not_compared(tmp_path: Path) -> None:
    assert len(compared_retrieval(tmp_path, (1.0,) * 30, (0.0,) * 29).changes) == 3  # the answers' alone
