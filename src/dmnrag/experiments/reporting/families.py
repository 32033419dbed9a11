"""Which differences are tested together: a family per table, corrected by Holm inside it.

Only arms in which every question has its answer take part. Length-matched differences (see `score`) are a second
family of the same pairs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from dmnrag.errors import DataError
from dmnrag.experiments.reporting.measures.agreement import DOMAIN_AGREEMENT
from dmnrag.experiments.reporting.measures.more import DISTINCT_2
from dmnrag.experiments.reporting.panels import Panel, domain_text
from dmnrag.experiments.reporting.study import Arm, Columns, Corpus, Study, mean_over_repeats
from dmnrag.experiments.score import length_matched_rouge
from dmnrag.experiments.statistics import Contrast, contrast, corrected, resamples_for
from dmnrag.methods import BASELINE, METHODS, find_method

ROUGES = ("ROUGE-1 (word)", "ROUGE-2 (word)", "ROUGE-L (word)")
SWEEP_METRICS = ("ROUGE-1 (word)", "ROUGE-L (word)")
"""What figures 2 to 5 show."""
COPY = "copy-first"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two arms over the same questions."""

    corpus: Corpus
    a: Arm
    b: Arm
    names: tuple[str, str]
    setting: str
    """What both share: "zero-shot", "temperature 0.4"."""


@dataclass(frozen=True, slots=True)
class Tested:
    """A difference with its corrected p."""

    corpus: str
    setting: str
    contrast: Contrast

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """corpus, setting, a, b, metric."""
        return self.corpus, self.setting, self.contrast.a, self.contrast.b, self.contrast.metric


Family = Mapping[tuple[str, str, str, str, str], Contrast]
"""(corpus, setting, a, b, metric) -> the contrast."""


def tested(pairs: Sequence[Pair], metrics: Sequence[str]) -> Family:
    """Each pair in each metric that both have, as one family."""
    return _family([(pair, pair.a.values, pair.b.values) for pair in pairs], metrics)


def tested_length_matched(pairs: Sequence[Pair]) -> Family:
    """The pairs in ROUGE by word, the longer of two answers cut to the shorter one, as one family."""
    whole = [pair for pair in pairs if pair.a.complete and pair.b.complete]
    return _family([(pair, *_matched_columns(pair)) for pair in whole], ROUGES)


def method_pairs(study: Study, panel: Panel) -> list[Pair]:
    """Each method against the baseline, and each row zero-shot against LoRA."""
    pairs = []
    for corpus in _corpora(study, panel):
        for generation in panel.generations(corpus.name):
            base = panel.find(corpus.name, BASELINE.name, generation)
            for method in METHODS:
                arm = panel.find(corpus.name, method.name, generation)
                if method != BASELINE and base and arm:
                    pairs.append(Pair(corpus, arm, base, (method.name, BASELINE.name), generation))
        for row in panel.rows:
            zero_shot, lora = (panel.find(corpus.name, row, generation) for generation in ("zero-shot", "lora"))
            if zero_shot and lora:
                pairs.append(Pair(corpus, zero_shot, lora, ("zero-shot", "lora"), row))
    return pairs


def copy_pairs(study: Study, panel: Panel) -> list[Pair]:
    """Each method against the first of its own documents, copied as the answer."""
    pairs = []
    for corpus in _corpora(study, panel):
        copies = [a for a in panel.arms if a.cell.corpus == corpus.name and a.cell.control == COPY]
        for generation in panel.generations(corpus.name):
            for method in METHODS:
                arm = panel.find(corpus.name, method.name, generation)
                copy = next((c for c in copies if find_method(c.cell.method).joint == method.joint), None)
                if arm and copy:
                    pairs.append(Pair(corpus, arm, copy, (method.name, COPY), generation))
    return pairs


def ablation_pairs(study: Study, panel: Panel) -> list[Pair]:
    """What claim 7 compares: ES against DPR, a prompt with the domain against none, joint against plain retrieval."""
    named = [
        (f"{layer}{position}", f"{layer}")
        for layer in ("ES", "ES+Dmn", "DPR")
        for position in ("(ques-front)", "(ques-rear)")
    ]
    named += [(f"ES+Dmn{position}", f"ES{position}") for position in ("", "(ques-front)", "(ques-rear)")]
    named += [(f"ES{position}", f"DPR{position}") for position in ("", "(ques-front)", "(ques-rear)")]
    return [
        Pair(corpus, first, second, (a, b), "zero-shot")
        for corpus in _corpora(study, panel)
        for a, b in named
        for first, second in [(panel.find(corpus.name, a), panel.find(corpus.name, b))]
        if first and second
    ]


def sweep_pairs(study: Study, arms: Sequence[Arm], parameter: str) -> list[Pair]:
    """At each value of a parameter each method against the baseline; each row's highest value against its lowest."""
    pairs = []
    for corpus in study.corpora:
        found = {
            (arm.cell.row, value): arm
            for arm in arms
            if arm.cell.corpus == corpus.name and (value := parameter_of(arm, parameter)) is not None
        }
        values = sorted({value for _, value in found})
        for value in values:
            base = found.get((BASELINE.name, value))
            for row in [row for row, at in found if at == value and row != BASELINE.name]:
                if base:
                    pairs.append(Pair(corpus, found[row, value], base, (row, BASELINE.name), f"{parameter} {value:g}"))
        for row in dict.fromkeys(row for row, _ in found):
            at = [value for value in values if (row, value) in found]
            if len(at) > 1:
                names = (f"{parameter} {at[-1]:g}", f"{parameter} {at[0]:g}")
                pairs.append(Pair(corpus, found[row, at[-1]], found[row, at[0]], names, row))
    return pairs


def noise_pairs(study: Study, arms: Sequence[Arm]) -> list[Pair]:
    """Each method against the baseline, whose domain does not matter, for each source of the domain."""
    pairs = []
    for corpus in study.corpora:
        own = [arm for arm in arms if arm.cell.corpus == corpus.name]
        base = next((arm for arm in own if arm.cell.row == BASELINE.name), None)
        for arm in own:
            if base and arm.cell.row != BASELINE.name:
                pairs.append(Pair(corpus, arm, base, (arm.cell.row, BASELINE.name), f"domain {domain_text(arm)}"))
    return pairs


def sweep_metrics() -> tuple[str, ...]:
    """ROUGE of the figures, and diversity (claim 6)."""
    return (*SWEEP_METRICS, DISTINCT_2)


def agreement_metrics() -> tuple[str, ...]:
    """Claim 8."""
    return (DOMAIN_AGREEMENT,)


def parameter_of(arm: Arm, parameter: str) -> float | None:
    """Temperature or top_k of an arm; None where it is the model's own."""
    value = arm.cell.parameters.temperature if parameter == "temperature" else arm.cell.parameters.top_k
    return None if value is None else float(value)


def all_pairs(study: Study) -> list[Pair]:
    """Every two systems of a folder of answers made elsewhere."""
    return [
        Pair(corpus, a, b, (a.cell.row, b.cell.row), "")
        for corpus in study.corpora
        for a, b in combinations(corpus.arms, 2)
    ]


def _corpora(study: Study, panel: Panel) -> list[Corpus]:
    return [corpus for corpus in study.corpora if corpus.name in panel.corpora()]


def _family(rows: Iterable[tuple[Pair, Columns, Columns]], metrics: Sequence[str]) -> Family:
    wanted = [(pair, m, (a[m], b[m])) for pair, a, b in rows for m in metrics if m in a and m in b]
    resamples = resamples_for(len(wanted))
    found = [
        Tested(pair.corpus.name, pair.setting, result)
        for pair, metric, columns in wanted
        if (result := contrast(pair.names, metric, columns, pair.corpus.clusters, resamples=resamples)) is not None
    ]
    adjusted = corrected([t.contrast for t in found])
    family = {t.key: replace(t.contrast, p_holm=c.p_holm) for t, c in zip(found, adjusted, strict=True)}
    if len(family) < len(found):
        keys = [t.key for t in found]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DataError(f"two comparisons have the same name ({', '.join(twice)}): give their cells different rows")
    return family


def _matched_columns(pair: Pair) -> tuple[Columns, Columns]:
    repeats = zip(pair.a.answers, pair.b.answers, strict=False)  # as many as both have
    cut = [length_matched_rouge(_texts(a), _texts(b), pair.corpus.questions) for a, b in repeats]
    first, second = ({m: mean_over_repeats([c[i][m] for c in cut]) for m in ROUGES} for i in (0, 1))
    return first, second


def _texts(answers: Sequence[str | None]) -> list[str]:
    return [(text or "").strip() for text in answers]
