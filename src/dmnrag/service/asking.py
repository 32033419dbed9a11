"""From a request to a question, and whose it is."""

from dataclasses import dataclass

from fastapi import Request

from dmnrag.service.engine import Engine
from dmnrag.service.events import Asked, Turn
from dmnrag.service.http_errors import ServiceError
from dmnrag.service.keys import Key
from dmnrag.service.metrics import Metrics
from dmnrag.service.store import Store


@dataclass(frozen=True, slots=True)
class Parts:
    """What every route works with."""

    engine: Engine
    metrics: Metrics
    with_keys: bool
    """Whether requests have owners."""

    @property
    def store(self) -> Store:
        """Where answers are kept.

        Raises:
            ServiceError: nowhere.
        """
        if self.engine.store is None:
            raise ServiceError(409, "nothing_kept", "this service keeps nothing: start it with --store FILE")
        return self.engine.store


@dataclass(frozen=True, slots=True)
class Wanted:
    """A question as one of the APIs puts it."""

    question: str
    domain: str | list[str] | None
    method: str | None = None
    k: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    history: tuple[Turn, ...] = ()


def asked_by(request: Request, wanted: Wanted) -> Asked:
    """The question for the engine, which checks it. The log gets its text, and writes it only when told to."""
    key: Key | None = request.state.key
    request.state.question = wanted.question
    domain = wanted.domain
    return Asked(
        question=wanted.question,
        domain=(tuple(domain) or None) if isinstance(domain, list) else domain,  # no labels are no domain
        method=wanted.method,
        k=wanted.k,
        history=wanted.history,
        max_tokens=wanted.max_tokens,
        temperature=wanted.temperature,
        allowed_domains=None if key is None else key.domains,
        owner=request.state.owner,
        request_id=request.state.request_id,
    )
