"""The first layer on the embedded engine and on Elasticsearch, one shard and three (docs/results.md).

    python benchmarks/elastic_parity.py FILE --question-column title,ask --answer-column answer \
        --domain-column department [--domain-kind path] [--seed 0] [--release 9]

FILE is split; the training documents go into four indexes: embedded, embedded with Lucene's rounding of lengths, and
Elasticsearch with one and with three shards. Every held-out question is asked, plain and joint, in the index and on
the answer pool. "Same top 10": ids and order; the reference is Elasticsearch with one shard.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench_elastic import connection_settings, server

from dmnrag.data import ColumnMapping, read_documents, repost_groups, split_documents
from dmnrag.experiments.downstream import score_downstream
from dmnrag.experiments.pool import score_pool
from dmnrag.experiments.statistics import Values, summarise
from dmnrag.experiments.systems import rank_all
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.index.cluster_writer import ClusterTarget
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.elastic import connect, delete_index
from dmnrag.retrieval.elastic.layout import ShardSettings
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.types import Hit

EMBEDDED, ROUNDED = "embedded", "embedded, lucene_lengths"
METRICS = ("same-domain@3", "best-of-3 ROUGE-1 (word)", "pool recall@3", "pool recall@10", "pool MRR@10")
DEPTH = 10


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--question-column", required=True)
    parser.add_argument("--answer-column", required=True)
    parser.add_argument("--domain-column", required=True)
    parser.add_argument("--domain-kind", default="path")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--release", choices=("8", "9"), default="9")
    parser.add_argument("--url", help="a server that runs, in place of a node of our own")
    return parser.parse_args()


def cluster_target(url: str, shards: int, name: str) -> ClusterTarget:
    return ClusterTarget(connection_settings(url), name, ShardSettings(shards, replicas=0), replace=True)


def main() -> None:
    options = arguments()
    mapping = ColumnMapping(
        tuple(options.question_column.split(",")),
        tuple(options.answer_column.split(",")),
        tuple(options.domain_column.split(",")),
    )
    documents, _ = read_documents([options.file], mapping)
    groups = repost_groups([d.question for d in documents], ["\n".join(d.answers) for d in documents])
    split = split_documents(documents, 0.2, seed=options.seed, groups=groups)
    exact = IndexSettings(domain_kind=options.domain_kind)
    rounded = replace(exact, bm25=Bm25Settings(lucene_lengths=True))
    rankings: dict[str, dict[str, list[list[Hit]]]] = {}
    values: dict[str, dict[str, list[float | None]]] = {}
    with server(options) as url, tempfile.TemporaryDirectory() as folder:
        engines: dict[str, tuple[IndexSettings, ClusterTarget | None]] = {
            EMBEDDED: (exact, None),
            ROUNDED: (rounded, None),
            **{f"Elasticsearch, {n} shards": (rounded, cluster_target(url, n, f"parity-{n}")) for n in (1, 3)},
        }
        for number, (engine, (settings, target)) in enumerate(engines.items()):
            place = Path(folder) / str(number)
            build_index(place, split.train, settings, examples=split.test, target=target)
            with Index.open(place) as index:
                pipeline = Pipeline(index)
                found = rank_all(pipeline, index.examples, DEPTH)
                pool_target = None if target is None else replace(target, name=f"{target.name}-pool")
                measured = score_downstream(index, found)
                for system, columns in score_pool(pipeline, target=pool_target).items():
                    values[f"{engine}, {system}"] = {**measured[system], **columns}
                rankings[engine] = found
                clusters = [e.cluster or e.query.query_id for e in index.examples]
            print(engine, "done", flush=True)
        with connect(connection_settings(url)) as cluster:
            for name in ("parity-1", "parity-3", "parity-1-pool", "parity-3-pool"):
                delete_index(cluster, name)
    report(rankings, values, clusters)


def report(rankings: dict[str, dict[str, list[list[Hit]]]], values: Values, clusters: Sequence[str]) -> None:
    reference = "Elasticsearch, 1 shards"
    print(f"\nn = {len(clusters)}\n\n| engine | system | same top 10 | " + " | ".join(METRICS) + " |")
    print("|---" * (3 + len(METRICS)) + "|")
    rows = {(row.name, row.metric): row for row in summarise(values, clusters, ()).rows}
    for engine, by_system in rankings.items():
        for system, found in by_system.items():
            wanted = rankings[reference][system]
            same = sum(ids(a) == ids(b) for a, b in zip(found, wanted, strict=True))
            cells = [rows[f"{engine}, {system}", metric] for metric in METRICS]
            shown = " | ".join(f"{row.mean:.3f} [{row.low:.3f}, {row.high:.3f}]" for row in cells)
            print(f"| {engine} | {system} | {same:,} | {shown} |")


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.doc_id for hit in hits]


if __name__ == "__main__":
    main()
