"""No answer without evidence, for `ask`: judged before an LLM is loaded."""

import time
from dataclasses import dataclass
from typing import Any

from dmnrag.cli.console import talk
from dmnrag.methods import Method
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.refusal import EvidenceModel, Verdict
from dmnrag.types import Answer, Prompt, Query


@dataclass(frozen=True, slots=True)
class Judged:
    """The evidence for one question."""

    verdict: Verdict | None = None
    """None where nothing can be judged: the index was never calibrated, or for another way of searching."""
    refusal: Answer | None = None
    """What stands for the answer where the evidence is not enough."""


def judge_evidence(pipeline: Pipeline, query: Query, method: Method, settings: AskSettings) -> Judged:
    """Search and judge what is found; says on stderr why it is not judged, or not exactly."""
    index = pipeline.index
    model = EvidenceModel.load(index.folder)
    if model is None:
        return Judged()
    retrieval = pipeline.retrieval_settings(method, settings)
    if not model.covers(retrieval.layer, retrieval.k):
        talk(
            f"evidence is not judged: the index is calibrated for layer {model.stored.layer} and k from "
            f"{model.stored.k} on; `dmnrag calibrate` does it for another"
        )
        return Judged()
    if model.is_stale(index):
        talk("the index has changed since it was calibrated; `dmnrag calibrate` renews it")
    started = time.perf_counter()
    [layers] = pipeline.search_layers([query], retrieval)
    verdict = model.judge(index, query, layers)
    if verdict.enough:
        return Judged(verdict)
    refusal = Answer(
        text=(
            f"No answer: the evidence found is too weak (score {verdict.score:.2f}, threshold {verdict.threshold:.2f})."
        ),
        hits=tuple(layers.hits),
        domain=query.domain,
        prompt=Prompt(""),
        method=method.name,
        llm="none",
        refused=True,
        timings_ms={"retrieval": 1000 * (time.perf_counter() - started), "generation": 0.0},
    )
    return Judged(verdict, refusal)


def verdict_to_dict(verdict: Verdict | None) -> dict[str, Any] | None:
    """The documented shape of `evidence` in `ask --json`; null where it was not judged."""
    if verdict is None:
        return None
    return {"score": verdict.score, "threshold": verdict.threshold, "enough": verdict.enough}
