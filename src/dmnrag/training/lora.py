"""Train a LoRA adapter on prompts and answers, in a folder of its own, where a killed run goes on.

Started again with the same rows, settings and base model the run goes on where it was, also after kill -9, and on a CPU
ends with the same weights. The loop is this project's own on peft's layers; docs/decisions/0005 says why trl's trainer
is not used.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dmnrag._optional import require
from dmnrag.training.checkpoint import RunState, load_best, load_checkpoint, save_checkpoint
from dmnrag.training.lora_doctor import check_curve, check_dev, check_rows, loss_watch
from dmnrag.training.lora_model import LoraModel
from dmnrag.training.lora_result import DevLosses, LoraResult
from dmnrag.training.lora_rows import Row, by_length, collate, epoch_steps, n_steps_of_epoch
from dmnrag.training.lora_settings import LoraSettings

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total)."""

_EVALUATIONS_PER_EPOCH = 3


@dataclass(frozen=True, slots=True)
class LoraRows:
    """What is trained on and measured on, in tokens."""

    train: Sequence[Row]
    dev: Sequence[Row] = ()
    shuffled: Sequence[Row] = ()
    """The dev questions with the documents of others."""


def train_lora(
    model: LoraModel,
    rows: LoraRows,
    folder: Path,
    settings: LoraSettings,
    *,
    on_progress: Progress = lambda _stage, _done, _total: None,
    on_measurement: Callable[[dict[str, Any]], None] = lambda _entry: None,
) -> LoraResult:
    """Train the model's adapter, or go on where a killed run was; the model is left with the best weights.

    Args:
        model: a base model with a new adapter.
        rows: in tokens.
        folder: of this run; the caller sees to it that it holds nothing of another one.
        settings: how to train.
        on_progress: called as the run goes on.
        on_measurement: called with each entry of the history.

    Raises:
        DataError: rows that nothing can be learnt from.
        TrainingError: the loss is no number, or 0.
    """
    warnings = check_rows(rows.train)
    run = _Run(model, rows, folder, settings)
    run.on_progress, run.on_measurement = on_progress, on_measurement
    run.train()
    load_best(folder, model.trained)
    return run.result(warnings)


class _Run:
    """A training in progress."""

    def __init__(self, model: LoraModel, rows: LoraRows, folder: Path, settings: LoraSettings) -> None:
        self._model = model
        self._rows = rows
        self._folder = folder
        self._settings = settings
        self._steps_per_epoch = n_steps_of_epoch(len(rows.train), settings)
        self._n_steps = settings.epochs * self._steps_per_epoch
        self._every = settings.evaluate_steps or max(1, self._steps_per_epoch // _EVALUATIONS_PER_EPOCH)
        self._optimizer = require("torch", "lora").optim.AdamW(
            model.trained.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._watch = loss_watch()
        self._started = time.monotonic()
        self._state = RunState()
        self.on_progress: Progress
        self.on_measurement: Callable[[dict[str, Any]], None]

    def train(self) -> None:
        """From where the state stands to the end."""
        former = load_checkpoint(self._folder, self._model.trained, self._optimizer)
        self._state = former or self._state
        if self._state.finished:
            return
        if former is None:
            self._measure_and_keep()
        for batches in self._steps_left():
            self._step(batches)
            if self._after_step():
                break

    def _steps_left(self) -> Iterator[list[list[int]]]:
        first_epoch, n_done = divmod(self._state.step, self._steps_per_epoch)
        for epoch in range(first_epoch, self._settings.epochs):
            steps = epoch_steps(self._rows.train, self._settings, epoch)
            yield from islice(steps, n_done if epoch == first_epoch else 0, None)

    def _step(self, batches: list[list[int]]) -> None:
        torch = require("torch", "lora")
        for group in self._optimizer.param_groups:
            group["lr"] = rate_of_step(self._state.step, self._n_steps, self._settings)
        self._optimizer.zero_grad(set_to_none=True)
        self._model.training(True)
        n_tokens = sum(self._rows.train[place].n_answer for batch in batches for place in batch)
        loss = 0.0
        for number, places in enumerate(batches):
            # Dropout is a function of seed and step, so that a resumed run draws what an uninterrupted one does.
            key = np.random.SeedSequence((self._settings.seed, self._state.step, number))
            torch.manual_seed(int(key.generate_state(1)[0]))
            part = self._model.summed_loss(self._batch(self._rows.train, places)) / n_tokens
            part.backward()
            loss += float(part.detach())
        self._model.training(False)
        self._state.step += 1
        self._watch.check(loss, self._state.step)
        torch.nn.utils.clip_grad_norm_(self._model.trained.values(), self._settings.max_gradient_norm)
        self._optimizer.step()
        self._state.losses.append(loss)
        self.on_progress("training", self._state.step, self._n_steps)

    def _after_step(self) -> bool:
        """Measure or save when it is time; whether the run is over."""
        if self._state.step == self._n_steps or self._state.step % self._every == 0:
            self._measure_and_keep()
        elif self._state.step % self._settings.checkpoint_steps == 0:
            self._save(is_best=False)
        return self._state.finished

    def _measure_and_keep(self) -> None:
        """Measure, decide whether to go on, and save all that."""
        entry = self._measure()
        former = next((e for e in self._state.history if e["step"] == self._state.best_step and e["step"]), None)
        is_best = self._state.step > 0 and (
            "dev_loss" not in entry or former is None or entry["dev_loss"] < former["dev_loss"]
        )
        self._state.history.append(entry)
        self._state.best_step = self._state.step if is_best else self._state.best_step
        self._state.stale = 0 if is_best or not self._state.step else self._state.stale + 1
        out_of_patience = bool(self._settings.patience) and self._state.stale >= self._settings.patience
        self._state.finished = self._state.step == self._n_steps or out_of_patience
        self._save(is_best=is_best)
        self.on_measurement(entry)

    def _measure(self) -> dict[str, Any]:
        since = self._state.history[-1]["step"] if self._state.history else 0
        losses = self._state.losses[since:]
        epoch = round(self._state.step / self._steps_per_epoch, 3)
        entry: dict[str, Any] = {"step": self._state.step, "epoch": epoch}
        entry |= {"loss": float(np.mean(losses))} if losses else {}
        for name, rows in (("dev_loss", self._rows.dev), ("dev_loss_shuffled", self._rows.shuffled)):
            if rows:
                entry[name] = self._mean_loss(rows, name)
                loss_watch().check(entry[name], self._state.step)
        return entry

    def _mean_loss(self, rows: Sequence[Row], name: str) -> float:
        total = 0.0
        done = 0
        with require("torch", "lora").no_grad():
            for places in by_length(rows, range(len(rows)), self._settings.batch_size):
                total += float(self._model.summed_loss(self._batch(rows, places)))
                done += len(places)
                self.on_progress(f"{name}, step {self._state.step}", done, len(rows))
        return total / sum(row.n_answer for row in rows)

    def _batch(self, rows: Sequence[Row], places: Sequence[int]) -> Any:
        return collate([rows[place] for place in places], self._model.pad_id)

    def _save(self, *, is_best: bool) -> None:
        now = time.monotonic()
        self._state.seconds += now - self._started
        self._started = now
        save_checkpoint(self._folder, self._state, self._model.trained, self._optimizer, is_best=is_best)

    def result(self, warnings: Sequence[str]) -> LoraResult:
        """What the run came to."""
        by_step = {entry["step"]: entry for entry in self._state.history}
        first, best = by_step[0], by_step[self._state.best_step]
        losses = DevLosses(
            first.get("dev_loss"),
            best.get("dev_loss"),
            first.get("dev_loss_shuffled"),
            best.get("dev_loss_shuffled"),
        )
        found = [*warnings, *check_curve(self._state.losses)]
        if losses.untrained is not None and losses.best is not None:
            found += check_dev(losses.untrained, losses.best, losses.best_shuffled)
        return LoraResult(
            n_questions=len(self._rows.train),
            n_dev=len(self._rows.dev),
            n_steps=self._state.step,
            best_step=self._state.best_step,
            seconds=self._state.seconds,
            answer_tokens=sum(row.n_answer for row in self._rows.train),
            trained_weights=sum(weight.numel() for weight in self._model.trained.values()),
            all_weights=self._model.n_weights,
            target_modules=self._model.targets,
            losses=losses,
            history=tuple(self._state.history),
            warnings=tuple(found),
        )


def rate_of_step(step: int, n_steps: int, settings: LoraSettings) -> float:
    """Learning rate of the step with this number (from 0): up in a straight line, then down to 0."""
    n_warmup = int(settings.warmup_share * n_steps)
    if step < n_warmup:
        return settings.learning_rate * (step + 1) / (n_warmup + 1)
    return settings.learning_rate * (n_steps - step) / max(1, n_steps - n_warmup)
