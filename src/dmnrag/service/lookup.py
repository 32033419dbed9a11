"""From questions to what is known before an LLM is asked: domain, method, documents, evidence. In the search thread.

Many questions at once: domains are inferred together, and questions with equal settings are searched together. What can
be seen to be wrong with one question is its result and no other's; what the index raises is that of all it searched.

Labels that a key may not see (`Wanted.allowed`) take part in nothing: hits are filtered before ranking in both layers,
such a domain is as unknown as one that no document has, and one that was inferred is left out.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from dmnrag.domain import Inference
from dmnrag.errors import ConfigError, DmnragError, QueryError
from dmnrag.index import Index
from dmnrag.index.labels import parse_domain, resolve_domain
from dmnrag.llm.adapters import AdapterRecord
from dmnrag.methods import Method
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.layers import LayerHits, RetrievalSettings
from dmnrag.service.events import AUTO, Evidence, Inferred
from dmnrag.types import Document, Domain, Hit, Layer, Query


class Verdict(Protocol):
    """Of `dmnrag.refusal`."""

    @property
    def score(self) -> float:
        """Probability that the documents hold the answer."""

    @property
    def threshold(self) -> float:
        """Below it the question is refused."""

    @property
    def enough(self) -> bool:
        """Not refused."""


class EvidenceJudge(Protocol):
    """What judges evidence: `dmnrag.refusal.EvidenceModel`."""

    @property
    def k(self) -> int:
        """Hits that it looks at."""

    def covers(self, layer: Layer, k: int) -> bool:
        """Whether it is calibrated for this way of searching."""

    def judge(self, index: Index, query: Query, layers: LayerHits, inferred: Inference | None) -> Verdict:
        """Whether what was found is enough."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One question to look up."""

    pipeline: Pipeline
    judge: EvidenceJudge | None
    question: str
    """Whole, and found usable by `check_question`."""
    earlier: tuple[str, ...]
    """Questions of the same conversation, oldest first: their domain holds where this one tells none."""
    domain: str | Domain | None
    """As in `Asked`."""
    method: str | None
    layer: Layer
    k: int
    adapter: AdapterRecord | None = None
    """What the LLM's adapter was trained for."""
    allowed: frozenset[str] | None = None
    """Labels that the key may see."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What is known of a question."""

    query: Query
    inferred: Inferred | None
    method: Method
    hits: tuple[Hit, ...]
    documents: tuple[Document, ...]
    """Of the hits, in their order."""
    evidence: Evidence | None
    took_ms: float
    """Of the batch that it was looked up with."""


@dataclass(frozen=True, slots=True)
class _Plan:
    wanted: Wanted
    query: Query
    inference: Inference | None
    inferred: Inferred | None
    method: Method
    settings: RetrievalSettings


def look_up(batch: Sequence[Wanted]) -> list[Looked | DmnragError]:
    """What is known of each question, or what is wrong with it."""
    started = time.perf_counter()
    results: list[Looked | DmnragError | None] = [None] * len(batch)
    groups: dict[tuple[int, RetrievalSettings], list[tuple[int, _Plan]]] = defaultdict(list)
    for place, (wanted, inferences) in enumerate(zip(batch, _infer(batch), strict=True)):
        plan = _plan(wanted, inferences)
        if isinstance(plan, DmnragError):
            results[place] = plan
        else:
            groups[id(wanted.pipeline), plan.settings].append((place, plan))
    for group in groups.values():
        found = _search([plan for _, plan in group])
        for (place, plan), layers in zip(group, found, strict=True):
            results[place] = layers if isinstance(layers, DmnragError) else _looked(plan, *layers, started)
    return [result for result in results if result is not None]


def visible(domains: dict[Domain, int], allowed: frozenset[str] | None) -> dict[Domain, int]:
    """The domains that a key may see: those with one of its labels."""
    return {path: n for path, n in domains.items() if allowed is None or not allowed.isdisjoint(path)}


def _infer(batch: Sequence[Wanted]) -> list[list[Inference]]:
    """For questions without a given domain: inferences from the question, then from earlier ones, latest first."""
    texts: dict[Pipeline, dict[str, Inference | None]] = defaultdict(dict)
    for wanted in batch:
        texts[wanted.pipeline].update(dict.fromkeys(_inferred_from(wanted)))
    for pipeline, of_texts in texts.items():
        of_texts.update(zip(of_texts, pipeline.infer(list(of_texts)), strict=True) if of_texts else ())
    found = [[texts[wanted.pipeline][text] for text in _inferred_from(wanted)] for wanted in batch]
    return [[inference for inference in row if inference is not None] for row in found]


def _inferred_from(wanted: Wanted) -> list[str]:
    return [wanted.question, *reversed(wanted.earlier)] if wanted.domain == AUTO else []


def _plan(wanted: Wanted, inferences: Sequence[Inference]) -> _Plan | DmnragError:
    try:
        inferred = _choose_inference(inferences, wanted.allowed)
        domain = _given(wanted) if inferred is None else inferred.domain
        method = wanted.pipeline.choose_method(wanted.method, domain, wanted.adapter)
        only = None if wanted.allowed is None else tuple(sorted(wanted.allowed))
        # Fewer than the judge looks at are cut afterwards: who asks for one document is refused like everybody else.
        k = wanted.k if wanted.judge is None else max(wanted.k, wanted.judge.k)
        settings = RetrievalSettings(k=k, layer=wanted.layer, use=method.use, only=only)
    except QueryError as error:
        return error
    except ConfigError as error:  # a method that is not there, or wants a domain
        return QueryError(str(error))
    query = Query("1", wanted.question, domain)
    return _Plan(wanted, query, inferences[0] if inferences else None, inferred, method, settings)


def _choose_inference(inferences: Sequence[Inference], allowed: frozenset[str] | None) -> Inferred | None:
    """What the question tells, else what the latest question before it does; None where the domain is given."""
    if not inferences:
        return None
    shown = [_shown(inference, allowed) for inference in inferences]
    return next((inferred for inferred in shown if not inferred.abstained), shown[0])


def _shown(inference: Inference, allowed: frozenset[str] | None) -> Inferred:
    alternatives = tuple(inference.alternatives)
    inferred = Inferred(inference.domain, inference.probability, inference.abstained, alternatives)
    if allowed is None:
        return inferred
    inferred = replace(inferred, alternatives=tuple((name, p) for name, p in alternatives if name in allowed))
    if allowed.isdisjoint(inference.domain):
        return replace(inferred, domain=(), probability=0.0, abstained=True)
    return inferred


def _given(wanted: Wanted) -> Domain:
    if not wanted.domain:
        return ()
    given = parse_domain(wanted.domain) if isinstance(wanted.domain, str) else wanted.domain
    known = visible(wanted.pipeline.index.domains, wanted.allowed)
    return resolve_domain(given, known, cure="GET /v1/domains lists all, null is none")


def _search(plans: Sequence[_Plan]) -> Sequence[tuple[LayerHits, tuple[Document, ...]] | DmnragError]:
    """Questions of one pipeline with equal settings."""
    pipeline = plans[0].wanted.pipeline
    try:
        found = pipeline.search_layers([plan.query for plan in plans], plans[0].settings)
        doc_ids = list(dict.fromkeys(hit.doc_id for layers in found for hit in layers.hits))
        documents = dict(zip(doc_ids, pipeline.index.documents(doc_ids), strict=True))
    except ConfigError as error:  # a layer that this index does not have
        return [QueryError(str(error))] * len(plans)
    except DmnragError as error:
        return [error] * len(plans)
    return [(layers, tuple(documents[hit.doc_id] for hit in layers.hits)) for layers in found]


def _looked(plan: _Plan, layers: LayerHits, documents: tuple[Document, ...], started: float) -> Looked:
    return Looked(
        query=plan.query,
        inferred=plan.inferred,
        method=plan.method,
        hits=tuple(layers.hits[: plan.wanted.k]),
        documents=documents[: plan.wanted.k],
        evidence=_evidence(plan, layers),
        took_ms=(time.perf_counter() - started) * 1000,
    )


def _evidence(plan: _Plan, layers: LayerHits) -> Evidence | None:
    judge = plan.wanted.judge
    if judge is None or not layers.hits or not judge.covers(plan.settings.layer, plan.settings.k):
        return None
    verdict = judge.judge(plan.wanted.pipeline.index, plan.query, layers, plan.inference)
    return Evidence(verdict.score, verdict.threshold, verdict.enough)
