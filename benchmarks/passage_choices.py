"""Passages of question and answer for a trained retriever: how to train for them, whether it pays (docs/results.md).

    python benchmarks/passage_choices.py INDEX [--limit 2300] [--precision bf16] [--seed 0]

INDEX has the retriever `joint`, trained on answers and searched on answers (the default), and held-out questions.
On a copy of it, two other ways: the same model over passages of question and answer; and a model trained with a part
of the question in the passage and the rest asked, over such passages. Figures are what the LLM is given:
same-domain@3 and the best answer among the first three, dense and hybrid.
"""

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dmnrag.experiments.downstream import score_downstream
from dmnrag.experiments.statistics import summarise
from dmnrag.index import Index
from dmnrag.index.retrievers import add_retriever
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.dense import make_encoder
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.training.dpr_retriever import RetrieverPlan, train_retriever
from dmnrag.training.negatives_settings import TrainingSetSettings
from dmnrag.training.settings import DprSettings

ANSWERS, OVER_BOTH, PARTS, UNTRAINED = "answers", "answers, over both", "parts, over both", "untrained, over both"
LAYERS = ("dense", "hybrid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--limit", type=int, default=2300)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    values = {}
    with TemporaryDirectory(dir=options.index.parent) as folder:
        copy = Path(folder) / "index"
        shutil.copytree(options.index, copy)
        rank(copy, {UNTRAINED: "base", ANSWERS: "joint"}, values)
        with Index.open(copy) as index:
            trained = index.dense_settings("joint")
        both = replace(trained, passage="question+answer", encoder_precision=options.precision)
        add_retriever(copy, "both", both, make_encoder(trained.encoder, precision=options.precision))
        rank(copy, {OVER_BOTH: "both"}, values)
        plan = RetrieverPlan(
            training_set=TrainingSetSettings(passage="question-part+answer", seed=options.seed),
            training=DprSettings(seed=options.seed, precision=options.precision),
            limit=options.limit,
        )
        train_retriever(copy, plan, accept_worse=True, on_measurement=lambda entry: print(entry, flush=True))
        rank(copy, {PARTS: "joint"}, values)
        with Index.open(copy) as index:
            clusters = [e.cluster or e.query.query_id for e in index.examples]
    pairs = [(f"{name}, {layer}", f"{ANSWERS}, {layer}") for layer in LAYERS for name in (OVER_BOTH, PARTS, UNTRAINED)]
    found = summarise(values, clusters, pairs)
    for row in found.rows:
        print(f"{row.name} | {row.metric} | {row.mean:.3f} [{row.low:.3f}, {row.high:.3f}]")
    for c in found.comparisons:
        print(f"{c.a} - {c.b} | {c.metric} | {c.difference:+.4f} [{c.low:+.4f}, {c.high:+.4f}] | p {c.p:.4f}")


def rank(folder: Path, retrievers: dict[str, str], values: dict[str, dict[str, list[float | None]]]) -> None:
    """Values of each retriever, dense and hybrid, on the held-out questions."""
    with Index.open(folder) as index:
        pipeline = Pipeline(index)
        queries = [example.query for example in index.examples]
        rankings = {
            f"{name}, {layer}": pipeline.search(queries, RetrievalSettings(layer=layer, retriever=retriever))
            for name, retriever in retrievers.items()
            for layer in LAYERS
        }
        values.update(score_downstream(index, rankings))


if __name__ == "__main__":
    main()
