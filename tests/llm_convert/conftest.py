"""Both tiny checkpoints, converted once; tiny models run best on one thread."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from convert_checkpoints import MODELS, Golden

from dmnrag.llm.convert import convert_checkpoint


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def goldens(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Golden]:
    """By name: chatglm2 and baichuan2."""
    folder = tmp_path_factory.mktemp("converted")
    for name in MODELS:
        convert_checkpoint(shared / "golden" / name, folder / name)
    return {name: Golden(name, shared / "golden" / name, folder / name) for name in MODELS}


@pytest.fixture(params=MODELS)
def golden(request: pytest.FixtureRequest, goldens: dict[str, Golden]) -> Golden:
    """Each model in turn."""
    return goldens[request.param]
