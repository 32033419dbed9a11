"""The paper's nine claims (Zhang et al. 2025, as PAPER.md numbers them), each a function from results to a verdict.

A claim has parts. It is held where every part is, not held where a part is not, and not tested here where a part
lacks its cells and none is refuted. A part is held only by tests that are significant after Holm's correction, or,
where it states a size or an order, by the figures themselves; the reason says which.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dmnrag.experiments.reporting.claim_parts import (
    PAPER_LLM,
    ROUGE_1,
    ROUGE_2,
    ROUGE_L,
    Claim,
    Part,
    ablation_parts,
    all_of,
    claim_of,
    corpora_of,
    diversity,
    falls,
    numbers_of,
    same_trend,
    sweep_parts,
    zero_shot,
)
from dmnrag.experiments.reporting.families import ROUGES, Family
from dmnrag.experiments.reporting.measures.agreement import DOMAIN_AGREEMENT
from dmnrag.experiments.reporting.table import Table
from dmnrag.methods import BASELINE, DEFAULT, METHODS

_DOMAIN_METHODS = [method.name for method in METHODS if method != BASELINE]
_PAPER_GAINS = {ROUGE_1: 3.82, ROUGE_2: 1.68, ROUGE_L: 4.32}
"""Points of claim 1; its data set is not stated."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The families of differences that claims rest on, by LLM. One that was not run is missing or empty."""

    methods: Mapping[str, Family] = field(default_factory=dict)
    """Each method against the baseline, zero-shot against LoRA."""
    ablations: Mapping[str, Family] = field(default_factory=dict)
    temperature: Mapping[str, Family] = field(default_factory=dict)
    top_k: Mapping[str, Family] = field(default_factory=dict)
    agreement: Mapping[str, Family] = field(default_factory=dict)


def judge_claims(findings: Findings) -> list[Claim]:
    """All nine, in order."""
    return [
        claim_1(findings),
        claim_2(findings),
        claim_3(findings),
        claim_4(findings),
        claim_5(findings),
        claim_6(findings),
        claim_7(findings),
        claim_8(findings),
        claim_9(),
    ]


def claims_table(claims: Sequence[Claim]) -> Table:
    """A row per claim."""
    columns = (("claim",), ("outcome",), ("text",), ("reason",))
    rows = tuple((str(claim.number), claim.outcome, claim.text, claim.reason) for claim in claims)
    return Table("claims", "The paper's claims", columns, rows)


def claim_1(findings: Findings) -> Claim:
    """Dmn-ques-front has the largest gain."""
    parts = []
    for llm, corpus, found in zero_shot(findings.methods):
        for metric in ROUGES:
            gains = {m: found[m, metric] for m in _DOMAIN_METHODS if (m, metric) in found}
            statement = (
                f"{llm}, {corpus}: {DEFAULT.name} gains most over {BASELINE.name} in {metric} "
                f"(paper: {_PAPER_GAINS[metric]:+.2f} points)"
            )
            if len(gains) < len(_DOMAIN_METHODS):
                parts.append(Part(statement, "not tested here", numbers_of(gains.values())))
                continue
            best = max(gains, key=lambda m: gains[m].difference)
            held = best == DEFAULT.name and gains[best].verdict == "higher"
            parts.append(Part(statement, "held" if held else "not held", numbers_of(gains.values())))
    return claim_of(
        1,
        f"{DEFAULT.name} on {PAPER_LLM} has the largest gain over {BASELINE.name}: +3.82 ROUGE-1, +1.68 ROUGE-2, "
        "+4.32 ROUGE-L points.",
        parts,
        "Held where its gain is the largest of all methods and significant.",
        f"the five methods and {BASELINE.name}, complete and zero-shot",
    )


def claim_2(findings: Findings) -> Claim:
    """Every other method beats the baseline."""
    others = [name for name in _DOMAIN_METHODS if name != DEFAULT.name]
    parts = [
        all_of(
            f"{llm}, {corpus}: {method} beats {BASELINE.name} in ROUGE-1, 2 and L",
            [found.get((method, metric)) for metric in ROUGES],
            "higher",
        )
        for llm, corpus, found in zero_shot(findings.methods)
        for method in others
    ]
    return claim_of(
        2,
        f"Every other method with domain knowledge also beats {BASELINE.name}.",
        parts,
        "Held where each is significantly higher.",
        f"the other four methods and {BASELINE.name}, complete and zero-shot",
    )


def claim_3(findings: Findings) -> Claim:
    """Zero-shot beats LoRA."""
    parts = []
    for llm, family in findings.methods.items():
        rows = dict.fromkeys((key[0], key[1]) for key in family if key[2:4] == ("zero-shot", "lora"))
        for corpus, row in rows:
            contrasts = [family.get((corpus, row, "zero-shot", "lora", metric)) for metric in ROUGES]
            parts.append(all_of(f"{llm}, {corpus}, {row}: zero-shot beats LoRA", contrasts, "higher"))
    return claim_of(
        3,
        "Zero-shot beats LoRA, in ROUGE-1, 2 and L.",
        parts,
        "Held where each method's zero-shot answers are significantly higher.",
        "the methods with LoRA beside zero-shot",
    )


def claim_4(findings: Findings) -> Claim:
    """Temperature from .2 to .6."""
    parts = sweep_parts(findings.temperature, "temperature", 0.2, 0.6)
    parts += falls(findings.temperature, "temperature")
    return claim_of(
        4,
        f"Temperature in [0.20, 0.60]: methods with domain knowledge above {BASELINE.name} in ROUGE-1 and ROUGE-L; "
        "some methods lose precision as temperature rises.",
        parts,
        "Held where each method is significantly higher at each temperature, and some method is significantly lower at "
        "the highest temperature than at the lowest.",
        "a sweep over temperature",
    )


def claim_5(findings: Findings) -> Claim:
    """Dmn at temperature .4."""
    parts = []
    for llm, family in findings.temperature.items():
        for corpus in corpora_of(family):
            key = (corpus, "temperature 0.4", "Dmn", BASELINE.name, ROUGE_L)
            statement = f"{llm}, {corpus}: Dmn is below {BASELINE.name} in {ROUGE_L} at temperature 0.4"
            parts.append(all_of(statement, [family.get(key)], "lower"))
    return claim_of(
        5,
        f"Dmn at temperature 0.4 is below {BASELINE.name} in ROUGE-L.",
        parts,
        "Held where it is significantly lower.",
        "a sweep with temperature 0.4",
    )


def claim_6(findings: Findings) -> Claim:
    """top_k from 20 to 40, and diversity."""
    parts = sweep_parts(findings.top_k, "top_k", 20, 40)
    parts += falls(findings.top_k, "top_k")
    for parameter, families in (("top_k", findings.top_k), ("temperature", findings.temperature)):
        parts += diversity(families, parameter)
    if not findings.top_k:
        parts.append(Part("a sweep over top_k", "not tested here"))
    return claim_of(
        6,
        f"top_k in [20, 40]: methods with domain knowledge above {BASELINE.name}; some fall as top_k grows. Higher "
        "top_k or temperature gives more diverse text.",
        parts,
        "Held where each difference is significant; diversity is distinct-2, the share of different pairs of words in "
        "an answer.",
        "a sweep over top_k",
    )


def claim_7(findings: Findings) -> Claim:
    """The ablations."""
    parts: list[Part] = []
    for llm, family in findings.ablations.items():
        for corpus in corpora_of(family):
            parts += ablation_parts(llm, corpus, family)
    parts += same_trend(findings.ablations)
    return claim_of(
        7,
        f"Ablation: ES rows beat DPR rows; front and rear help clearly; ES+Dmn helps a little; both LLMs show the same "
        f"trend, {PAPER_LLM} gains more.",
        parts,
        "Held where each difference in ROUGE-1, 2 and L is significant, and where the signs of all differences agree "
        "between the LLMs.",
        "the nine ablations with two LLMs",
    )


def claim_8(findings: Findings) -> Claim:
    """Relevance to the domain."""
    parts = [
        all_of(
            f"{llm}, {corpus}: answers of {method} agree more with the question's domain than those of {BASELINE.name}",
            [found.get((method, DOMAIN_AGREEMENT))],
            "higher",
        )
        for llm, corpus, found in zero_shot(findings.agreement)
        for method in _DOMAIN_METHODS
    ]
    return claim_of(
        8,
        "Answers become more relevant to the domain (the paper does not measure it).",
        parts,
        "Held where a classifier trained on the index's answers sees the question's domain significantly more often.",
        "domain agreement of the methods' answers",
    )


def claim_9() -> Claim:
    """Scope."""
    return Claim(
        9,
        "Stated limits: the effect on other tasks is open; finer units (paragraph, sentence) are future work.",
        "not tested here",
        "It names what the paper leaves open; no experiment of this kind can hold or refute it.",
        (),
    )
