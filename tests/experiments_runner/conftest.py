"""The corpus of the runner's tests, built once; nothing writes to it."""

from pathlib import Path

import pytest
from runner_world import make_index


@pytest.fixture(scope="session")
def small_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("corpus") / "index")
