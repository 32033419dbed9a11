"""One process or several: what they add up and agree on. Several are started by `torchrun` or `accelerate launch`."""

import os
from typing import Any

from dmnrag._optional import require


class Processes:
    """The processes of this training; `accelerate` joins them and picks each one's device."""

    def __init__(self) -> None:
        self.n = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = 0
        self.device: str | None = None
        if self.n > 1:
            # Without `cpu`, accelerate looks for accelerators only and leaves processes on CPUs alone.
            has_gpu = require("torch", "dense").cuda.is_available()
            self._state = require("accelerate", "llm").PartialState(cpu=not has_gpu)
            self.rank, self.device = self._state.process_index, str(self._state.device)

    @property
    def first(self) -> bool:
        """Whether this is the one that measures and writes."""
        return self.rank == 0

    def add_up(self, tensors: list[Any]) -> None:
        """Replace each tensor by the sum over all processes, in one message."""
        if self.n == 1 or not tensors:
            return
        torch = require("torch", "dense")
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        torch.distributed.all_reduce(flat)
        start = 0
        for tensor in tensors:
            tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
            start += tensor.numel()

    def from_first(self, value: Any) -> Any:
        """The first process's value, everywhere."""
        if self.n == 1:
            return value
        values = [value]
        require("accelerate.utils", "llm").broadcast_object_list(values, from_process=0)
        return values[0]

    def wait(self) -> None:
        """Go on when all are here."""
        if self.n > 1:
            self._state.wait_for_everyone()
