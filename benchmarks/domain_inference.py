"""How well the domain of a question is inferred, and what that costs in retrieval (docs/results.md).

    python benchmarks/domain_inference.py FILE --question-column title,ask --answer-column answer \
        --domain-column department --seeds 0 1 2 3 4 --foreign OTHER.jsonl question

Questions of the test split; the model has learnt from the training split alone. All splits are pooled; intervals
resample groups of re-posts over them. BM25 is asked with the domain given, inferred, and without one; a question whose
domain is not inferred is searched without, as `--domain auto` does it.
`--vectors INDEX` adds the same regression on an index's vectors for the first `--limit` questions of its split.
`--choices` shows instead what the constants of training are worth.
"""

import argparse
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from dmnrag._io import read_jsonl
from dmnrag.data import ColumnMapping, ReadOptions, Split, read_documents, repost_groups, split_documents
from dmnrag.domain import DomainModel, DomainSettings, Inference, training
from dmnrag.domain.ridge import fit_ridge
from dmnrag.experiments.downstream import score_downstream
from dmnrag.experiments.statistics import Values, summarise
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.dense.vectors import open_vectors
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.types import JOINT, PLAIN, Document, Domain, Example, Hit, Query

THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SEARCHED = (0.0, 0.3, 0.4, 0.5, 0.7)
"""Thresholds whose domains are searched with; of a set, 0 would mean all labels and is left out."""
BINS = 15
"""Of equal width, as Guo et al. 2017 ("On calibration of modern neural networks")."""
RESAMPLES = 500

Pairs = list[tuple[Domain, Inference]]
"""The labels of a question, and what was inferred for it at threshold 0."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--question-column", required=True)
    parser.add_argument("--answer-column", required=True)
    parser.add_argument("--domain-column", required=True)
    parser.add_argument("--domain-kind", default="path")
    parser.add_argument("--test-size", type=float, default=0.2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--foreign", nargs=2, action="append", default=[], metavar=("FILE", "COLUMN"))
    parser.add_argument("--choices", action="store_true")
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--limit", type=int, default=400)
    return parser.parse_args()


class Run:
    """Values of all splits."""

    def __init__(self, settings: DomainSettings, foreign: dict[str, list[str]]) -> None:
        self.settings = settings
        self.foreign = foreign
        self.clusters: list[str] = []
        self.gold: list[Domain] = []
        self.found: dict[float, list[Inference]] = {threshold: [] for threshold in THRESHOLDS}
        self.elsewhere: dict[str, dict[float, list[bool]]] = {name: {t: [] for t in THRESHOLDS} for name in foreign}
        self.retrieval: dict[str, dict[str, list[float | None]]] = {}

    def split(self, train: list[Document], test: list[Example]) -> None:
        started = process_time()
        model = DomainModel.train(train, self.settings)
        print(f"trained on {len(train)} in {process_time() - started:.1f} s of CPU time; {model.held_out}", flush=True)
        questions = [example.query.text for example in test]
        for threshold, inferences in self.found.items():
            inferences.extend(model.infer(questions, threshold=threshold))
        self.clusters += [example.cluster for example in test]
        self.gold += [example.query.domain for example in test]
        for name, texts in self.foreign.items():
            for threshold, given in self.elsewhere[name].items():
                given.extend(not inference.abstained for inference in model.infer(texts, threshold=threshold))
        self._search(train, test)

    def _search(self, train: list[Document], test: list[Example]) -> None:
        with TemporaryDirectory() as folder:
            build_index(Path(folder) / "i", train, IndexSettings(domain_kind=self.settings.kind), examples=test)
            with Index.open(Path(folder) / "i") as index:
                pipeline = Pipeline(index)
                plain = rank(pipeline, [Query(e.query.query_id, e.query.text) for e in test])
                rankings = {"no domain": plain, "given": rank(pipeline, [e.query for e in test])}
                for threshold in SEARCHED[self.settings.kind == "set" :]:
                    domains = [inference.domain for inference in self.found[threshold][-len(test) :]]
                    queries = [Query(e.query.query_id, e.query.text, d) for e, d in zip(test, domains, strict=True)]
                    rankings[f"inferred, {threshold}"] = rank(pipeline, queries)
                for system, by_metric in score_downstream(index, rankings).items():
                    for metric, column in by_metric.items():
                        self.retrieval.setdefault(system, {}).setdefault(metric, []).extend(column)


def rank(pipeline: Pipeline, queries: list[Query]) -> list[list[Hit]]:
    """BM25 as the methods use it: joint where a domain is known, else plain."""
    joint = pipeline.search(queries, RetrievalSettings(layer="sparse", use=JOINT))
    plain = pipeline.search(queries, RetrievalSettings(layer="sparse", use=PLAIN))
    return [j if query.domain else p for query, j, p in zip(queries, joint, plain, strict=True)]


def top_is_right(gold: Domain, found: Inference, kind: str) -> bool:
    return found.alternatives[0][0] in (gold if kind == "set" else gold[:1])


def is_right(gold: Domain, domain: Domain, kind: str) -> bool:
    """Every inferred label is one of the question's."""
    return set(domain) <= set(gold) if kind == "set" else domain == gold[: len(domain)]


def assigned(run: Run) -> list[tuple[set[str], set[str]]]:
    """Labels and predicted labels: the likeliest top label, or the set at the default threshold."""
    if run.settings.kind == "set":
        found = run.found[run.settings.threshold]
        return [(set(gold), set(inference.domain)) for gold, inference in zip(run.gold, found, strict=True)]
    return [({g[0]}, {f.alternatives[0][0]}) for g, f in zip(run.gold, run.found[0.0], strict=True)]


def macro_f1(pairs: Sequence[tuple[set[str], set[str]]]) -> float:
    """Over the labels of the questions."""
    labels = sorted(set().union(*(gold for gold, _ in pairs)))
    scores = []
    for label in labels:
        both = sum(label in gold and label in found for gold, found in pairs)
        scores.append(2 * both / sum((label in gold) + (label in found) for gold, found in pairs))
    return float(np.mean(scores))


def micro_f1(pairs: Sequence[tuple[set[str], set[str]]]) -> float:
    both = sum(len(gold & found) for gold, found in pairs)
    return 2 * both / sum(len(gold) + len(found) for gold, found in pairs)


def calibration_error(rows: Sequence[tuple[float, bool]]) -> float:
    """ECE of the likeliest top label: |accuracy - mean probability| of each bin, weighted by its questions."""
    p, right = np.array([p for p, _ in rows]), np.array([right for _, right in rows], float)
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    gaps = [abs(float((p - right)[bins == b].sum())) for b in range(BINS)]
    return sum(gaps) / len(rows)


def interval(rows: Sequence, clusters: Sequence[str], measure: Callable[[Sequence], float]) -> str:
    """The measure of all rows with a percentile interval over resampled clusters."""
    members: dict[str, list[int]] = {}
    for position, cluster in enumerate(clusters):
        members.setdefault(cluster, []).append(position)
    groups = list(members.values())
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        chosen = [i for number in rng.integers(len(groups), size=len(groups)) for i in groups[number]]
        drawn.append(measure([rows[i] for i in chosen]))
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{measure(rows):.3f} [{low:.3f}, {high:.3f}]"


def report(run: Run) -> None:
    kind = run.settings.kind
    first = run.found[0.0]
    right = [top_is_right(gold, found, kind) for gold, found in zip(run.gold, first, strict=True)]
    columns: dict[str, list[float | None]] = {"top-label accuracy": [float(r) for r in right]}
    for label in dict.fromkeys(sorted((x for gold, _ in assigned(run) for x in gold), key=str)):
        columns[f"recall {label}"] = [float(label in f) if label in g else None for g, f in assigned(run)]
    found = summarise({"all": columns}, run.clusters, [])
    print(f"\nn = {found.n}\n")
    for row in found.rows:
        low, high = (f"{x:.4f}" if x is not None else "-" for x in (row.low, row.high))
        print(f"| {row.metric} | {row.mean:.4f} [{low}, {high}] | {row.n} |")
    print(f"| macro F1 | {interval(assigned(run), run.clusters, macro_f1)} |")
    print(f"| micro F1 | {interval(assigned(run), run.clusters, micro_f1)} |")
    sure = [(f.alternatives[0][1], r) for f, r in zip(first, right, strict=True)]
    print(f"| ECE | {interval(sure, run.clusters, calibration_error)} |", flush=True)
    report_thresholds(run)
    report_retrieval(run.retrieval, run.clusters)


def report_thresholds(run: Run) -> None:
    kind = run.settings.kind
    names = ["coverage", "right where given", "as specific as the data"]
    print("\n| threshold | " + " | ".join([*names, *(f"{n}: given" for n in run.elsewhere)]) + " |")
    print("|" + "---|" * (1 + len(names) + len(run.elsewhere)))
    for threshold, inferences in run.found.items():
        rows = list(zip(run.gold, inferences, strict=True))
        values: Values = {
            "t": {
                names[0]: [float(not f.abstained) for _, f in rows],
                names[1]: [None if f.abstained else float(is_right(g, f.domain, kind)) for g, f in rows],
                names[2]: [None if f.abstained else float(len(f.domain) >= len(g)) for g, f in rows],
            }
        }
        cells = [f"{r.mean:.4f} [{r.low:.4f}, {r.high:.4f}]" for r in summarise(values, run.clusters, []).rows]
        cells += [f"{np.mean(given[threshold]):.3f}" for given in run.elsewhere.values()]
        print(f"| {threshold} | " + " | ".join(cells) + " |", flush=True)


def report_retrieval(values: Values, clusters: Sequence[str]) -> None:
    pairs = [(name, other) for name in values for other in ("given", "no domain") if name not in (other, "given")]
    found = summarise(values, clusters, [pair for pair in pairs if pair != ("no domain", "no domain")])
    metrics = list(dict.fromkeys(row.metric for row in found.rows))
    print("\n| domain | " + " | ".join(metrics) + " |\n|" + "---|" * (len(metrics) + 1))
    for name in values:
        cells = [f"{r.mean:.4f} [{r.low:.4f}, {r.high:.4f}]" for r in found.rows if r.name == name]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("\n| paired difference | metric | [95 %] | p |\n|---|---|---|---|")
    for c in found.comparisons:
        print(f"| {c.a} - {c.b} | {c.metric} | {c.difference:+.4f} [{c.low:+.4f}, {c.high:+.4f}] | {c.p:.4f} |")


def choices(splits: Sequence[Split], settings: DomainSettings) -> None:
    """Top labels by other constants and settings, and by questions alone."""
    bare = [replace(split, train=[replace(d, answers=()) for d in split.train]) for split in splits]
    fewer = [replace(split, train=[d for i, d in enumerate(split.train) if i % 20]) for split in splits]
    tried: list[tuple[str, Sequence[Split], DomainSettings, dict[str, float]]] = [
        ("as it is", splits, settings, {}),
        ("questions alone", bare, settings, {}),
        ("95 % of the documents", fewer, settings, {}),
        *((f"penalty {x}", splits, settings, {"PENALTY": x}) for x in (0.3, 3.0)),
        *((f"balance {x}", splits, settings, {"BALANCE": x}) for x in (0.0, 1.0)),
        *((f"{n} terms", splits, replace(settings, max_terms=n), {}) for n in (10_000, 60_000)),
    ]
    for name, used, changed, constants in tried:
        examples, found = [], []
        with patch.multiple(training, **constants) if constants else nullcontext():
            for split in used:
                model = DomainModel.train(split.train, changed)
                found += model.infer([example.query.text for example in split.test])
                examples += split.test
        show(name, [inference.alternatives[0][0] for inference in found], examples, settings.kind)


def vectors_beside(folder: Path, limit: int) -> None:
    """Terms against vectors on one index's split: trained on its documents, asked its first held-out questions."""
    from scipy.sparse import csr_matrix

    with Index.open(folder) as index:
        documents, examples = list(index.all_documents()), index.examples[:limit]
        generation = folder / "generations" / f"{index.manifest.generation:06d}"
        segment = open_vectors(generation / "dense" / "base" / index.manifest.segments[0].name)
        encoder = Pipeline(index).encoder_of()
    labels = sorted({d.domain[0] for d in documents})
    owner = [labels.index(documents[i].domain[0]) for i in segment.owners]
    targets = (2 * np.eye(len(labels))[owner] - 1).astype(np.float32)
    weights = (np.bincount(owner, minlength=len(labels))[owner] ** -0.5).astype(np.float32)
    questions = encoder.encode_queries([e.query.text for e in examples])
    model = DomainModel.train(documents)
    terms = [inference.alternatives[0][0] for inference in model.infer([e.query.text for e in examples])]
    show("terms", terms, examples)
    for penalty in (0.01, 0.1, 1.0):
        fitted: tuple[npt.NDArray, npt.NDArray] = fit_ridge(csr_matrix(segment.vectors), targets, weights, penalty)
        scores = questions @ fitted[0] + fitted[1]
        show(f"vectors, penalty {penalty}", [labels[i] for i in scores.argmax(axis=1)], examples)


def show(name: str, found: Sequence[str], examples: Sequence[Example], kind: str = "path") -> None:
    """Accuracy and macro F1 of one top label a question; of a set, of the question's labels the one that was found."""
    pairs = []
    for example, label in zip(examples, found, strict=True):
        gold = example.query.domain
        pairs.append(({label if kind == "set" and label in gold else gold[0]}, {label}))
    clusters = [e.cluster for e in examples]

    def accuracy(rows: Sequence[tuple[set[str], set[str]]]) -> float:
        return float(np.mean([gold == label for gold, label in rows]))

    print(f"{name}: n {len(pairs)}, accuracy {interval(pairs, clusters, accuracy)}", end=", ")
    print(f"macro F1 {interval(pairs, clusters, macro_f1)}", flush=True)


def main() -> None:
    options = arguments()
    columns = (options.question_column, options.answer_column, options.domain_column)
    mapping = ColumnMapping(*(tuple(column.split(",")) for column in columns))
    documents, _ = read_documents([options.file], mapping, options=ReadOptions(domain_kind=options.domain_kind))
    documents = [document for document in documents if document.domain]
    groups = repost_groups([d.question for d in documents], ["\n".join(d.answers) for d in documents])
    foreign = {Path(f).stem: [str(row[column]) for row in read_jsonl(Path(f))] for f, column in options.foreign}
    settings = DomainSettings(kind=options.domain_kind)
    splits = [split_documents(documents, options.test_size, seed, groups=groups) for seed in options.seeds]
    if options.choices:
        choices(splits, settings)
        return
    run = Run(settings, foreign)
    for split in splits:
        run.split(split.train, split.test)
    report(run)
    if options.vectors is not None:
        vectors_beside(options.vectors, options.limit)


if __name__ == "__main__":
    main()
