"""`dmnrag serve`: HTTP API, OpenAI-compatible API and web page over one index and one LLM, in one process."""

import asyncio
import ipaddress
import logging
import os
import socket
from contextlib import closing
from math import ceil
from typing import TYPE_CHECKING, Any

import typer

from dmnrag._optional import require
from dmnrag.cli import options as o
from dmnrag.cli import serve_options as s
from dmnrag.errors import ConfigError
from dmnrag.index.generations import current_generation
from dmnrag.service.settings import AnswerSettings, LoadSettings, ServeSettings, TrustSettings

if TYPE_CHECKING:
    from dmnrag.service.engine import Engine

_logger = logging.getLogger(__name__)

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""What a browser on this machine asks instead."""

_KEEP_ALIVE_S = 75
"""Longer than clients and proxies keep an unused connection (5 s and 60 s are common), so that the one who closes it is
the one who would send the next request on it."""

_TO_END_S = 5
"""For what is left of answers when their grace is over."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    folder: o.IndexFolder,
    llm: s.ServeLlm = None,
    host: s.Host = "127.0.0.1",
    port: s.Port = 8080,
    page: s.Page = True,
    template: o.TemplateOption = None,
    adapter: o.AdapterOption = None,
    layer: s.ServeLayer = "",
    k: s.ServeK = s.ANSWER.k,
    max_k: s.MaxK = s.ANSWER.max_k,
    max_tokens: s.ServeMaxTokens = s.ANSWER.max_tokens,
    temperature: o.Temperature = s.ANSWER.temperature,
    refuse: s.Refuse = s.ANSWER.refuse,
    notices: s.NoticesOption = s.ANSWER.notices,
    valid_until_column: s.ValidUntil = s.ANSWER.valid_until_column,
    mask: s.Mask = s.ANSWER.mask,
    keys: s.Keys = None,
    anyone: s.AnyoneMayAsk = False,
    rate_per_minute: s.Rate = s.TRUST.rate_per_minute,
    max_body_bytes: s.MaxBody = s.TRUST.max_body_bytes,
    max_question_characters: s.MaxQuestion = s.TRUST.max_question_characters,
    cors_origin: s.CorsOrigins = None,
    store: s.StoreOption = None,
    audit: s.Audit = None,
    log_questions: s.LogQuestions = s.TRUST.log_questions,
    llm_concurrency: s.Concurrency = s.LOAD.llm_concurrency,
    queue: s.Queue = s.LOAD.queue,
    queue_timeout_s: s.QueueTimeout = s.LOAD.queue_timeout_s,
    answer_timeout_s: s.AnswerTimeoutOption = s.LOAD.answer_timeout_s,
    search_timeout_s: s.SearchTimeout = s.LOAD.search_timeout_s,
    shutdown_grace_s: s.ShutdownGrace = s.LOAD.shutdown_grace_s,
    reload_every_s: s.ReloadEvery = s.LOAD.reload_every_s,
) -> None:
    """Answer questions over HTTP: a web page, an API, and an API for OpenAI clients."""
    settings = ServeSettings(
        answer=AnswerSettings(
            layer=o.parse_layer(layer),
            k=k,
            max_k=max_k,
            max_tokens=max_tokens,
            temperature=temperature,
            refuse=refuse,
            notices=notices,
            valid_until_column=valid_until_column,
            mask=mask,
        ),
        load=LoadSettings(
            llm_concurrency=llm_concurrency,
            queue=queue,
            queue_timeout_s=queue_timeout_s,
            answer_timeout_s=answer_timeout_s,
            search_timeout_s=search_timeout_s,
            shutdown_grace_s=shutdown_grace_s,
            reload_every_s=reload_every_s,
        ),
        trust=TrustSettings(
            rate_per_minute=rate_per_minute,
            max_body_bytes=max_body_bytes,
            max_question_characters=max_question_characters,
            cors_origins=tuple(cors_origin or ()),
            log_questions=log_questions,
            audit_file=audit,
            store_file=store,
        ),
    )
    for module in ("fastapi", "prometheus_client", "uvicorn", *(("gradio",) if page else ())):
        require(module, "serve")
    from dmnrag.service.app import create_app
    from dmnrag.service.engine import Engine
    from dmnrag.service.keys import KeyRing
    from dmnrag.service.logs import configure_logs

    current_generation(folder)  # a mistyped folder is said now, not waited for
    configure_logs(log_questions)
    ring = KeyRing.load(keys, os.environ)
    _check_reach(host, ring.open, anyone)
    with closing(_listen(host, port)) as listener:
        engine = Engine(folder, llm, settings, template=template, adapter=adapter)
        app: Any = create_app(engine, settings, ring)
        if page:
            from dmnrag.service.page import mount_page

            app = mount_page(app, engine, settings, ring)
        _run(app, listener, host, engine, ceil(shutdown_grace_s) + _TO_END_S)


def _check_reach(host: str, without_keys: bool, anyone: bool) -> None:
    """No service for a whole network by oversight."""
    if not without_keys or _is_own(host):
        return
    if not anyone:
        raise ConfigError(
            f"--host {host} lets others ask, and there are no keys: give --keys FILE or DMNRAG_API_KEYS, or --open"
        )
    _logger.warning("there are no keys: everyone who reaches %s may ask", host)


def _is_own(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    """The socket; bound before anything is loaded, so that a port in use is said at once."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot listen on {host}, port {port}: {reason}; choose another --host or --port") from error


def _run(app: Any, listener: socket.socket, host: str, engine: "Engine", grace_s: int) -> None:
    """Until a signal; then running answers are finished, or cut off with what is there when their grace is over."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            shown = _ANY_ADDRESS.get(host, host)
            address = f"[{shown}]" if ":" in shown else shown
            typer.echo(f"http://{address}:{listener.getsockname()[1]}/  (stop with Ctrl-C)")

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await asyncio.gather(engine.drain(), super().shutdown(sockets))

    # One process, asyncio and h11: what every installation has. Logs are `service.logs`'.
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=grace_s,
    )
    Server(config).run(sockets=[listener])
