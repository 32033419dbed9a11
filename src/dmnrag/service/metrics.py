"""Counters and gauges for Prometheus, of one app: nothing is global, so apps of one process do not mix."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dmnrag.service.engine import Engine
from dmnrag.service.events import Finished, Started

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""From a health check to the longest answer."""
_METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS"})
"""Others count as one: a client must not be able to make series of its own."""


class Metrics:
    """What the service counts. For the event loop's thread."""

    def __init__(self, engine: Engine) -> None:
        """Count what `engine` finishes from now on, and show its gauges."""
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "dmnrag_requests", "Requests by route.", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "dmnrag_request_seconds",
            "Time to the end of the response, of a stream to its last piece.",
            ["route"],
            registry=self._registry,
            buckets=_BUCKETS_S,
        )
        self._faults = Counter(
            "dmnrag_faults",
            "Requests and questions of the page that failed by a fault of service, index or LLM, also within a stream.",
            registry=self._registry,
        )
        self._answers = Counter(
            "dmnrag_answers", "Finished answers by outcome.", ["outcome", "method"], registry=self._registry
        )
        self._tokens = Counter("dmnrag_tokens", "Tokens of prompts and answers.", ["kind"], registry=self._registry)
        self._registry.register(_EngineGauges(engine))
        engine.observers.append(self._count_answer)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """One finished request; `route` is the pattern, not the path."""
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_fault(self) -> None:
        """Something failed and it was not the asker's fault (`http_errors.is_fault`)."""
        self._faults.inc()

    def _count_answer(self, started: Started, finished: Finished) -> None:
        self._answers.labels(finished.outcome, started.method).inc()
        self._tokens.labels("prompt").inc(finished.usage.prompt_tokens)
        self._tokens.labels("completion").inc(finished.usage.completion_tokens)

    def exposition(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)


class _EngineGauges(Collector):
    """The engine's numbers at the moment they are asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> Iterable[Metric]:
        """Nothing: or else the engine would be asked while it loads."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """A gauge each."""
        for name, value in self._engine.gauges().items():
            yield GaugeMetricFamily(f"dmnrag_{name}", f"{name.replace('_', ' ').capitalize()}.", value)
