"""From a spec to its cells: the paper's rows, sweeps, controls, noise."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from runner_world import loaded, values

from dmnrag.experiments.matrix.cells import expand
from dmnrag.experiments.records import Cell
from dmnrag.methods import find_method


def cells(**changes: Any) -> list[Cell]:
    return expand(loaded(values(Path("index"), **changes)).spec)


def test_methods_of_tables_3_and_4_cross_corpora_llms_and_generations() -> None:
    made = cells(
        corpus=[{"name": "medical", "index": "a"}, {"name": "legal", "index": "b"}],
        llm=[{"name": "one", "model": "builtin"}, {"name": "two", "model": "builtin"}],
        generations=["zero-shot", "lora"],
        controls=[],
    )
    assert len(made) == 6 * 2 * 2 * 2
    assert {(cell.corpus, cell.llm, cell.generation) for cell in made} == {
        (corpus, llm, how) for corpus in ("medical", "legal") for llm in ("one", "two") for how in ("zero-shot", "lora")
    }
    assert all(cell.table == ("methods",) and cell.method == cell.row for cell in made)


def test_the_nine_ablations_say_layer_retriever_domain_use_and_position() -> None:
    names = ["ES", "ES+Dmn", "ES(ques-front)", "ES(ques-rear)", "ES+Dmn(ques-front)", "ES+Dmn(ques-rear)"]
    names += ["DPR", "DPR(ques-front)", "DPR(ques-rear)"]
    made = {cell.row: cell for cell in cells(methods=[], ablations=names, controls=[])}
    found = {
        name: (c.layer, c.retriever, find_method(c.method).joint, find_method(c.method).position)
        for name, c in made.items()
    }
    assert found == {
        "ES": ("sparse", None, False, "none"),
        "ES+Dmn": ("sparse", None, True, "none"),
        "ES(ques-front)": ("sparse", None, False, "front"),
        "ES(ques-rear)": ("sparse", None, False, "rear"),
        "ES+Dmn(ques-front)": ("sparse", None, True, "front"),
        "ES+Dmn(ques-rear)": ("sparse", None, True, "rear"),
        "DPR": ("dense", "dpr", False, "none"),
        "DPR(ques-front)": ("dense", "dpr", False, "front"),
        "DPR(ques-rear)": ("dense", "dpr", False, "rear"),
    }


def test_untrained_retrievers_serve_all_rows() -> None:
    made = cells(retrievers="base", ablations=["ES", "DPR"])
    assert {cell.retriever for cell in made if cell.layer != "sparse"} == {"base"}


def test_a_sweep_varies_one_parameter_and_holds_retrieval_fixed() -> None:
    made = cells(
        controls=[], methods=["no-Dmn", "Dmn"], generation={"max_tokens": 9, "top_p": 0.8},
        sweep={"temperature": [0.2, 0.4], "top_k": [10]},
    )  # fmt: skip
    swept = [c for c in made if "methods" not in c.table]
    assert [(c.row, c.table, c.parameters.temperature, c.parameters.top_k) for c in swept] == [
        ("no-Dmn", ("temperature",), 0.2, None),
        ("Dmn", ("temperature",), 0.2, None),
        ("no-Dmn", ("temperature",), 0.4, None),
        ("Dmn", ("temperature",), 0.4, None),
        ("no-Dmn", ("top_k",), None, 10),
        ("Dmn", ("top_k",), None, 10),
    ]
    assert {(c.parameters.top_p, c.parameters.max_tokens) for c in swept} == {(0.8, 9)}
    by_row = {c.row: (c.layer, c.retriever, c.k, c.candidates) for c in made}
    assert all((c.layer, c.retriever, c.k, c.candidates) == by_row[c.row] for c in swept)


def test_a_cell_of_two_tables_is_there_once_and_names_both() -> None:
    made = cells(controls=[], methods=["no-Dmn"], generation={"temperature": 0.4}, sweep={"temperature": [0.4, 0.6]})
    assert [(c.parameters.temperature, c.table) for c in made] == [
        (0.4, ("methods", "temperature")),
        (0.6, ("temperature",)),
    ]


def test_a_longer_spec_keeps_the_ids_of_a_shorter_one() -> None:
    short = cells(methods=["no-Dmn", "Dmn"])
    long = cells(ablations=["ES", "DPR"], repeats=4, questions=50, noise={"wrong": [0.5], "none": True})
    assert {c.id for c in short} < {c.id for c in long}
    assert len({c.id.casefold() for c in long}) == len(long)


def test_ids_tell_apart_whatever_changes_an_answer() -> None:
    [cell] = cells(methods=["no-Dmn"], controls=[])
    from dmnrag.experiments.matrix.cells import cell_id

    changed: list[dict[str, Any]] = [
        {"k": 4}, {"repeat": 1}, {"domain": "none"}, {"layer": "dense"}, {"retriever": "base"}, {"generation": "lora"},
        {"domain_weight": 2.0}, {"candidates": 50}, {"reranker": "fake"}, {"evidence": "x"}, {"control": "gold"},
    ]  # fmt: skip
    ids = {cell_id(replace(cell, **change)) for change in changed}
    assert len(ids | {cell.id}) == len(changed) + 1
    assert cell_id(replace(cell, table=("other",))) == cell.id


def test_controls_are_there_once_for_each_llm_and_copying_once_for_each_retrieval() -> None:
    made = cells(
        llm=[{"name": "a", "model": "fake"}, {"name": "b", "model": "fake"}],
        retrieval=[{"layer": "hybrid"}, {"layer": "dense"}],
    )
    controls = [c for c in made if c.control is not None]
    asked = [(c.row, c.llm) for c in controls if c.control != "copy-first"]
    assert asked == [(row, llm) for llm in ("a", "b") for row in ("closed-book", "gold", "random")]
    copies = [(c.row, c.layer, c.retriever, c.llm) for c in controls if c.control == "copy-first"]
    assert sorted(copies) == [  # type: ignore[type-var]
        ("copy-first", "dense", "plain", None),
        ("copy-first", "hybrid", "plain", None),
        ("copy-first (Dmn)", "dense", "joint", None),
        ("copy-first (Dmn)", "hybrid", "joint", None),
    ]


def test_domain_noise_runs_the_methods_with_a_domain_beside_the_right_ones() -> None:
    made = cells(controls=[], noise={"wrong": [0.25, 1.0], "none": True})
    noisy = [c for c in made if c.domain != "given"]
    assert {(c.domain, c.domain_noise) for c in noisy} == {("wrong", 0.25), ("wrong", 1.0), ("none", 0.0)}
    assert len(noisy) == 3 * 5
    assert "no-Dmn" not in {c.row for c in noisy}
    assert all("domain-noise" in c.table for c in made)
