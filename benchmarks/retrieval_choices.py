"""Retrieval on a corpus over several splits: the figures behind the defaults (docs/results.md).

    python benchmarks/retrieval_choices.py FILE --question-column title,ask --answer-column answer \
        --domain-column department --seeds 0 1 2 3 4 --segmenters bigram jieba --texts question+answer answer

Values of all splits are pooled; intervals resample groups of re-posts over all splits, since one post
can be held out in several of them.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from dmnrag.data import ColumnMapping, read_documents, repost_groups, split_documents
from dmnrag.experiments.downstream import score_downstream
from dmnrag.experiments.pool import score_pool
from dmnrag.experiments.statistics import Evaluation, summarise
from dmnrag.experiments.systems import PAIRS, rank_all
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.index.build import UNTRAINED
from dmnrag.pipeline import Pipeline
from dmnrag.protocols import Encoder
from dmnrag.retrieval.dense import DenseSettings, make_encoder
from dmnrag.retrieval.dense.memo import MemoEncoder
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.text import SegmenterSettings
from dmnrag.types import Document

_DEPTH = 10


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--question-column", required=True)
    parser.add_argument("--answer-column", required=True)
    parser.add_argument("--domain-column", required=True)
    parser.add_argument("--domain-kind", default="path")
    parser.add_argument("--test-size", type=float, default=0.2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--segmenters", nargs="+", default=["bigram"])
    parser.add_argument("--texts", nargs="+", default=["question+answer"])
    parser.add_argument("--k1", type=float, nargs="+", default=[Bm25Settings().k1])
    parser.add_argument("--b", type=float, nargs="+", default=[Bm25Settings().b])
    parser.add_argument("--encoder", default="none")
    return parser.parse_args()


def measure(
    documents: list[Document],
    groups: list[int],
    settings: IndexSettings,
    encoder: Encoder | None,
    options: argparse.Namespace,
) -> Evaluation:
    """Every system over all splits."""
    values: dict[str, dict[str, list[float | None]]] = {}
    clusters: list[str] = []
    for seed in options.seeds:
        split = split_documents(documents, options.test_size, seed, groups=groups)
        clusters += [example.cluster for example in split.test]
        with TemporaryDirectory() as folder:
            build_index(Path(folder) / "i", split.train, settings, examples=split.test, encoder=encoder)
            with Index.open(Path(folder) / "i") as index:
                pipeline = Pipeline(index, encoders={} if encoder is None else {UNTRAINED: encoder})
                rankings = rank_all(pipeline, index.examples, _DEPTH)
                found = score_downstream(index, rankings)
                for system, by_metric in score_pool(pipeline).items():
                    found[system] |= by_metric
        for system, by_metric in found.items():
            for metric, column in by_metric.items():
                values.setdefault(system, {}).setdefault(metric, []).extend(column)
    return summarise(values, clusters, PAIRS)


def report(title: str, found: Evaluation) -> None:
    metrics = list(dict.fromkeys(row.metric for row in found.rows))
    print(f"\n### {title}\n\nn = {found.n}\n")
    print("| system | " + " | ".join(metrics) + " |\n|" + "---|" * (len(metrics) + 1))
    for name in dict.fromkeys(row.name for row in found.rows):
        cells = [r for r in found.rows if r.name == name]
        print(f"| {name} | " + " | ".join(f"{r.mean:.3f} [{r.low:.3f}, {r.high:.3f}]" for r in cells) + " |")
    print("\n| paired difference | metric | points [95 %] | p |\n|---|---|---|---|")
    for c in found.comparisons:
        print(f"| {c.a} - {c.b} | {c.metric} | {c.difference:+.4f} [{c.low:+.4f}, {c.high:+.4f}] | {c.p:.4f} |")


def main() -> None:
    options = arguments()
    mapping = ColumnMapping(
        tuple(options.question_column.split(",")),
        tuple(options.answer_column.split(",")),
        tuple(options.domain_column.split(",")),
    )
    documents, read = read_documents([options.file], mapping)
    groups = repost_groups([d.question for d in documents], ["\n".join(d.answers) for d in documents])
    encoder = None if options.encoder == "none" else MemoEncoder(make_encoder(options.encoder))
    print(f"{read.n_documents} documents, seeds {options.seeds}, test size {options.test_size}", flush=True)
    for segmenter in options.segmenters:
        for text in options.texts:
            for k1 in options.k1:
                for b in options.b:
                    settings = IndexSettings(
                        segmenter=SegmenterSettings(name=segmenter),
                        bm25=Bm25Settings(k1=k1, b=b),
                        indexed_text=text,
                        domain_kind=options.domain_kind,
                        dense=None if encoder is None else DenseSettings(encoder=options.encoder, passage=text),
                    )
                    title = f"{segmenter}, {text}, k1 {k1}, b {b}, encoder {options.encoder}"
                    report(title, measure(documents, groups, settings, encoder, options))


if __name__ == "__main__":
    main()
