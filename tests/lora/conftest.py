"""A tiny model and a tiny index, made once; tiny models run best on one thread."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from lora_tiny import CHATML, make_index, save_model


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def llm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A base model without a chat template."""
    return save_model(tmp_path_factory.mktemp("llm") / "tiny")


@pytest.fixture(scope="session")
def chat_llm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same weights with a chat template."""
    return save_model(tmp_path_factory.mktemp("llm") / "tiny-chat", chat_template=CHATML)


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that no test changes; adapters go elsewhere."""
    return make_index(tmp_path_factory.mktemp("index") / "i")
