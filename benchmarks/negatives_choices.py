"""What guards and the tail window are worth: same questions, dev slice and steps, other negatives (docs/results.md).

    python benchmarks/negatives_choices.py INDEX --questions 2000 --dev-questions 400 [--precision bf16] [--seed 0]

INDEX is one with vectors and domains. Each variant mines its set from the joint first layer, trains, and ranks the
dev slice's pool; the slice hangs on the questions alone, so it is the same for all. Differences are paired, against
the defaults. The share of hard negatives that are a right answer cannot be read off: that takes a reader.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dmnrag.data.exchange import DprInstance
from dmnrag.experiments.statistics import Contrast, summarise
from dmnrag.index import Index
from dmnrag.retrieval.dense import make_encoder
from dmnrag.retrieval.dense.memo import MemoEncoder
from dmnrag.training.dev import split_dev
from dmnrag.training.dpr import train_dpr
from dmnrag.training.negatives_settings import GuardSettings, TrainingSetSettings
from dmnrag.training.settings import DprSettings
from dmnrag.training.training_set import build_training_set

DEFAULT = "defaults: guards, ranks 51-200"
VARIANTS = {
    DEFAULT: TrainingSetSettings(),
    "no guard, ranks 51-200": TrainingSetSettings(guards=GuardSettings.off()),
    "guards, ranks 1-50": TrainingSetSettings(first_rank=1, last_rank=50),
    "no guard, ranks 1-50": TrainingSetSettings(first_rank=1, last_rank=50, guards=GuardSettings.off()),
}
DEPTH = 10


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--dev-questions", type=int, default=400)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def measure(model: Path, instances: Sequence[DprInstance], settings: DprSettings) -> dict[str, list[float]]:
    """recall@3, recall@10 and MRR@10 of each dev question."""
    _, dev = split_dev(instances, settings)
    encoder = make_encoder(str(model), precision="bf16" if settings.precision == "bf16" else "fp32")
    scores = encoder.encode_queries(dev.questions) @ encoder.encode_passages(dev.pool).T
    best = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
    found = [[int(place) in golds for place in row] for row, golds in zip(best, dev.golds, strict=True)]
    return {
        "recall@3": [sum(hits[:3]) / len(golds) for hits, golds in zip(found, dev.golds, strict=True)],
        "recall@10": [sum(hits) / len(golds) for hits, golds in zip(found, dev.golds, strict=True)],
        "MRR@10": [1 / (1 + hits.index(True)) if True in hits else 0.0 for hits in found],
    }


def main() -> None:
    options = arguments()
    settings = DprSettings(
        dev_questions=options.dev_questions, precision=options.precision, seed=options.seed, evaluate_steps=10_000
    )
    values: dict[str, dict[str, list[float | None]]] = {}
    with Index.open(options.index) as index, TemporaryDirectory() as folder:
        encoder = MemoEncoder(make_encoder(index.dense_settings().encoder))
        documents = list(index.all_documents())
        chosen = random.Random(options.seed).sample(range(len(documents)), options.questions)
        questions = [documents[i] for i in sorted(chosen)]
        for number, (name, wanted) in enumerate(VARIANTS.items()):
            made = build_training_set(index, questions, replace(wanted, seed=options.seed), encoder=encoder)
            run = train_dpr(made.instances, Path(folder) / str(number), settings, encoder=encoder.name)
            values[name] = dict(measure(run.folder, made.instances, settings))
            print(name, run.n_questions, run.scores, made.card.get("removed"), flush=True)
    n = len(values[DEFAULT]["MRR@10"])
    found = summarise(values, [str(i) for i in range(n)], [(name, DEFAULT) for name in values if name != DEFAULT])
    print(f"\nn = {n}\n\n| negatives | " + " | ".join(values[DEFAULT]) + " |\n|---|---|---|---|")
    for name in values:
        cells = [f"{row.mean:.3f} [{row.low:.3f}, {row.high:.3f}]" for row in found.rows if row.name == name]
        print(f"| {name} | " + " | ".join(cells) + " |")
    for c in found.comparisons:
        print(f"{c.a} - {c.b}: {c.metric} {interval(c)}")


def interval(c: Contrast) -> str:
    return f"{c.difference:+.4f} [{c.low:+.4f}, {c.high:+.4f}] p {c.p:.4f}"


if __name__ == "__main__":
    main()
