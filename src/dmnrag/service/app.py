"""The HTTP application: routes, middleware and errors put together around one engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from dmnrag import __version__
from dmnrag.service import routes_answer, routes_chat, routes_docs, routes_health, routes_search, routes_stored
from dmnrag.service.asking import Parts
from dmnrag.service.engine import Engine
from dmnrag.service.http_errors import handle_errors
from dmnrag.service.keys import KeyRing
from dmnrag.service.metrics import Metrics
from dmnrag.service.middleware import Access, BodyLimit, RequestContext
from dmnrag.service.settings import ServeSettings

_ABOUT = (
    "Answers to questions over domain-labelled question-answer pairs, with numbered citations of the documents they "
    "rest on. Send your API key as `Authorization: Bearer KEY` where the service has keys. Errors of all routes have "
    "one shape, ErrorBody."
)


def create_app(engine: Engine, settings: ServeSettings, keys: KeyRing) -> FastAPI:
    """The app, which starts the engine when it starts and stops it when it stops. The web page is mounted apart.

    Nothing in it is global: several apps may live in one process.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        try:
            yield
        finally:
            await engine.stop()

    app = FastAPI(
        title="dmnrag",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    parts = Parts(engine, Metrics(engine), with_keys=not keys.open)
    app.state.metrics = parts.metrics  # for the page
    for module in (routes_answer, routes_search, routes_stored, routes_chat, routes_health):
        app.include_router(module.router(parts))
    routes_docs.describe(app, parts.with_keys)
    handle_errors(app)
    trust = settings.trust
    # Innermost first.
    app.add_middleware(BodyLimit, max_bytes=trust.max_body_bytes)
    app.add_middleware(Access, keys=keys, rate_per_minute=trust.rate_per_minute)
    if trust.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=trust.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["x-request-id", "retry-after"],
        )
    app.add_middleware(RequestContext, metrics=parts.metrics)
    return app
