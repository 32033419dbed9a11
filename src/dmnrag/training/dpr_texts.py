"""Texts of a training run as numbers: token ids, and the outputs of frozen layers kept in a mapped file.

Mini-batches take texts of like length together, so that little is padded. The outputs of frozen layers do not
change in training, so each text goes through them once.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmnrag._io import write_json_atomic
from dmnrag._optional import require
from dmnrag.retrieval.arrays import ArrayWriter, map_array
from dmnrag.training.dpr_model import ROLES, DprModel, Role, TokenIds
from dmnrag.training.settings import DprSettings

Numbers = npt.NDArray[np.int64]


class Texts:
    """The token ids of every text of both roles."""

    def __init__(self, model: DprModel, questions: Sequence[str], passages: Sequence[str]) -> None:
        self.model = model
        texts: dict[Role, Sequence[str]] = {"query": questions, "document": passages}
        self.ids: dict[Role, list[TokenIds]] = {role: model.towers[role].tokens(texts[role]) for role in ROLES}
        self.lengths: dict[Role, Numbers] = {
            role: np.array([len(i) for i in self.ids[role]], np.int64) for role in ROLES
        }

    @property
    def n_tokens(self) -> int:
        """Tokens of all texts."""
        return int(sum(lengths.sum() for lengths in self.lengths.values()))

    def mini_batches(self, role: Role, numbers: Numbers, size: int) -> list[Numbers]:
        """Places within `numbers`, longest texts first, `size` at a time."""
        order = np.argsort(-self.lengths[role][numbers], kind="stable")
        return [order[start : start + size] for start in range(0, len(order), size)]

    def vectors(self, role: Role, numbers: Numbers) -> Any:
        """(n, dimension) of the given texts; gradients as torch's mode says."""
        ids, mask = self.padded(role, numbers)
        return self.model.towers[role].whole(ids, mask)

    def padded(self, role: Role, numbers: Numbers) -> tuple[Any, Any]:
        """Token ids and mask, (n, longest)."""
        torch = require("torch", "dense")
        rows = [self.ids[role][number] for number in numbers]
        width = max(map(len, rows))
        ids = np.full((len(rows), width), self.model.towers[role].pad_id, np.int64)
        mask = np.zeros((len(rows), width), np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
            mask[place, : len(row)] = 1
        device = self.model.device
        return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


class FrozenTexts(Texts):
    """Texts whose outputs of the frozen layers are kept."""

    def keep(self, path: Path, mini_batch: int, on_progress: Callable[[int, int], None]) -> None:
        """Compute the outputs into a file, or open it where a former start of the same run has finished it.

        Args:
            path: of the file; a second one beside it says that it is whole.
            mini_batch: texts at once.
            on_progress: called with (texts done, all texts).
        """
        batches = list(self._all(mini_batch))
        self._starts: dict[Role, Numbers] = {role: np.zeros_like(self.lengths[role]) for role in ROLES}
        end = 0
        for role, numbers in batches:
            ends = end + np.cumsum(self.lengths[role][numbers])
            self._starts[role][numbers] = ends - self.lengths[role][numbers]
            end = int(ends[-1])
        hidden = int(self.model.towers["query"].network.config.hidden_size)
        whole, layout = path.with_suffix(".json"), [end, hidden, mini_batch]
        if not (whole.is_file() and json.loads(whole.read_text()) == layout):
            self._write(path, batches, hidden, on_progress)
            write_json_atomic(whole, layout)
        self._outputs = map_array(path)

    def _write(
        self,
        path: Path,
        batches: Sequence[tuple[Role, Numbers]],
        hidden: int,
        on_progress: Callable[[int, int], None],
    ) -> None:
        done, n_texts = 0, sum(len(numbers) for _, numbers in batches)
        with ArrayWriter(path, np.float32, (hidden,)) as writer:
            for role, numbers in batches:
                ids, mask = self.padded(role, numbers)
                states = self.model.towers[role].lower(ids, mask)
                writer.append(states[mask.bool()].cpu().numpy())
                done += len(numbers)
                on_progress(done, n_texts)

    def vectors(self, role: Role, numbers: Numbers) -> Any:
        """(n, dimension), from the kept outputs on."""
        torch = require("torch", "dense")
        lengths = self.lengths[role][numbers]
        states = np.zeros((len(numbers), int(lengths.max()), self._outputs.shape[1]), np.float32)
        for place, (number, length) in enumerate(zip(numbers, lengths, strict=True)):
            start = self._starts[role][number]
            states[place, :length] = self._outputs[start : start + length]
        mask = torch.from_numpy((np.arange(states.shape[1]) < lengths[:, None]).astype(np.int64))
        return self.model.towers[role].upper(torch.from_numpy(states), mask)

    def _all(self, mini_batch: int) -> Iterator[tuple[Role, Numbers]]:
        """Every text once, in the order in which the file has them."""
        for role in ROLES:
            for places in self.mini_batches(role, np.arange(len(self.ids[role])), mini_batch):
                yield role, places


_BYTES_PER_NUMBER = 4


def prepare_texts(
    model: DprModel,
    questions: Sequence[str],
    passages: Sequence[str],
    path: Path,
    settings: DprSettings,
    on_progress: Callable[[int, int], None],
) -> Texts:
    """Texts with kept outputs where the model can be cut, runs on the CPU, and the file stays below `frozen_gb`."""
    texts = FrozenTexts(model, questions, passages)
    needed = texts.n_tokens * model.towers["query"].network.config.hidden_size * _BYTES_PER_NUMBER
    if not model.cut or model.device.type != "cpu" or needed > settings.frozen_gb * 1e9:
        return Texts(model, questions, passages)
    texts.keep(path, settings.mini_batch, on_progress)
    return texts


def encode(texts: Texts, role: Role, numbers: Numbers, mini_batch: int) -> npt.NDArray[np.float32]:
    """(n, dimension) without gradients."""
    torch = require("torch", "dense")
    vectors = np.empty((len(numbers), texts.model.dimension), np.float32)
    with torch.no_grad():
        for places in texts.mini_batches(role, numbers, mini_batch):
            vectors[places] = texts.vectors(role, numbers[places]).float().cpu().numpy()
    return vectors
