"""Training pairs per second beside plain sentence-transformers: same pairs, batches, tokens and trained weights.

    python benchmarks/bench_training.py SET.jsonl [--questions 256] [--epochs 1] [--rounds 3] [--threads 2]

SET is a training set in DPR JSON, such as INDEX/models/dpr-joint-000002/training/training-set.jsonl. "Plain" is
what sentence-transformers' trainer does in a step: `MultipleNegativesRankingLoss` over one padded batch for each
column, autograd through all of it, AdamW. It stands there twice: with the model's dropout, as the trainer has it,
and without, as this project has it by default. The runs alternate; the time of this project's includes the pass of
all texts through the frozen layers. Last come the figures of all on the same dev slice.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import dot_score

from dmnrag.data.exchange import DprInstance, read_dpr_json
from dmnrag.training.dev import DevScores, DevSet, score_vectors, split_dev
from dmnrag.training.dpr import learning_rate, make_optimizer
from dmnrag.training.dpr_batches import Rows, compile_rows, epoch_batches, n_batches
from dmnrag.training.dpr_model import DprModel
from dmnrag.training.dpr_processes import Processes
from dmnrag.training.dpr_step import UNIT_SCALE, GradientStep
from dmnrag.training.dpr_texts import prepare_texts
from dmnrag.training.settings import DprSettings


@dataclass
class Run:
    """What both sides are given."""

    encoder: str
    instances: list[DprInstance]
    rows: Rows
    dev: DevSet
    settings: DprSettings

    @property
    def n_steps(self) -> int:
        return self.settings.epochs * n_batches(self.rows, self.settings)


def step(run: Run, model: DprModel, optimizer: Any, number: int) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(number, run.n_steps, run.settings)
    torch.nn.utils.clip_grad_norm_(model.trained.values(), run.settings.max_gradient_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def train_here(run: Run, model: DprModel) -> None:
    optimizer = make_optimizer(model, run.settings)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "frozen.npy"
        texts = prepare_texts(
            model, run.rows.questions, run.rows.passages, path, run.settings, lambda _done, _total: None
        )
        gradients = GradientStep(model, texts, run.settings, Processes())
        number = 0
        for epoch in range(run.settings.epochs):
            for batch in epoch_batches(run.rows, run.settings, epoch):
                gradients(batch, number)
                step(run, model, optimizer, number)
                number += 1


def train_plain(run: Run, model: DprModel, *, dropout: bool) -> None:
    for layer in model.model.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.__class__ = torch.nn.Linear  # DprModel has made another of it
    optimizer = make_optimizer(model, run.settings)
    loss = MultipleNegativesRankingLoss(model.model, scale=UNIT_SCALE, similarity_fct=dot_score)
    model.model.train(dropout)
    columns = columns_of(run.instances, run.settings)
    number = 0
    for epoch in range(run.settings.epochs):
        for batch in epoch_batches(run.rows, run.settings, epoch):
            chosen = [columns[run.rows.questions[question]] for question in batch.questions]
            features = [padded(model, place, [texts[place] for texts in chosen]) for place in range(len(chosen[0]))]
            loss(features, torch.zeros(len(chosen))).backward()
            step(run, model, optimizer, number)
            number += 1
    model.model.eval()


def columns_of(instances: list[DprInstance], settings: DprSettings) -> dict[str, list[str]]:
    """question -> question, positive and its negatives, the first ones of each kind."""
    return {
        i.question: [
            i.question,
            i.positive_ctxs[0].text,
            *(context.text for context in i.negative_ctxs[: settings.negatives]),
            *(context.text for context in i.hard_negative_ctxs[: settings.hard_negatives]),
        ]
        for i in instances
    }


def padded(model: DprModel, place: int, texts: list[str]) -> dict[str, Any]:
    tower = model.towers["document" if place else "query"]
    tokens = tower.tokenizer(
        [tower.prompt + text for text in texts],
        truncation=True,
        max_length=tower.max_tokens,
        padding=True,
        return_tensors="pt",
    )
    return {name: tokens[name] for name in ("input_ids", "attention_mask")}


def measure(run: Run, model: DprModel) -> DevScores:
    return score_vectors(
        run.dev,
        model.model.encode_query(list(run.dev.questions), show_progress_bar=False),
        model.model.encode_document(list(run.dev.pool), show_progress_bar=False),
    )


def prepared(path: Path, encoder: str, questions: int, settings: DprSettings) -> Run:
    complete = (
        i
        for i in read_dpr_json(path)
        if len(i.negative_ctxs) >= settings.negatives and len(i.hard_negative_ctxs) >= settings.hard_negatives
    )
    train, dev = split_dev(list(islice(complete, questions + settings.dev_questions)), settings)
    whole = [
        i
        for i in {i.question: i for i in train}.values()
        if len(i.negative_ctxs) >= settings.negatives and len(i.hard_negative_ctxs) >= settings.hard_negatives
    ]
    return Run(encoder, whole, compile_rows(whole, settings), dev, settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", type=Path)
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--questions", type=int, default=256)
    parser.add_argument("--dev-questions", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    settings = replace(DprSettings(), epochs=arguments.epochs, dev_questions=arguments.dev_questions)
    run = prepared(arguments.set, arguments.encoder, arguments.questions, settings)
    n_pairs = len(run.rows.rows) * settings.epochs
    print(
        f"{len(run.rows.rows)} pairs, {settings.epochs} epochs, {run.n_steps} steps, dev n = {len(run.dev.questions)}"
    )
    sides = {
        "plain": partial(train_plain, dropout=True),
        "plain, no dropout": partial(train_plain, dropout=False),
        "here": train_here,
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    scores: dict[str, DevScores] = {}
    for _ in range(arguments.rounds):
        for name, train in sides.items():
            model = DprModel(run.encoder, settings, "cpu")
            torch.manual_seed(settings.seed)
            started = time.process_time()  # other work on the machine does not count
            train(run, model)
            seconds[name].append(time.process_time() - started)
            print(f"{name}: {n_pairs / seconds[name][-1]:.2f} pairs a CPU second", flush=True)
            if name not in scores and run.dev.questions:
                scores[name] = measure(run, model)
    for name in list(sides)[:-1]:
        ratios = [plain / here for plain, here in zip(seconds[name], seconds["here"], strict=True)]
        rounds = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"times as fast as {name}: {statistics.median(ratios):.2f} (each round: {rounds})")
    for name, found in scores.items():
        print(f"{name}: {found.to_dict()}")


if __name__ == "__main__":
    main()
