"""What tests of the page share."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from page_fake_engine import FakeEngine, serving

from dmnrag.service.app import create_app
from dmnrag.service.keys import KeyRing
from dmnrag.service.page import mount_page
from dmnrag.service.settings import ServeSettings

if TYPE_CHECKING:
    from playwright.sync_api import Page

WAIT_MS = 60_000
"""Longest wait for anything, on a machine that is busy."""
DESK, SURGEON = "desk-0123456789abcdef", "surgeon;-0123456789%-key"


@dataclass
class Served:
    """A service with a page."""

    url: str
    engine: FakeEngine


@dataclass
class Watched:
    """A tab, and what went wrong in it."""

    page: "Page"
    faults: list[str]
    hosts: set[str]

    def open(self, address: str) -> "Page":
        self.page.goto(address)
        self.page.wait_for_selector("#question textarea")
        return self.page


@contextmanager
def served(engine: Any, settings: ServeSettings, keys: KeyRing) -> Iterator[str]:
    """The URL of a real server with a page."""
    app = create_app(engine, settings, keys)

    async def mount() -> None:
        mount_page(app, engine, settings, keys)

    # In a loop, as the library leaves loops of its own open elsewhere; and not in this thread, which may have one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, mount()).result()
    with serving(app) as url:
        yield url
