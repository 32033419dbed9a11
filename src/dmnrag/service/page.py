"""The web page in the app: one page per language, their style and script, the start page, and signing in."""

import logging
import os
from importlib.resources import files
from types import SimpleNamespace
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from starlette.routing import Mount

from dmnrag.service import page_session
from dmnrag.service.keys import KeyRing
from dmnrag.service.page_desk import Desk
from dmnrag.service.page_presence import Presence
from dmnrag.service.page_shell import Shell
from dmnrag.service.page_texts import LANGUAGES, TEXTS
from dmnrag.service.settings import ServeSettings

if TYPE_CHECKING:
    from dmnrag.service.engine import Engine

_logger = logging.getLogger(__name__)

_ASSETS = {"page_style.css": "text/css", "page_script.js": "text/javascript", "page_thumb.svg": "image/svg+xml"}


def mount_page(app: FastAPI, engine: "Engine", settings: ServeSettings, keys: KeyRing) -> FastAPI:
    """Serve the page at `/`, behind the app's keys and limits. Takes some seconds: the page's library is large.

    Args:
        app: of `create_app`, not yet started.
        engine: as the app's.
        settings: as the app's.
        keys: as the app's.
    """
    # It would tell its makers about each start, and look for a newer release.
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    import gradio as gr
    from gradio import queueing

    from dmnrag.service.page_blocks import build

    # It would print tracebacks, which quote what was sent, between the lines of the log; a request that was written by
    # hand, with values missing, brings one about.
    told = SimpleNamespace(print_exc=lambda: _logger.warning("the page's library failed", exc_info=True))
    queueing.traceback = told  # type: ignore[assignment,attr-defined]

    # Fonts of the visitor's system: the library's own come from another host.
    sans = (
        "system-ui",
        "-apple-system",
        "Segoe UI",
        "PingFang SC",
        "Microsoft YaHei",
        "Noto Sans CJK SC",
        "sans-serif",
    )
    theme = gr.themes.Default(
        primary_hue="blue", neutral_hue="slate", font=sans, font_mono=("ui-monospace", "Consolas", "monospace")
    )
    # The library's own greys and blue are too pale to read for many.
    theme.set(
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        block_title_text_color="*neutral_800",
        block_title_text_color_dark="*neutral_100",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_dark="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_hover_dark="*primary_800",
    )
    for language in LANGUAGES:
        presence = Presence()
        desk = Desk(engine, settings, TEXTS[language], app.state.metrics.count_fault)
        blocks = build(desk, presence, with_keys=not keys.open)
        gr.mount_gradio_app(
            app,
            blocks,
            f"/{language}",
            theme=theme,
            footer_links=[],
            run_history=False,
            show_error=False,
            ssr_mode=False,
            mcp_server=False,
            pwa=False,
        )
        mount = app.router.routes[-1]
        assert isinstance(mount, Mount)
        mount.app = Shell(mount.app, language, presence)

    @app.get("/", include_in_schema=False)
    async def start(request: Request) -> RedirectResponse:
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(
            f"{page_session.language_of(request)}/{query}", headers={"vary": "accept-language, cookie"}
        )

    @app.get("/page/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in _ASSETS:
            return Response("Not found.", 404, media_type="text/plain")
        return Response((files("dmnrag.service") / name).read_bytes(), media_type=_ASSETS[name])

    page_session.add_session(app, keys)
    return app
