"""The nine claims: each held, not held and not tested, from differences written by hand."""

import pytest

from dmnrag.experiments.reporting.claims import (
    Findings,
    claim_1,
    claim_2,
    claim_3,
    claim_4,
    claim_5,
    claim_6,
    claim_7,
    claim_8,
    claim_9,
    claims_table,
    judge_claims,
)
from dmnrag.experiments.reporting.families import ROUGES, SWEEP_METRICS, Family
from dmnrag.experiments.reporting.measures.agreement import DOMAIN_AGREEMENT
from dmnrag.experiments.reporting.measures.more import DISTINCT_2
from dmnrag.experiments.statistics import Contrast
from dmnrag.methods import METHODS

METHOD_NAMES = [m.name for m in METHODS if m.name != "no-Dmn"]
GAINS = {"Dmn": 0.01, "ques-front": 0.03, "ques-rear": 0.02, "Dmn-ques-front": 0.04, "Dmn-ques-rear": 0.025}
Key = tuple[str, str, str, str, str]


def contrast(key: Key, difference: float, p: float = 0.001) -> Contrast:
    low, high = difference - 0.01, difference + 0.01
    return Contrast(key[2], key[3], key[4], difference, low, high, p, 100, 0.02, p)


def family(rows: dict[Key, float], **p: float) -> Family:
    return {key: contrast(key, d, p.get("p", 0.001)) for key, d in rows.items()}


def gains(changes: dict[str, float] | None = None, p: float = 0.001) -> Family:
    found = GAINS | (changes or {})
    rows = {("med", "zero-shot", m, "no-Dmn", r): g for m, g in found.items() for r in ROUGES}
    return family(rows, p=p)


def test_claim_1_is_held_where_dmn_ques_front_gains_most() -> None:
    assert claim_1(Findings(methods={"llm": gains()})).outcome == "held"
    assert claim_1(Findings(methods={"llm": gains({"Dmn": 0.05})})).outcome == "not held"
    assert claim_1(Findings(methods={"llm": gains(p=0.2)})).outcome == "not held"
    # With another LLM against it as well it is not held.
    assert claim_1(Findings(methods={"a": gains(), "b": gains({"Dmn": 0.05})})).outcome == "not held"


def test_claim_1_gives_the_numbers_of_every_method() -> None:
    parts = claim_1(Findings(methods={"llm": gains()})).parts
    assert len(parts) == 3
    assert (
        "Dmn-ques-front − no-Dmn, ROUGE-1 (word): +4.00 [+3.00, +5.00] points, p 0.0010, n 100, detectable 2.00: higher"
        in (parts[0].numbers)
    )
    assert "paper: +3.82 points" in parts[0].statement


def test_claim_1_is_not_tested_where_a_method_is_missing() -> None:
    lacking = {key: c for key, c in gains().items() if key[2] != "Dmn"}
    claim = claim_1(Findings(methods={"llm": lacking}))
    assert claim.outcome == "not tested here"
    assert "the five methods and no-Dmn" in claim.reason


def test_claim_2_speaks_of_the_other_four_methods() -> None:
    assert claim_2(Findings(methods={"llm": gains()})).outcome == "held"
    assert claim_2(Findings(methods={"llm": gains({"Dmn-ques-front": -0.1})})).outcome == "held"
    lower = claim_2(Findings(methods={"llm": gains({"ques-rear": -0.1})}))
    assert lower.outcome == "not held"
    assert [part.outcome for part in lower.parts] == ["held", "held", "not held", "held"]


def lora(difference: float) -> Family:
    return family({("med", m.name, "zero-shot", "lora", r): difference for m in METHODS for r in ROUGES})


def test_claim_3_compares_zero_shot_with_lora() -> None:
    assert claim_3(Findings(methods={"llm": {**gains(), **lora(0.1)}})).outcome == "held"
    assert claim_3(Findings(methods={"llm": {**gains(), **lora(-0.1)}})).outcome == "not held"
    assert claim_3(Findings(methods={"llm": gains()})).outcome == "not tested here"


def sweep(parameter: str, values: tuple[float, ...], above: float, last_first: float, diverse: float) -> Family:
    rows: dict[Key, float] = {}
    for value in values:
        for m in METHOD_NAMES:
            rows |= {("med", f"{parameter} {value:g}", m, "no-Dmn", r): above for r in SWEEP_METRICS}
    ends = (f"{parameter} {values[-1]:g}", f"{parameter} {values[0]:g}")
    for m in ("no-Dmn", *METHOD_NAMES):
        rows |= {("med", m, *ends, r): last_first for r in SWEEP_METRICS}
        rows[("med", m, *ends, DISTINCT_2)] = diverse
    return family(rows)


def test_claim_4_needs_methods_above_and_one_that_falls() -> None:
    def outcome(above: float, falls: float) -> str:
        return claim_4(Findings(temperature={"llm": sweep("temperature", (0.2, 0.4, 0.6), above, falls, 0)})).outcome

    assert outcome(0.1, -0.1) == "held"
    assert outcome(0.1, 0.1) == "not held"
    assert outcome(-0.1, -0.1) == "not held"
    assert claim_4(Findings()).outcome == "not tested here"


def test_claim_4_looks_only_at_its_range() -> None:
    inside = sweep("temperature", (0.2, 0.6), 0.1, -0.1, 0)
    outside = sweep("temperature", (0.9,), -0.1, 0, 0)
    both = Findings(temperature={"llm": {**{k: c for k, c in outside.items() if k[3] == "no-Dmn"}, **inside}})
    assert claim_4(both).outcome == "held"


def test_claim_5_is_about_dmn_at_temperature_0_4() -> None:
    key = ("med", "temperature 0.4", "Dmn", "no-Dmn", "ROUGE-L (word)")
    for difference, outcome in ((-0.1, "held"), (0.1, "not held")):
        assert claim_5(Findings(temperature={"llm": family({key: difference})})).outcome == outcome
    other = ("med", "temperature 0.5", "Dmn", "no-Dmn", "ROUGE-L (word)")
    assert claim_5(Findings(temperature={"llm": family({other: -0.1})})).outcome == "not tested here"


def test_claim_6_needs_both_sweeps_and_diversity() -> None:
    top_k = sweep("top_k", (20, 40), 0.1, -0.1, 0.1)
    temperature = sweep("temperature", (0.2, 0.6), 0.1, -0.1, 0.1)
    both = Findings(top_k={"llm": top_k}, temperature={"llm": temperature})
    assert claim_6(both).outcome == "held"
    same = sweep("temperature", (0.2, 0.6), 0.1, -0.1, -0.1)
    assert claim_6(Findings(top_k={"llm": top_k}, temperature={"llm": same})).outcome == "not held"
    assert claim_6(Findings(temperature={"llm": temperature})).outcome == "not tested here"
    assert claim_6(Findings()).outcome == "not tested here"


POSITIONS = ("", "(ques-front)", "(ques-rear)")


def ablations(scale: float = 1.0) -> Family:
    pairs = [(f"ES{p}", f"DPR{p}") for p in POSITIONS]
    pairs += [(f"{of}{p}", of) for of in ("ES", "ES+Dmn", "DPR") for p in POSITIONS[1:]]
    pairs += [(f"ES+Dmn{p}", f"ES{p}") for p in POSITIONS]
    return family({("med", "zero-shot", a, b, r): 0.02 * scale for a, b in pairs for r in ROUGES})


def test_claim_7_needs_every_difference_and_two_llms() -> None:
    two = {"ChatGLM2-6B": ablations(2), "Baichuan2": ablations()}
    assert claim_7(Findings(ablations=two)).outcome == "held"
    assert claim_7(Findings(ablations={"ChatGLM2-6B": ablations(), "Baichuan2": ablations(2)})).outcome == "not held"
    one = claim_7(Findings(ablations={"ChatGLM2-6B": ablations()}))
    assert one.outcome == "not tested here"
    assert [part.outcome for part in one.parts].count("held") == len(one.parts) - 1
    assert claim_7(Findings(ablations={"ChatGLM2-6B": ablations(-1)})).outcome == "not held"
    assert claim_7(Findings()).outcome == "not tested here"


def test_claim_7_without_the_papers_llm_leaves_its_last_part_open() -> None:
    claim = claim_7(Findings(ablations={"a": ablations(), "b": ablations(2)}))
    assert claim.outcome == "not tested here"
    assert "signs agree in 36 of 36 differences" in claim.parts[-1].numbers


def test_claim_8_is_about_domain_agreement() -> None:
    def found(difference: float, p: float = 0.001) -> Findings:
        rows = {("med", "zero-shot", m, "no-Dmn", DOMAIN_AGREEMENT): difference for m in METHOD_NAMES}
        return Findings(agreement={"llm": family(rows, p=p)})

    assert claim_8(found(0.1)).outcome == "held"
    assert claim_8(found(0.1, p=0.3)).outcome == "not held"
    assert claim_8(found(-0.1)).outcome == "not held"
    assert claim_8(Findings()).outcome == "not tested here"


def test_claim_9_is_never_tested() -> None:
    assert claim_9().outcome == "not tested here"


def test_all_nine_are_judged_in_order_and_stand_in_a_table() -> None:
    claims = judge_claims(Findings())
    assert [claim.number for claim in claims] == list(range(1, 10))
    assert {claim.outcome for claim in claims} == {"not tested here"}
    assert all(claim.reason for claim in claims)
    assert len(claims_table(claims).rows) == 9


@pytest.mark.parametrize("p", [0.05, 0.5])
def test_a_difference_that_is_not_significant_never_holds_a_claim(p: float) -> None:
    for claim in judge_claims(Findings(methods={"llm": gains(p=p)})):
        assert claim.outcome != "held"
