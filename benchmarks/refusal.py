"""How well questions without evidence are refused, and what that costs in answers (docs/results.md).

    python benchmarks/refusal.py FILE --question-column title,ask --answer-column answer --domain-column department \
        --layer sparse --foreign OTHER.jsonl question

The index holds the answers of both splits, as the answer pool does; calibration asks the questions of the training
split alone, since held-out documents stand in the index without theirs. Held-out questions are asked (a) as they are,
(b) after their documents and all re-posts were removed from the index, and (c) questions of other fields.
Intervals resample groups of re-posts.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import numpy.typing as npt

from dmnrag._io import read_jsonl, write_json_atomic
from dmnrag.data import ColumnMapping, ReadOptions, load_sample, read_documents, repost_groups, split_documents
from dmnrag.index import Index, IndexSettings, build_index, update_index
from dmnrag.pipeline import Pipeline
from dmnrag.refusal import CalibrationSettings, EvidenceModel
from dmnrag.refusal.calibrate import learn
from dmnrag.refusal.cases import infer, make_cases, search_as_asked
from dmnrag.refusal.figures import (
    area_under_risk_coverage,
    area_under_roc,
    choose_threshold,
    interval,
    risk_at_coverages,
)
from dmnrag.retrieval.dense import DenseSettings, make_encoder
from dmnrag.retrieval.layers import LayerHits, RetrievalSettings
from dmnrag.types import Document, Example, Query

COVERAGES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
Floats = npt.NDArray[np.float64]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--question-column", required=True)
    parser.add_argument("--answer-column", required=True)
    parser.add_argument("--domain-column", required=True)
    parser.add_argument("--domain-kind", default="path")
    parser.add_argument("--layer", default="sparse")
    parser.add_argument("-k", type=int, default=3)
    parser.add_argument("--target-risk", type=float)
    parser.add_argument("--documents", type=int, help="take the first so many documents of a random order")
    parser.add_argument("--limit", type=int, default=800, help="documents asked in calibration")
    parser.add_argument("--test-size", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--foreign", nargs=2, action="append", default=[], metavar=("FILE", "COLUMN"))
    parser.add_argument("--samples", nargs="*", default=[], help="bundled corpora of other fields")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


@dataclass
class Asked:
    """Questions of one kind with their scores."""

    model: Floats
    top: Floats
    """The first hit's score: BM25, or the inner product where there are vectors."""
    answered: npt.NDArray[np.bool_]
    """At the model's own thresholds."""
    enough: npt.NDArray[np.bool_]
    clusters: list[int]


def read(options: argparse.Namespace) -> tuple[list[Document], list[Example]]:
    columns = (options.question_column, options.answer_column, options.domain_column)
    mapping = ColumnMapping(*(tuple(column.split(",")) for column in columns))
    documents, _ = read_documents([options.file], mapping, options=ReadOptions(domain_kind=options.domain_kind))
    documents = [document for document in documents if document.domain and document.answers]
    if options.documents is not None:
        order = np.random.default_rng(options.seed).permutation(len(documents))[: options.documents]
        documents = [documents[i] for i in sorted(order)]
    groups = repost_groups([d.question for d in documents], ["\n".join(d.answers) for d in documents])
    split = split_documents(documents, options.test_size, options.seed, groups=groups)
    return split.train, split.test


def top_score(layers: LayerHits) -> float:
    hits = layers.dense or layers.sparse
    return hits[0].score if hits else 0.0


def ask(
    pipeline: Pipeline, model: EvidenceModel, examples: Sequence[Example], options: argparse.Namespace, first: int
) -> Asked:
    index = pipeline.index
    inferred = infer(index, [e.query.text for e in examples])
    queries = [
        Query(f"q{i}", e.query.text, f.domain if f else ())
        for i, (e, f) in enumerate(zip(examples, inferred, strict=True))
    ]
    found = search_as_asked(pipeline, queries, RetrievalSettings(k=options.k, layer=options.layer))
    verdicts = [model.judge(index, q, layers, f) for q, layers, f in zip(queries, found, inferred, strict=True)]
    return Asked(
        np.array([v.score for v in verdicts]),
        np.array([top_score(layers) for layers in found]),
        np.array([v.enough for v in verdicts]),
        np.array([any(h.doc_id in e.gold_doc_ids for h in f.hits) for e, f in zip(examples, found, strict=True)]),
        [int(e.cluster) if e.cluster else first + i for i, e in enumerate(examples)],
    )


def foreign_questions(options: argparse.Namespace) -> dict[str, list[Example]]:
    found = {
        Path(file).stem: [Example(Query("", str(row[column])), ()) for row in read_jsonl(Path(file))]
        for file, column in options.foreign
    }
    for name in options.samples:
        documents, examples = load_sample(name)
        texts = [d.question for d in documents] + [e.query.text for e in examples]
        found[f"sample {name}"] = [Example(Query("", text), ()) for text in texts]
    return found


def rows_of(asked: Sequence[Asked], scores: Sequence[Floats], answered: Sequence[npt.NDArray[np.bool_]]) -> Floats:
    """(n, 3): score, enough, answered."""
    parts = zip(scores, asked, answered, strict=True)
    return np.concatenate([np.stack([s, a.enough, given], axis=1) for s, a, given in parts])


def figures(
    name: str,
    as_is: Asked,
    removed: Asked,
    others: dict[str, Asked],
    scores: Callable[[Asked], Floats],
    answered: Callable[[Asked], Floats],
) -> dict:
    """All figures of one way of judging."""
    both = [as_is, removed]
    rows = rows_of(both, [scores(a) for a in both], [answered(a) for a in both])
    groups = as_is.clusters + removed.clusters
    found: dict = {"name": name, "n": len(rows), "n_enough": int(rows[:, 1].sum())}

    def add(key: str, rows: Floats, groups: list[int], measure) -> None:
        estimate = interval(rows, groups, measure)
        found[key] = None if estimate is None else [estimate.value, estimate.low, estimate.high]

    add("AUC, found against the rest of (a) and (b)", rows, groups, lambda r: area_under_roc(r[:, 0], r[:, 1] > 0))
    add("AURC", rows, groups, lambda r: area_under_risk_coverage(r[:, 0], r[:, 1] > 0))
    for share in COVERAGES:
        add(f"risk at coverage {share:g}", rows, groups, lambda r, share=share: risk(r, share))
    add("coverage", rows, groups, lambda r: mean(r[:, 2]))
    add("risk", rows, groups, lambda r: mean(1 - r[r[:, 2] > 0, 1]))
    add("found, answered", rows, groups, lambda r: mean(r[r[:, 1] > 0, 2]))
    own = rows[: len(as_is.top)]
    add("(a) not found, refused", own, as_is.clusters, lambda r: mean(1 - r[r[:, 1] == 0, 2]))
    add("(b) refused", rows[len(as_is.top) :], removed.clusters, lambda r: mean(1 - r[:, 2]))
    for other, asked in others.items():
        theirs = rows_of([asked], [scores(asked)], [answered(asked)])
        add(f"(c) {other} refused, n {len(theirs)}", theirs, asked.clusters, lambda r: mean(1 - r[:, 2]))
        beside = np.concatenate([own[own[:, 1] > 0], theirs])
        clusters = [c for c, e in zip(as_is.clusters, as_is.enough, strict=True) if e] + asked.clusters
        add(f"AUC, found against (c) {other}", beside, clusters, lambda r: area_under_roc(r[:, 0], r[:, 1] > 0))
    return found


def risk(rows: Floats, share: float) -> float:
    risks = risk_at_coverages(rows[:, 0], rows[:, 1] > 0)
    return float(risks[max(1, round(share * len(risks))) - 1])


def mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def show(results: Sequence[dict]) -> None:
    print("\n| | " + " | ".join(r["name"] for r in results) + " |\n|" + "---|" * (1 + len(results)))
    for key in results[0]:
        if key != "name":
            print(f"| {key} | " + " | ".join(cell(r.get(key)) for r in results) + " |")


def cell(value: object) -> str:
    if isinstance(value, list):
        return f"{value[0]:.3f} [{value[1]:.3f}, {value[2]:.3f}]"
    return "-" if value is None else str(value)


def main() -> None:
    options = arguments()
    train, test = read(options)
    held_out = [Document(e.query.query_id, "", e.references, e.query.domain) for e in test]
    examples = [Example(e.query, e.references, (e.query.query_id,), e.cluster) for e in test]
    dense = None if options.layer == "sparse" else DenseSettings(passage="answer")
    settings = IndexSettings(domain_kind=options.domain_kind, indexed_text="answer", dense=dense)
    encoder = None if dense is None else make_encoder(dense.encoder)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        build_index(path, [*train, *held_out], settings, encoder=encoder)
        encoders = {} if encoder is None else {"base": encoder}
        with Index.open(path) as index:
            pipeline = Pipeline(index, encoders=encoders)
            started = process_time()
            wanted = CalibrationSettings(options.layer, options.k, options.target_risk, options.limit)
            cases = make_cases(pipeline, options.layer, options.k, options.limit)
            model = learn(cases, wanted, index.manifest.generation)
            print(f"calibrated on {model.stored.n_questions} questions, {process_time() - started:.0f} s of CPU time")
            print(f"held-out folds: {model.stored.figures}; thresholds {model.stored.threshold:.3f} {model.thresholds}")
            as_is = ask(pipeline, model, examples, options, 0)
            others = {
                name: ask(pipeline, model, questions, options, 1_000_000)
                for name, questions in foreign_questions(options).items()
            }
        update_index(path, remove=[d.doc_id for d in held_out])
        with Index.open(path) as index:
            removed = ask(Pipeline(index, encoders=encoders), model, examples, options, 0)
    tops = np.array([top_score(case.found.layers) for case in cases])
    line = choose_threshold(tops, np.array([case.enough for case in cases]), options.target_risk)
    own = model.stored.threshold
    results = [
        figures("model", as_is, removed, others, lambda a: a.model, lambda a: a.answered),
        figures("model, one threshold", as_is, removed, others, lambda a: a.model, lambda a: a.model >= own),
        figures("top score", as_is, removed, others, lambda a: a.top, lambda a: a.top >= line),
    ]
    show(results)
    if options.json is not None:
        write_json_atomic(options.json, {"options": {k: str(v) for k, v in vars(options).items()}, "results": results})


if __name__ == "__main__":
    main()
