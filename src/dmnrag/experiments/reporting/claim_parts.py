"""What claims are put together from: parts with an outcome and their numbers, read off families of differences."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dmnrag.experiments.reporting.families import ROUGES, Family
from dmnrag.experiments.reporting.measures.more import DISTINCT_2
from dmnrag.experiments.statistics import Contrast
from dmnrag.methods import BASELINE

Outcome = Literal["held", "not held", "not tested here"]

ROUGE_1, ROUGE_2, ROUGE_L = ROUGES
PAPER_LLM = "ChatGLM2-6B"
"""The one that the paper says gains most."""
_POINTS = 100


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a claim says, in one setting."""

    statement: str
    outcome: Outcome
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim with what was found here."""

    number: int
    text: str
    outcome: Outcome
    reason: str
    parts: tuple[Part, ...]


_Found = Mapping[tuple[str, str], Contrast]
"""(method, metric) -> its difference from the baseline."""


def zero_shot(families: Mapping[str, Family]) -> Iterable[tuple[str, str, _Found]]:
    """(LLM, corpus, differences from the baseline), zero-shot."""
    for llm, family in families.items():
        for corpus in corpora_of(family):
            yield (
                llm,
                corpus,
                {
                    (a, metric): contrast
                    for (of, setting, a, b, metric), contrast in family.items()
                    if of == corpus and setting == "zero-shot" and b == BASELINE.name
                },
            )


def corpora_of(family: Family) -> list[str]:
    """Names of the corpora of a family."""
    return list(dict.fromkeys(key[0] for key in family))


def all_of(statement: str, contrasts: Sequence[Contrast | None], wanted: str) -> Part:
    """Held where every contrast has the wanted verdict."""
    found = [contrast for contrast in contrasts if contrast is not None]
    numbers = numbers_of(found)
    if any(contrast.verdict != wanted for contrast in found):
        return Part(statement, "not held", numbers)
    return Part(statement, "held" if found and len(found) == len(contrasts) else "not tested here", numbers)


def sweep_parts(families: Mapping[str, Family], parameter: str, low: float, high: float) -> list[Part]:
    """A part per method and value in the range: above the baseline in ROUGE-1 and L."""
    parts = []
    for llm, family in families.items():
        places = dict.fromkeys(key[:4] for key in family if key[3] == BASELINE.name)
        for corpus, setting, method, base in places:
            value = float(setting.removeprefix(f"{parameter} "))
            if low <= value <= high:
                contrasts = [family.get((corpus, setting, method, base, metric)) for metric in (ROUGE_1, ROUGE_L)]
                parts.append(all_of(f"{llm}, {corpus}, {setting}: {method} above {base}", contrasts, "higher"))
    return parts


def falls(families: Mapping[str, Family], parameter: str) -> list[Part]:
    """A part per LLM and corpus: some method is lower at the highest value than at the lowest."""
    return _ends(
        families,
        parameter,
        (ROUGE_1, ROUGE_L),
        f"some method falls in ROUGE-1 or ROUGE-L from the lowest {parameter} to the highest",
        lambda contrasts: any(c.verdict == "lower" for c in contrasts),
    )


def diversity(families: Mapping[str, Family], parameter: str) -> list[Part]:
    """A part per LLM and corpus: every row is more diverse at the highest value."""
    return _ends(
        families,
        parameter,
        (DISTINCT_2,),
        f"every row is more diverse at the highest {parameter} than at the lowest",
        lambda contrasts: all(c.verdict == "higher" for c in contrasts),
    )


def _ends(
    families: Mapping[str, Family],
    parameter: str,
    metrics: Sequence[str],
    statement: str,
    holds: Callable[[list[Contrast]], bool],
) -> list[Part]:
    """Parts about the highest value against the lowest."""
    parts = []
    for llm, family in families.items():
        for corpus in corpora_of(family):
            rows = {
                f"{setting}, {metric.partition(' (')[0]}, {a} − {b}": contrast
                for (of, setting, a, b, metric), contrast in family.items()
                if of == corpus and a.startswith(f"{parameter} ") and metric in metrics
            }
            if rows:
                outcome: Outcome = "held" if holds(list(rows.values())) else "not held"
                numbers = tuple(f"{name}: {_number(contrast)}" for name, contrast in rows.items())
                parts.append(Part(f"{llm}, {corpus}: {statement}", outcome, numbers))
    return parts


def ablation_parts(llm: str, corpus: str, family: Family) -> list[Part]:
    """What claim 7 says of one LLM on one corpus."""

    def compare(statement: str, a: str, b: str) -> Part:
        contrasts = [family.get((corpus, "zero-shot", a, b, metric)) for metric in ROUGES]
        return all_of(f"{llm}, {corpus}: {statement}", contrasts, "higher")

    positions = ("", "(ques-front)", "(ques-rear)")
    parts = [compare(f"ES{p} beats DPR{p}", f"ES{p}", f"DPR{p}") for p in positions]
    parts += [compare(f"{of}{p} beats {of}", f"{of}{p}", of) for of in ("ES", "ES+Dmn", "DPR") for p in positions[1:]]
    parts += [compare(f"ES+Dmn{p} beats ES{p}", f"ES+Dmn{p}", f"ES{p}") for p in positions]
    return parts


def same_trend(families: Mapping[str, Family]) -> list[Part]:
    """Signs of all differences agree between the LLMs, and ChatGLM2-6B's are larger on average."""
    statement = f"all LLMs show the same trend, and {PAPER_LLM} gains more"
    shared = [key for key in next(iter(families.values()), {}) if all(key in f for f in families.values())]
    if len(families) < 2 or not shared:
        return [Part(f"{statement} (needs two LLMs)", "not tested here")]
    agree = sum(len({f[key].difference > 0 for f in families.values()}) == 1 for key in shared)
    means = {llm: sum(f[key].difference for key in shared) / len(shared) for llm, f in families.items()}
    numbers = [f"signs agree in {agree} of {len(shared)} differences"]
    numbers += [f"{llm}: mean difference {mean * _POINTS:+.2f} points" for llm, mean in means.items()]
    if agree < len(shared):
        return [Part(statement, "not held", tuple(numbers))]
    paper = next((llm for llm in families if "chatglm2" in llm.lower()), None)
    if paper is None:
        return [Part(f"{statement} (no {PAPER_LLM} here)", "not tested here", tuple(numbers))]
    return [Part(statement, "held" if means[paper] == max(means.values()) else "not held", tuple(numbers))]


def claim_of(number: int, text: str, parts: Sequence[Part], rule: str, needed: str) -> Claim:
    """The claim with the outcome of its parts; `rule` says when a part is held, `needed` which cells test it."""
    outcomes = [part.outcome for part in parts]
    n_held, n_not = outcomes.count("held"), outcomes.count("not held")
    if not n_held and not n_not:
        return Claim(number, text, "not tested here", f"It needs {needed}.", tuple(parts))
    outcome: Outcome = "not held" if n_not else "held" if n_held == len(parts) else "not tested here"
    untested = outcomes.count("not tested here")
    counts = f"{n_held} of {len(parts)} parts held, {n_not} not held, {untested} not tested. {rule}"
    missing = f" To test all of it, it needs {needed}." if untested else ""
    unshown = (
        " A part that is not held was not shown, which is not the same as refuted: see its verdicts, and the "
        "differences that this n could have missed."
    )
    return Claim(number, text, outcome, counts + missing + (unshown if n_not else ""), tuple(parts))


def numbers_of(contrasts: Iterable[Contrast]) -> tuple[str, ...]:
    """Each contrast as text."""
    return tuple(f"{c.a} − {c.b}, {c.metric}: {_number(c)}" for c in contrasts)


def _number(contrast: Contrast) -> str:
    """Difference with interval, corrected p, n, and what could have been detected."""
    c = contrast
    bounds = "" if c.low is None or c.high is None else f" [{c.low * _POINTS:+.2f}, {c.high * _POINTS:+.2f}]"
    p = "" if c.p_holm is None else f", p {c.p_holm:.4f}"
    shown = "no difference shown" if c.verdict == "not shown" else c.verdict
    smallest = "" if c.detectable is None else f", detectable {c.detectable * _POINTS:.2f}"
    return f"{c.difference * _POINTS:+.2f}{bounds} points{p}, n {c.n}{smallest}: {shown}"
