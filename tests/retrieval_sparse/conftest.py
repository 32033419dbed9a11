"""These tests write thousands of small segments; waiting for the disk each time would take a minute."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield
