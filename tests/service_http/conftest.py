"""Clients of the app, without a server."""

from collections.abc import Iterator

import pytest
from http_fake_engine import FakeEngine, Open
from starlette.testclient import TestClient

from dmnrag.service.app import create_app
from dmnrag.service.keys import KeyRing
from dmnrag.service.settings import ServeSettings, TrustSettings


@pytest.fixture
def connect() -> Iterator[Open]:
    """connect(engine, keys, **trust): a client of an app that is started."""
    clients = []

    def connect(engine: FakeEngine | None = None, keys: KeyRing | None = None, **trust: object) -> TestClient:
        settings = ServeSettings(trust=TrustSettings(**trust))  # type: ignore[arg-type]
        client = TestClient(create_app(engine or FakeEngine(), settings, keys or KeyRing()))  # type: ignore[arg-type]
        clients.append(client.__enter__())
        return client

    yield connect
    for client in clients:
        client.__exit__()
