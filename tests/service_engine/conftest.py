import shutil
from pathlib import Path

import pytest
from engine_parts import DOCUMENTS

from dmnrag.index import IndexSettings, build_index
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.testing.fakes import HashEncoder


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "index"
    build_index(folder, DOCUMENTS, IndexSettings(dense=DenseSettings(encoder="fake")), encoder=HashEncoder())
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """An index of four documents with vectors, the test's own."""
    return Path(shutil.copytree(built, tmp_path / "index"))
