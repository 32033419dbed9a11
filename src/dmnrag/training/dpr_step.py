"""One optimizer step: vectors of a batch, the loss, and its gradient, exact however the work is divided.

The loss is taken over vectors that are cut off from the encoders; its gradient for each vector then goes back
through the mini-batch that made it. So one formula serves three cases: all activations held, gradient caching
(encode again, one mini-batch at a time), and several processes that each encode a part of the texts.
Source: Gao et al. 2021, "Scaling deep contrastive learning batch size under memory limited setup".
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dmnrag._optional import require
from dmnrag.training.dpr_batches import Batch
from dmnrag.training.dpr_loss import masked_ranking_loss
from dmnrag.training.dpr_model import DprModel, Role
from dmnrag.training.dpr_processes import Processes
from dmnrag.training.dpr_texts import Numbers, Texts
from dmnrag.training.settings import DprSettings

UNIT_SCALE = 50.0
"""Cosines span so little that a softmax needs them magnified: between sentence-transformers' default of 20 and the
100 that E5 was trained with; not compared with others yet (docs/decisions/0004)."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A mini-batch: places among the vectors of its role, and the texts' numbers."""

    role: Role
    places: Numbers
    numbers: Numbers
    seed: int


class GradientStep:
    """Computes gradients of the trained weights for batches."""

    def __init__(self, model: DprModel, texts: Texts, settings: DprSettings, processes: Processes) -> None:
        self._model = model
        self._texts = texts
        self._settings = settings
        self._processes = processes
        self._scale = settings.scale or (UNIT_SCALE if model.unit_vectors else 1.0)
        self._bf16 = uses_bf16(settings, model.device)

    def __call__(self, batch: Batch, step: int) -> float:
        """Leave the gradients of a batch in the weights; returns its loss.

        `step` seeds the dropout, so that a resumed run draws what an uninterrupted one does.
        """
        torch = require("torch", "dense")
        parts = self._parts(batch, step)
        cached = self._settings.gradient_cache
        with torch.set_grad_enabled(not cached):
            outputs = [self._encode(part) for part in parts]
        questions, passages = self._gather(batch, parts, outputs)
        loss = masked_ranking_loss(
            questions,
            passages,
            torch.from_numpy(batch.targets).to(self._model.device),
            torch.from_numpy(batch.masked).to(self._model.device),
            self._scale,
        )
        loss.backward()
        gradients = {"query": questions.grad, "document": passages.grad}
        if cached:
            for part in parts:
                self._encode(part).backward(gradients[part.role][part.places])
        elif parts:
            torch.autograd.backward(outputs, [gradients[part.role][part.places] for part in parts])
        self._add_up_gradients()
        return float(loss.detach())

    def _parts(self, batch: Batch, step: int) -> list[_Part]:
        """This process's mini-batches; all processes count them in the same order."""
        parts: list[_Part] = []
        texts: dict[Role, Numbers] = {"query": batch.questions, "document": batch.passages}
        for role, numbers in texts.items():
            for places in self._texts.mini_batches(role, numbers, self._settings.mini_batch):
                seed = int(np.random.SeedSequence((self._settings.seed, step, len(parts))).generate_state(1)[0])
                parts.append(_Part(role, places, numbers[places], seed))
        return parts[self._processes.rank :: self._processes.n]

    def _encode(self, part: _Part) -> Any:
        torch = require("torch", "dense")
        if self._settings.dropout:
            torch.manual_seed(part.seed)
        with torch.autocast(self._model.device.type, dtype=torch.bfloat16, enabled=self._bf16):
            return self._texts.vectors(part.role, part.numbers).float()

    def _gather(self, batch: Batch, parts: list[_Part], outputs: list[Any]) -> tuple[Any, Any]:
        """All vectors of the batch, cut off from the encoders."""
        torch = require("torch", "dense")
        sizes = {"query": len(batch.questions), "document": len(batch.passages)}
        whole = {
            role: torch.zeros((size, self._model.dimension), device=self._model.device) for role, size in sizes.items()
        }
        for part, output in zip(parts, outputs, strict=True):
            whole[part.role][part.places] = output.detach()
        self._processes.add_up(list(whole.values()))
        return whole["query"].requires_grad_(), whole["document"].requires_grad_()

    def _add_up_gradients(self) -> None:
        if self._processes.n == 1:
            return
        torch = require("torch", "dense")
        for weight in self._model.trained.values():
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        self._processes.add_up([weight.grad for weight in self._model.trained.values()])


def uses_bf16(settings: DprSettings, device: Any) -> bool:
    """Whether the encoders compute in bf16."""
    if settings.precision == "auto":
        return device.type == "cuda" and bool(require("torch", "dense").cuda.is_bf16_supported())
    return settings.precision == "bf16"
