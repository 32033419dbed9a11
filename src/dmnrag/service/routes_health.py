"""For what watches the service: `/healthz` (restart it?), `/readyz` (send it requests?), `/metrics`."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from dmnrag.service.asking import Parts
from dmnrag.service.http_errors import error_docs
from dmnrag.service.metrics import CONTENT_TYPE
from dmnrag.service.schemas import HealthBody, ReadyBody

# The engine's own words name files and servers, which are nobody's business here: there is no key.
_INDEX_WORDS = {
    "loading": "the index is being loaded",
    "ready": "",
    "failed": "the index cannot be used; the service's log says why",
}
_LLM_WORDS = {
    "none": "",
    "loading": "the LLM is being loaded",
    "ready": "",
    "down": "the LLM does not answer; the service's log says why",
}


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["operation"])

    @routes.get("/healthz", summary="Is the process alive?")
    async def healthz() -> HealthBody:
        """Answers as long as the process can. Needs no key and asks neither index nor LLM."""
        return HealthBody()

    @routes.get(
        "/readyz",
        summary="Can questions be answered?",
        response_model=ReadyBody,
        responses={503: {"model": ReadyBody, "description": "Not now; `problem` says why."}},
    )
    async def readyz() -> Any:
        """200 when the index is open and the LLM usable, or none was named; else 503. Needs no key."""
        engine = parts.engine
        ready = engine.state == "ready" and engine.llm_state in {"ready", "none"}
        words = (_INDEX_WORDS[engine.state], _LLM_WORDS[engine.llm_state])
        problem = "; ".join(said for said in words if said)
        body = ReadyBody(ready=ready, index=engine.state, llm=engine.llm_state, problem=problem)
        return JSONResponse(body.model_dump(), 200 if ready else 503)

    @routes.get(
        "/metrics",
        summary="Counters for Prometheus",
        response_class=Response,
        responses={
            200: {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}},
            **error_docs(401, 500),
        },
    )
    async def metrics() -> Response:
        """Requests, times, answers by outcome, tokens, and the engine's queue and generation. Needs a key where there
        are keys."""
        return Response(parts.metrics.exposition(), media_type=CONTENT_TYPE)

    return routes
