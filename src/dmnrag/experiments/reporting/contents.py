"""Everything that a report says, as values: sections of tables and figures, claims, examples."""

from collections.abc import Sequence
from dataclasses import dataclass

from dmnrag.experiments.records import ABLATIONS_TABLE, METHODS_TABLE, NOISE_TABLE
from dmnrag.experiments.reporting.claim_parts import Claim
from dmnrag.experiments.reporting.claims import Findings, claims_table, judge_claims
from dmnrag.experiments.reporting.domains import domains_table
from dmnrag.experiments.reporting.examples import Difference, largest_differences
from dmnrag.experiments.reporting.families import (
    ROUGES,
    Family,
    Pair,
    ablation_pairs,
    agreement_metrics,
    all_pairs,
    copy_pairs,
    method_pairs,
    noise_pairs,
    sweep_metrics,
    sweep_pairs,
    tested,
    tested_length_matched,
)
from dmnrag.experiments.reporting.figures import FigurePlan
from dmnrag.experiments.reporting.methods_tables import characters_table, differences_table, scores_table
from dmnrag.experiments.reporting.more_tables import (
    beyond_table,
    cost_table,
    data_table,
    given_table,
    noise_table,
    retrieval_table,
    seeds_table,
)
from dmnrag.experiments.reporting.panels import Panel, panels
from dmnrag.experiments.reporting.study import Arm, Corpus, Study
from dmnrag.experiments.reporting.sweeps import figure_plans, sweep_arms
from dmnrag.experiments.reporting.table import Table
from dmnrag.experiments.statistics import corrected, resamples_for, summarise
from dmnrag.methods import BASELINE, DEFAULT


@dataclass(frozen=True, slots=True)
class Section:
    """Tables and figures under one heading."""

    name: str
    title: str
    tables: tuple[Table, ...]
    figures: tuple[FigurePlan, ...] = ()


@dataclass(frozen=True, slots=True)
class ExampleGroup:
    """Questions on which two ways of answering differ most."""

    title: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What the files of a report are made of."""

    study: Study
    claims: tuple[Claim, ...]
    """Empty for answers made elsewhere: of these nothing is known that the claims speak of."""
    sections: tuple[Section, ...]
    examples: tuple[ExampleGroup, ...]

    @property
    def tables(self) -> list[Table]:
        """Those of all sections, and the claims as one."""
        claims = [claims_table(self.claims)] if self.claims else []
        return claims + [table for section in self.sections for table in section.tables]

    @property
    def figures(self) -> list[FigurePlan]:
        """Those of all sections."""
        return [figure for section in self.sections for figure in section.figures]


def build_report(study: Study, more: Sequence[Section] = ()) -> Report:
    """All tables, tests and claims of a study; `more` are sections that come from people or LLMs as judges."""
    if study.foreign:
        return _foreign_report(study, more)
    methods = _with_numbers(panels(study, METHODS_TABLE))
    ablations = _with_numbers(panels(study, ABLATIONS_TABLE))
    sweeps = {parameter: sweep_arms(study, parameter) for parameter in ("temperature", "top_k")}
    findings = Findings(
        methods={p.title: tested(method_pairs(study, p), ROUGES) for _, p in methods},
        ablations={p.title: tested(ablation_pairs(study, p), ROUGES) for _, p in ablations},
        temperature=_sweep_families(study, sweeps["temperature"], "temperature"),
        top_k=_sweep_families(study, sweeps["top_k"], "top_k"),
        agreement={p.title: tested(method_pairs(study, p), agreement_metrics()) for _, p in methods},
    )
    sections = [
        Section("methods", "Methods (tables 3 and 4 of the paper)", _methods(study, methods, findings)),
        Section("ablations", "Ablations (tables 5 and 6 of the paper)", _ablations(study, ablations, findings)),
        Section("parameters", "Temperature and top_k (figures 2 to 5 of the paper)", *_parameters(study, findings)),
        Section("retrieval", "Retrieval", _retrieval(study, methods)),
        Section("beyond-rouge", "More than ROUGE", _beyond(study, methods, findings)),
        *more,
        Section("domains", "By domain", _domains(study, methods)),
        Section("noise", "Domains that are wrong", _noise(study)),
        Section("sampling", "Sampled decoding", _some(seeds_table(study, "seeds"))),
        Section("data", "Data", _data(study)),
        Section("cost", "Cost and time", _some(cost_table(study, "cost"))),
    ]
    return Report(
        study, tuple(judge_claims(findings)), _kept(sections), _examples(study, methods, DEFAULT.name, BASELINE.name)
    )


def _foreign_report(study: Study, more: Sequence[Section]) -> Report:
    """Answers made elsewhere: every two systems compared, plainly and at equal length."""
    numbered = _with_numbers([_foreign_panel(study)])
    pairs = all_pairs(study)
    family, matched = tested(pairs, ROUGES), tested_length_matched(pairs)
    ((_, panel),) = numbered
    scores = (
        scores_table(study, panel, "systems", "Systems", {}, _unanswered_notes(study)),
        differences_table("systems-differences", "Every two systems", family, matched),
        characters_table(study, panel, "systems-characters", "Systems, by character"),
    )
    beyond = beyond_table(study, panel, "beyond-rouge", {})
    sections = [
        Section("systems", "Systems", scores),
        Section("beyond-rouge", "More than ROUGE", (beyond,)),
        *more,
        Section("domains", "By domain", _domains(study, numbered)),
        Section("data", "Data", _data(study)),
    ]
    a, b = _furthest(pairs, family)
    return Report(study, (), _kept(sections), _examples(study, numbered, a, b))


def _unanswered_notes(study: Study) -> list[str]:
    found = [(arm.cell.row, sum(not text for text in arm.answers[0]), arm.n) for arm in study.arms]
    return [f"{name}: {missing} of {n} questions have no answer and score 0." for name, missing, n in found if missing]


def _foreign_panel(study: Study) -> Panel:
    return Panel("", "", tuple(study.arms))


def _methods(study: Study, numbered: Sequence[tuple[str, Panel]], findings: Findings) -> tuple[Table, ...]:
    tables = []
    for number, panel in numbered:
        pairs = method_pairs(study, panel)
        family = findings.methods[panel.title]
        copies = tested(copy_pairs(study, panel), ROUGES)
        scores = scores_table(study, panel, f"methods-{number}", panel.titled("Methods"), family, _copy_notes(copies))
        tables.append(scores)
        if family:
            title = panel.titled("Differences between methods")
            matched = tested_length_matched(pairs)
            tables.append(differences_table(f"methods-{number}-differences", title, family, matched))
        if copies:
            title = panel.titled("Methods against copying the first document")
            tables.append(differences_table(f"methods-{number}-copying", title, copies))
        title = panel.titled("Methods, by character")
        tables.append(characters_table(study, panel, f"methods-{number}-characters", title))
    return tuple(tables)


def _copy_notes(copies: Family) -> list[str]:
    """Which methods are not shown to beat copying, in which measures."""
    metrics: dict[tuple[str, str, str], list[str]] = {}
    for (corpus, setting, method, _, metric), contrast in copies.items():
        if contrast.verdict != "higher":
            metrics.setdefault((corpus, setting, method), []).append(metric.partition(" (")[0])
    methods: dict[tuple[str, str, str], list[str]] = {}
    for (corpus, setting, method), names in metrics.items():
        methods.setdefault((corpus, setting, ", ".join(names)), []).append(method)
    return [
        f"{corpus}, {setting}: not shown to beat copying the answer of the first document in {names}: {', '.join(of)}."
        for (corpus, setting, names), of in methods.items()
    ]


def _ablations(study: Study, numbered: Sequence[tuple[str, Panel]], findings: Findings) -> tuple[Table, ...]:
    tables = []
    for number, panel in numbered:
        family = findings.ablations[panel.title]
        tables.append(scores_table(study, panel, f"ablations-{number}", panel.titled("Ablations, zero-shot"), family))
        if family:
            title = panel.titled("Differences between ablations")
            matched = tested_length_matched(ablation_pairs(study, panel))
            tables.append(differences_table(f"ablations-{number}-differences", title, family, matched))
    return tuple(tables)


def _sweep_families(study: Study, arms: dict[str, list[Arm]], parameter: str) -> dict[str, Family]:
    return {llm: tested(sweep_pairs(study, own, parameter), sweep_metrics()) for llm, own in arms.items()}


def _parameters(study: Study, findings: Findings) -> tuple[tuple[Table, ...], tuple[FigurePlan, ...]]:
    tables = [
        differences_table(f"{parameter}-{number}-differences", f"Differences over {parameter}: {llm}", family)
        for parameter, families in (("temperature", findings.temperature), ("top_k", findings.top_k))
        for number, (llm, family) in enumerate(families.items(), start=1)
        if family
    ]
    return tuple(tables), tuple(figure_plans(study))


def _retrieval(study: Study, numbered: Sequence[tuple[str, Panel]]) -> tuple[Table, ...]:
    tables = []
    for number, corpus in enumerate(study.corpora, start=1):
        if corpus.retrieval is not None:
            tables += _retrieval_of(corpus, number)
    tables += [t for n, panel in numbered if (t := given_table(study, panel, f"documents-{n}")) is not None]
    return tuple(tables)


def _retrieval_of(corpus: Corpus, number: int) -> list[Table]:
    assert corpus.retrieval is not None
    found = corpus.retrieval
    n_metrics = len({metric for by_metric in found.values.values() for metric in by_metric})
    resamples = resamples_for(len(found.pairs) * n_metrics)
    evaluation = summarise(found.values, found.clusters, found.pairs, resamples=resamples)
    tables = [retrieval_table(corpus, evaluation, f"retrieval-{number}")]
    family = {(corpus.name, "", c.a, c.b, c.metric): c for c in corrected(evaluation.comparisons)}
    if family:
        title = f"Differences between retrieval systems: {corpus.name}"
        tables.append(differences_table(f"retrieval-{number}-differences", title, family))
    return tables


def _beyond(study: Study, numbered: Sequence[tuple[str, Panel]], findings: Findings) -> tuple[Table, ...]:
    tables = []
    for number, panel in numbered:
        family = findings.agreement[panel.title]
        tables.append(beyond_table(study, panel, f"beyond-rouge-{number}", family))
        if family:
            title = panel.titled("Domain agreement of the answers")
            tables.append(differences_table(f"beyond-rouge-{number}-agreement", title, family))
    return tuple(tables)


def _domains(study: Study, numbered: Sequence[tuple[str, Panel]]) -> tuple[Table, ...]:
    tables: list[Table] = []
    for number, panel in numbered:
        reference = BASELINE.name if BASELINE.name in panel.rows else panel.rows[0]
        for place, corpus in enumerate(study.corpora, start=1):
            tables += _some(domains_table(corpus, panel, reference, f"domains-{number}-{place}"))
    return tuple(tables)


def _noise(study: Study) -> tuple[Table, ...]:
    arms = [arm for arm in study.arms if NOISE_TABLE in arm.cell.table]
    tables = []
    for number, llm in enumerate(dict.fromkeys(arm.cell.llm or "" for arm in arms), start=1):
        own = [arm for arm in arms if arm.cell.llm == llm]
        tables.append(noise_table(study, own, llm, f"noise-{number}"))
        family = tested(noise_pairs(study, own), ROUGES)
        if family:
            title = f"What of the gain survives: {llm}"
            tables.append(differences_table(f"noise-{number}-differences", title, family))
    return tuple(tables)


def _data(study: Study) -> tuple[Table, ...]:
    return tuple(data_table(corpus, f"data-{n}") for n, corpus in enumerate(study.corpora, start=1))


def _examples(study: Study, numbered: Sequence[tuple[str, Panel]], a: str, b: str) -> tuple[ExampleGroup, ...]:
    groups = []
    for _, panel in numbered:
        for corpus in study.corpora:
            first, second = panel.find(corpus.name, a), panel.find(corpus.name, b)
            if first and second:
                title = ", ".join(filter(None, (corpus.name, panel.title, f"{a} and {b}")))
                groups.append(ExampleGroup(title, tuple(largest_differences(corpus, first, second))))
    return tuple(group for group in groups if group.differences)


def _furthest(pairs: Sequence[Pair], family: Family) -> tuple[str, str]:
    """The two systems whose ROUGE-L lies furthest apart; twice the same name where there is one system."""
    gaps = {key[2:4]: abs(c.difference) for key, c in family.items() if key[4] == ROUGES[2]}
    return max(gaps, key=lambda names: gaps[names]) if gaps else ("", "")


def _with_numbers(found: Sequence[Panel]) -> list[tuple[str, Panel]]:
    return [(str(number), panel) for number, panel in enumerate(found, start=1)]


def _some(table: Table | None) -> tuple[Table, ...]:
    return () if table is None else (table,)


def _kept(sections: Sequence[Section]) -> tuple[Section, ...]:
    return tuple(section for section in sections if section.tables or section.figures)
