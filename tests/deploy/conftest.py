"""Fixtures that the tests of bundles share."""

from importlib.metadata import distribution

import pytest
from small_bundles import make_wheel

from dmnrag.bundle.files import Content
from dmnrag.bundle.wheels import repack


@pytest.fixture(scope="session")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Content]:
    """What a small bundle holds."""
    folder = tmp_path_factory.mktemp("wheels")
    wheels = [make_wheel(folder), repack(distribution("pip"), folder)]
    return {
        "index/CURRENT": b"000001\n",
        "index/generations/000001/文档.txt": "糖尿病".encode(),
        "models/small/config.json": b"{}",
        **{f"wheels/{path.name}": path for path in wheels},
    }
