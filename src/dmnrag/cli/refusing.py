"""No answer without evidence, for `ask`: judged before an LLM is loaded."""

import time
from dataclasses import dataclass, replace
from typing import Any

from dmnrag.cli.console import talk
from dmnrag.methods import Method
from dmnrag.pipeline import AskSettings, Pipeline, Searched
from dmnrag.refusal import EvidenceModel, Verdict, refusal_text
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.types import Answer, Prompt, Query


@dataclass(frozen=True, slots=True)
class Judged:
    """The evidence for one question."""

    verdict: Verdict | None = None
    """None where nothing can be judged: the index was never calibrated, or for another way of searching."""
    searched: Searched | None = None
    """What was found, so that nothing is searched twice."""
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
    if replace(retrieval, use=method.use) != RetrievalSettings(k=retrieval.k, layer=retrieval.layer, use=method.use):
        talk("evidence is not judged: it is calibrated without reranker, filter and other settings of the search")
        return Judged()
    if retrieval.use.weight != 1:
        talk("evidence is not judged: it is calibrated with a domain weight of 1")
        return Judged()
    if model.is_stale(index):
        talk("the index has changed since it was calibrated; `dmnrag calibrate` renews it")
    started = time.perf_counter()
    [layers] = pipeline.search_layers([query], retrieval)
    verdict = model.judge(index, query, layers)
    searched_ms = 1000 * (time.perf_counter() - started)
    if verdict.enough:
        return Judged(verdict, Searched(tuple(layers.hits), searched_ms))
    refusal = Answer(
        text=refusal_text(query.text, verdict.score, verdict.threshold),
        hits=tuple(layers.hits),
        domain=query.domain,
        prompt=Prompt(""),
        method=method.name,
        llm="none",
        refused=True,
        timings_ms={"retrieval": searched_ms, "generation": 0.0},
    )
    return Judged(verdict, refusal=refusal)


def verdict_to_dict(verdict: Verdict | None) -> dict[str, Any] | None:
    """The documented shape of `evidence` in `ask --json`; null where it was not judged."""
    if verdict is None:
        return None
    return {"score": verdict.score, "threshold": verdict.threshold, "enough": verdict.enough}
