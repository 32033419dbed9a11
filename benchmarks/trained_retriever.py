"""Trained retrievers against the untrained encoder and BM25 over several splits (docs/results.md).

    python benchmarks/trained_retriever.py FILE --out DIR --question-column title,ask --answer-column answer \
        --domain-column department --seeds 0 1 --first-layers joint plain --limit 2000 [--passage answer]

For each split seed: an index, a retriever per first layer as `dmnrag train` trains it, and every system on the
held-out questions in the index and on the answer pool. What is done is kept in DIR: a killed run goes on. The
values of all splits are pooled; intervals resample groups of re-posts over all splits.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from retrieval_choices import report

from dmnrag._io import write_json_atomic
from dmnrag.data import ColumnMapping, read_documents, repost_groups, split_documents
from dmnrag.experiments.downstream import score_downstream
from dmnrag.experiments.pool import score_pool
from dmnrag.experiments.statistics import summarise
from dmnrag.experiments.systems import pairs_of, rank_all
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.index.build import UNTRAINED
from dmnrag.index.generations import is_index
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.dense import DenseSettings, make_encoder
from dmnrag.retrieval.dense.memo import MemoEncoder
from dmnrag.training.dpr_retriever import NAMES, RetrieverPlan, train_retriever
from dmnrag.training.negatives_settings import TrainingSetSettings
from dmnrag.training.settings import DprSettings
from dmnrag.types import Document

_DEPTH = 10


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--question-column", required=True)
    parser.add_argument("--answer-column", required=True)
    parser.add_argument("--domain-column", required=True)
    parser.add_argument("--domain-kind", default="path")
    parser.add_argument("--test-size", type=float, default=0.2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--first-layers", nargs="+", default=["joint", "plain"])
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--passage", default="answer", help="answer, or question-part+answer")
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--precision", default="fp32", help="of training and encoding: fp32 or bf16")
    parser.add_argument("--training", type=json.loads, default={}, help="other training settings, a JSON object")
    return parser.parse_args()


def train_all(folder: Path, options: argparse.Namespace, seed: int) -> None:
    for first_layer in options.first_layers:
        with Index.open(folder) as index:
            if NAMES[first_layer] in index.manifest.retrievers:
                continue
        started = time.monotonic()
        plan = RetrieverPlan(
            training_set=TrainingSetSettings(first_layer=first_layer, passage=options.passage, seed=seed),
            training=DprSettings.from_dict({"seed": seed, "precision": options.precision, **options.training}),
            limit=options.limit,
        )
        made = train_retriever(folder, plan, accept_worse=True, on_measurement=lambda entry: print(entry, flush=True))
        told = {k: v for k, v in made.to_dict().items() if k not in {"training_set", "rounds", "history"}}
        print(f"{first_layer}: {time.monotonic() - started:,.0f} s", json.dumps(told, ensure_ascii=False), flush=True)


def measure(
    documents: list[Document], groups: list[int], encoder: MemoEncoder, options: argparse.Namespace, seed: int
) -> dict[str, Any]:
    """Values of every system on one split; read back where they were measured before."""
    folder = options.out / f"seed-{seed}"
    kept = folder / "values.json"
    if kept.is_file():
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    if not is_index(folder / "index"):
        split = split_documents(documents, options.test_size, seed, groups=groups)
        dense = DenseSettings(encoder=options.encoder, encoder_precision=options.precision)
        settings = IndexSettings(domain_kind=options.domain_kind, dense=dense)
        build_index(folder / "index", split.train, settings, examples=split.test, encoder=encoder)
    train_all(folder / "index", options, seed)
    started = time.monotonic()
    with Index.open(folder / "index") as index:
        pipeline = Pipeline(index, encoders={UNTRAINED: encoder})
        values = score_downstream(index, rank_all(pipeline, index.examples, _DEPTH))
        for system, by_metric in score_pool(pipeline).items():
            values[system] |= by_metric
        found = {
            "values": values,
            "clusters": [e.cluster or e.query.query_id for e in index.examples],
            "pairs": pairs_of(index),
        }
    write_json_atomic(kept, found)
    print(f"seed {seed} measured in {time.monotonic() - started:,.0f} s", flush=True)
    return found


def main() -> None:
    options = arguments()
    mapping = ColumnMapping(
        tuple(options.question_column.split(",")),
        tuple(options.answer_column.split(",")),
        tuple(options.domain_column.split(",")),
    )
    documents, _ = read_documents([options.file], mapping)
    groups = repost_groups([d.question for d in documents], ["\n".join(d.answers) for d in documents])
    encoder = MemoEncoder(make_encoder(options.encoder, precision=options.precision))
    values: dict[str, dict[str, list[float | None]]] = {}
    clusters: list[str] = []
    pairs: list[tuple[str, str]] = []
    for seed in options.seeds:
        found = measure(documents, groups, encoder, options, seed)
        clusters += found["clusters"]
        pairs = [tuple(pair) for pair in found["pairs"]]
        for system, by_metric in found["values"].items():
            for metric, column in by_metric.items():
                values.setdefault(system, {}).setdefault(metric, []).extend(column)
        report(f"seeds to {seed}", summarise(values, clusters, pairs))


if __name__ == "__main__":
    main()
