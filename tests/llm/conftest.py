"""Tiny models run best on one thread: more only wait for each other."""

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("dmnrag.testing.generator_contract")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
