"""From a study to the plans of figures 2 to 5: an LLM and a parameter each, a row per corpus."""

from collections.abc import Sequence

from dmnrag.experiments.reporting.families import SWEEP_METRICS, parameter_of
from dmnrag.experiments.reporting.figures import Chart, FigurePlan, Line
from dmnrag.experiments.reporting.study import Arm, Corpus, Study

PARAMETERS = ("temperature", "top_k")


def sweep_arms(study: Study, parameter: str) -> dict[str, list[Arm]]:
    """LLM -> the arms of a sweep; the figures' names in cells are the parameters' names."""
    found: dict[str, list[Arm]] = {}
    for arm in study.arms:
        if parameter in arm.cell.table:
            found.setdefault(arm.cell.llm or "", []).append(arm)
    return found


def figure_plans(study: Study) -> list[FigurePlan]:
    """A plan per parameter and LLM that a sweep was run for; incomplete arms leave a gap."""
    plans = []
    for parameter in PARAMETERS:
        for number, (llm, arms) in enumerate(sweep_arms(study, parameter).items(), start=1):
            charts = tuple(_charts(corpus, arms, parameter) for corpus in study.corpora if _of(corpus, arms))
            if not charts:
                continue
            missing = [arm for arm in arms if not arm.complete]
            gap = f" {len(missing)} of {len(arms)} cells are incomplete and left out." if missing else ""
            sizes = ", ".join(f"{c.name} n = {len(c.questions):,}" for c in study.corpora if _of(c, arms))
            caption = (
                f"ROUGE-1 and ROUGE-L (F1 by word, points) over {parameter}, {llm}, zero-shot; bands: 95 % bootstrap "
                f"interval; {sizes}.{gap}"
            )
            plans.append(FigurePlan(f"{parameter}-{number}", caption, parameter, charts))
    return plans


def _of(corpus: Corpus, arms: Sequence[Arm]) -> list[Arm]:
    return [arm for arm in arms if arm.cell.corpus == corpus.name and arm.complete]


def _charts(corpus: Corpus, arms: Sequence[Arm], parameter: str) -> tuple[Chart, ...]:
    own = _of(corpus, arms)
    rows = list(dict.fromkeys(arm.cell.row for arm in own))
    return tuple(
        Chart(
            corpus.name,
            metric.partition(" (")[0],
            tuple(corpus.clusters),
            tuple(Line(row, _points([arm for arm in own if arm.cell.row == row], parameter, metric)) for row in rows),
        )
        for metric in SWEEP_METRICS
    )


def _points(arms: Sequence[Arm], parameter: str, metric: str) -> tuple[tuple[float, tuple[float | None, ...]], ...]:
    points = [
        (value, arm.values[metric])
        for arm in arms
        if (value := parameter_of(arm, parameter)) is not None and metric in arm.values
    ]
    return tuple(sorted(points, key=lambda point: point[0]))
