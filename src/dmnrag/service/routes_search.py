"""`POST /v1/search` and `GET /v1/domains`: the index without the LLM, so an LLM that hangs does not reach them."""

from fastapi import APIRouter, Request

from dmnrag.service.asking import Parts, Wanted, asked_by
from dmnrag.service.faults import NotReady
from dmnrag.service.http_errors import error_docs
from dmnrag.service.keys import Key
from dmnrag.service.schemas import (
    DomainCount,
    DomainsBody,
    SearchBody,
    SearchRequest,
    evidence_body,
    inferred_body,
    source_bodies,
)
from dmnrag.service.streaming import while_connected

_RETRY_S = 5.0


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["search"])

    @routes.post(
        "/v1/search",
        summary="Find documents",
        responses=error_docs(400, 401, 413, 429, 500, 503, 504),
    )
    async def search(request: Request, body: SearchRequest) -> SearchBody:
        """The documents for a question, best first. No LLM is asked."""
        asked = asked_by(request, Wanted(body.question, body.domain, body.method, body.k))
        found = await while_connected(request.receive, parts.engine.search(asked, body.layer))
        return SearchBody(
            question=found.question,
            domain=list(found.domain),
            inferred=inferred_body(found.inferred),
            method=found.method,
            layer=found.layer,
            sources=source_bodies(found.sources),
            evidence=evidence_body(found.evidence),
            timings_ms=found.timings_ms,
        )

    @routes.get("/v1/domains", summary="List the domains", responses=error_docs(401, 429, 500, 503))
    async def domains(request: Request) -> DomainsBody:
        """The domains of the index with their numbers of documents; of a limited key, those that it may see."""
        if parts.engine.state != "ready":
            raise NotReady("the index is not open yet: ask again in a moment", _RETRY_S)
        key: Key | None = request.state.key
        allowed = None if key is None else key.domains
        return DomainsBody(
            domains=[DomainCount(domain=list(domain), documents=n) for domain, n in parts.engine.domains(allowed)]
        )

    return routes
