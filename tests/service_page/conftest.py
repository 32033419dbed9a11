"""The page on a real server, in a real Chromium."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from page_fake_engine import FakeEngine
from page_visits import DESK, SURGEON, WAIT_MS, Served, Watched, served

from dmnrag.service.keys import KeyRing
from dmnrag.service.settings import ServeSettings
from dmnrag.service.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage


def _serve(engine: FakeEngine, keys: KeyRing) -> Iterator[Served]:
    with served(engine, ServeSettings(), keys) as url:
        yield Served(url, engine)


@pytest.fixture(scope="session")
def _open_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Store.open(tmp_path_factory.mktemp("page") / "kept.sqlite") as store:
        yield from _serve(FakeEngine(store), KeyRing())


@pytest.fixture
def service(_open_service: Served) -> Served:
    """Without keys, with a store; all is well with it."""
    engine = _open_service.engine
    engine.state = engine.llm_state = "ready"
    engine.documents = 5
    engine.gate.clear()
    engine.closed.clear()
    return _open_service


@pytest.fixture(scope="session")
def keyed_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With two keys, one of them for surgery alone, with a rate, without a store."""
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    file.write_text(
        f'[[key]]\nname = "desk"\nkey = "{DESK}"\nrate_per_minute = 1\n'
        f'[[key]]\nname = "surgeon"\nkey = "{SURGEON}"\ndomains = ["外科"]\n',
        encoding="utf-8",
    )
    file.chmod(0o600)
    yield from _serve(FakeEngine(), KeyRing.load(file, {}))


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Of one module: while it is there, no other event loop runs in this thread."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium here: `make browser` installs one")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


def _is_fault(said: "ConsoleMessage") -> bool:
    """Not that the library's connection ends with its page, at a reload."""
    ended = "AbortError" in said.text or "errored out" in said.text
    return said.type == "error" and not ended


@pytest.fixture
def tab(browser: "Browser", request: pytest.FixtureRequest) -> Iterator[Watched]:
    """A tab of a browser of its own; parametrised with options of `Browser.new_context`. Nothing in it may go wrong,
    and nothing may be asked of another host."""
    options = {"locale": "zh-CN", **getattr(request, "param", {})}
    context = browser.new_context(**options)
    context.set_default_timeout(WAIT_MS)
    watched = Watched(context.new_page(), [], set())
    context.on("console", lambda said: watched.faults.append(said.text) if _is_fault(said) else None)
    context.on("weberror", lambda error: watched.faults.append(str(error.error)))
    context.on("request", lambda asked: watched.hosts.add(asked.url.split("/")[2] if "://" in asked.url else ""))
    yield watched
    context.close()
    assert watched.faults == []
    assert all(host.startswith("127.0.0.1:") for host in watched.hosts if host), watched.hosts
