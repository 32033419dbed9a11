"""Train a DPR: the second layer's encoder, on what the first layer ranked (Zhang et al. 2025; Karpukhin et al. 2020).

    train_dpr(instances, Path("run"), DprSettings())        -> run/model, a sentence-transformers folder

A run has a folder. Started again with the same set, settings and encoder it goes on where it was, also after
kill -9, and on a CPU ends with the same weights; started with others it begins anew. The loop is this project's
own on sentence-transformers' models; docs/decisions/0004 says why its trainer is not used.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dmnrag._io import fsync_path, rename, write_json_atomic
from dmnrag._optional import require
from dmnrag.data.exchange import DprInstance
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.text import SegmenterSettings
from dmnrag.training.checkpoint import RunState, load_best, load_checkpoint, newest_checkpoint, save_checkpoint
from dmnrag.training.dev import DevScores, DevSet, score_bm25, score_vectors, split_dev
from dmnrag.training.doctor import (
    LossWatch,
    check_instances,
    check_losses,
    check_result,
    check_vectors,
)
from dmnrag.training.dpr_batches import Batch, Rows, compile_rows, epoch_batches, n_batches
from dmnrag.training.dpr_model import DprModel
from dmnrag.training.dpr_processes import Processes
from dmnrag.training.dpr_record import DprResult, describe_machine, describe_run, read_result, write_record
from dmnrag.training.dpr_step import GradientStep
from dmnrag.training.dpr_texts import Texts, encode, prepare_texts
from dmnrag.training.settings import DprSettings

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total)."""

MODEL = "model"
"""Name of the trained model in the run's folder."""

_RUN_FILE = "run.json"
_EVALUATIONS_PER_EPOCH = 3


def no_progress(_stage: str, _done: int, _total: int) -> None:
    """Say nothing."""


def no_measurement(_entry: dict[str, Any]) -> None:
    """Say nothing."""


def train_dpr(
    instances: Sequence[DprInstance],
    folder: Path,
    settings: DprSettings,
    *,
    encoder: str = "builtin",
    first_layer: tuple[SegmenterSettings, Bm25Settings] | None = None,
    on_progress: Progress = no_progress,
    on_measurement: Callable[[dict[str, Any]], None] = no_measurement,
) -> DprResult:
    """Train an encoder, or go on where a killed run was.

    Args:
        instances: the training set; the dev slice is taken from it.
        folder: of this run; what another run left there is removed.
        settings: how to train.
        encoder: where to start from, as for `make_encoder`.
        first_layer: the segmenter and BM25 parameters that the trained encoder is compared with.
        on_progress: called as the run goes on.
        on_measurement: called with each entry of the history.

    Returns:
        Where the best weights are, and how good they are on the dev slice.

    Raises:
        DataError: a set that nothing can be learnt from.
        ConfigError: an encoder that cannot be loaded or trained.
        TrainingError: the loss or the vectors are no numbers, or say nothing.
    """
    processes = Processes()
    run = describe_run(instances, settings, encoder)
    if processes.first:
        _prepare_folder(folder, run)
    processes.wait()
    if (folder / MODEL).is_dir():
        return read_result(folder / MODEL)
    warnings = check_instances(instances, settings)
    kept, dev = split_dev(instances, settings)
    model = DprModel(encoder, settings, processes.device)
    training = _Training(folder, settings, processes, model, compile_rows(kept, settings), dev)
    training.on_progress, training.on_measurement = on_progress, on_measurement
    training.run()
    bm25 = score_bm25(dev, *(first_layer or (SegmenterSettings(), Bm25Settings()))) if dev.questions else None
    result = training.result(folder / MODEL, len(kept), bm25, warnings)
    if processes.first:
        load_best(folder, model.trained)
        run["machine"] = describe_machine(model, processes.n)
        _write_model(folder, model, run, instances, training.state, result)
    processes.wait()
    return result


class _Training:
    """A run in progress."""

    def __init__(
        self, folder: Path, settings: DprSettings, processes: Processes, model: DprModel, rows: Rows, dev: DevSet
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._processes = processes
        self._model = model
        self._rows = rows
        self._dev = dev
        self._n_steps = settings.epochs * self._steps_per_epoch
        self._every = settings.evaluate_steps or max(1, self._steps_per_epoch // _EVALUATIONS_PER_EPOCH)
        self._optimizer = make_optimizer(model, settings)
        self._watch = LossWatch()
        self._started = time.monotonic()
        self.state = RunState()
        self.on_progress: Progress = no_progress
        self.on_measurement: Callable[[dict[str, Any]], None] = no_measurement

    def run(self) -> None:
        """From where the state stands to the end."""
        former = load_checkpoint(self._folder, self._model.trained, self._optimizer)
        self.state = former or self.state
        if self.state.finished:
            return
        texts = self._texts()
        if former is None:
            self._measure_and_keep(texts)
        gradients = GradientStep(self._model, texts, self._settings, self._processes)
        for batch in self._batches_left():
            self._step(gradients, batch)
            if self._after_step(texts):
                break

    def _batches_left(self) -> Iterator[Batch]:
        first_epoch, n_done = divmod(self.state.step, self._steps_per_epoch)
        for epoch in range(first_epoch, self._settings.epochs):
            batches = epoch_batches(self._rows, self._settings, epoch)
            yield from islice(batches, n_done if epoch == first_epoch else 0, None)

    def result(self, folder: Path, n_questions: int, bm25: DevScores | None, warnings: Sequence[str]) -> DprResult:
        """What the run came to."""
        measured = {entry["step"]: DevScores.from_dict(entry) for entry in self.state.history if "MRR@10" in entry}
        best, untrained = measured.get(self.state.best_step), measured.get(0)
        found = [*warnings, *check_losses(self.state.losses)]
        if best is not None and untrained is not None and bm25 is not None:
            found += check_result(best, untrained, bm25)
        return DprResult(
            folder,
            n_questions,
            len(self._dev.questions),
            self.state.step,
            self.state.best_step,
            self.state.seconds,
            best,
            untrained,
            bm25,
            tuple(found),
        )

    def _texts(self) -> Texts:
        """Each distinct text of rows and dev slice once; those of the rows keep their numbers."""
        questions = list(dict.fromkeys((*self._rows.questions, *self._dev.questions)))
        passages = list(dict.fromkeys((*self._rows.passages, *self._dev.pool)))
        number_of = {text: number for number, text in enumerate(questions)}
        self._dev_questions = np.array([number_of[text] for text in self._dev.questions], np.int64)
        number_of = {text: number for number, text in enumerate(passages)}
        self._dev_pool = np.array([number_of[text] for text in self._dev.pool], np.int64)
        return prepare_texts(
            self._model,
            questions,
            passages,
            self._folder / f"frozen-{self._processes.rank}.npy",
            self._settings,
            lambda done, total: self.on_progress("frozen layers", done, total),
        )

    def _step(self, gradients: GradientStep, batch: Batch) -> None:
        self._model.dropout(self._settings.dropout)
        rate = learning_rate(self.state.step, self._n_steps, self._settings)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.zero_grad(set_to_none=True)
        loss = gradients(batch, self.state.step)
        self.state.step += 1
        self._watch.check(loss, self.state.step)
        require("torch", "dense").nn.utils.clip_grad_norm_(
            self._model.trained.values(), self._settings.max_gradient_norm
        )
        self._optimizer.step()
        self._model.dropout(False)
        self.state.losses.append(loss)
        self.on_progress("training", self.state.step, self._n_steps)

    def _after_step(self, texts: Texts) -> bool:
        """Measure or save when it is time; whether the run is over."""
        last = self.state.step == self._n_steps
        if last or self.state.step % self._every == 0:
            self._measure_and_keep(texts)
        elif self.state.step % self._settings.checkpoint_steps == 0:
            self._save(is_best=False)
        return self.state.finished

    def _measure_and_keep(self, texts: Texts) -> None:
        """Measure, decide whether to go on, and save all that."""
        entry = self._processes.from_first(self._measure(texts) if self._processes.first else None)
        former = next((e for e in self.state.history if e["step"] == self.state.best_step and e["step"]), None)
        is_best = self.state.step > 0 and (
            "MRR@10" not in entry or former is None or entry["MRR@10"] > former["MRR@10"]
        )
        self.state.history.append(entry)
        self.state.best_step = self.state.step if is_best else self.state.best_step
        self.state.stale = 0 if is_best or not self.state.step else self.state.stale + 1
        out_of_patience = bool(self._settings.patience) and self.state.stale >= self._settings.patience
        self.state.finished = self.state.step == self._n_steps or out_of_patience
        self._save(is_best=is_best)
        self.on_measurement(entry)

    def _measure(self, texts: Texts) -> dict[str, Any]:
        since = self.state.history[-1]["step"] if self.state.history else 0
        losses = self.state.losses[since:]
        entry: dict[str, Any] = {"step": self.state.step, "epoch": round(self.state.step / self._steps_per_epoch, 3)}
        entry |= {"loss": float(np.mean(losses))} if losses else {}
        if not self._dev.questions:
            return entry
        size = self._settings.mini_batch
        questions = encode(texts, "query", self._dev_questions, size)
        pool = encode(texts, "document", self._dev_pool, size)
        entry["mean_cosine"] = check_vectors(pool, self.state.step)
        scores = score_vectors(self._dev, questions, pool)
        return entry | scores.to_dict() | {"reciprocal_ranks": list(scores.reciprocal_ranks)}

    @property
    def _steps_per_epoch(self) -> int:
        return n_batches(self._rows, self._settings)

    def _save(self, *, is_best: bool) -> None:
        now = time.monotonic()
        self.state.seconds += now - self._started
        self._started = now
        if self._processes.first:
            save_checkpoint(self._folder, self.state, self._model.trained, self._optimizer, is_best=is_best)
        self._processes.wait()


def learning_rate(step: int, n_steps: int, settings: DprSettings) -> float:
    """Of the step with this number (from 0): up in a straight line during the warm-up, then down to 0."""
    n_warmup = int(settings.warmup_share * n_steps)
    if step < n_warmup:
        return settings.learning_rate * (step + 1) / (n_warmup + 1)
    return settings.learning_rate * (n_steps - step) / max(1, n_steps - n_warmup)


def make_optimizer(model: DprModel, settings: DprSettings) -> Any:
    """AdamW; weights of one dimension are biases and layer norms."""
    torch = require("torch", "dense")
    weights = model.trained.values()
    groups = [
        {"params": [w for w in weights if w.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [w for w in weights if w.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=settings.learning_rate)


def _prepare_folder(folder: Path, run: dict[str, Any]) -> None:
    """Keep what belongs to this very run; remove what another one left."""
    path = folder / _RUN_FILE
    same = path.is_file() and json.loads(path.read_text(encoding="utf-8")) == run
    if not same and (newest_checkpoint(folder) or path.is_file()):
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    if not same:
        write_json_atomic(path, run)


def _write_model(
    folder: Path,
    model: DprModel,
    run: dict[str, Any],
    instances: Sequence[DprInstance],
    state: RunState,
    result: DprResult,
) -> None:
    """The trained model and its record, whole or not there."""
    staging = folder / f".{MODEL}.tmp"
    shutil.rmtree(staging, ignore_errors=True)
    model.save(staging)
    write_record(staging, run, instances, state.history, result)
    for path in sorted(staging.rglob("*"), reverse=True):
        fsync_path(path)
    fsync_path(staging)
    rename(staging, folder / MODEL)
    _sweep(folder)


def _sweep(folder: Path) -> None:
    """Remove what a killed process left half written, and, once the model is there, what only training needed."""
    patterns = [".*", "frozen-*", "checkpoint-*"] if (folder / MODEL).is_dir() else [".*"]
    for pattern in patterns:
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
