"""The whole pipeline on a bundled sample corpus: index, trained retriever, table, answers, ROUGE of six methods."""

from dataclasses import dataclass
from pathlib import Path

from dmnrag.data import load_sample
from dmnrag.experiments.answers import METHOD_PAIRS, answer_all, score_answers
from dmnrag.experiments.downstream import score_downstream
from dmnrag.experiments.statistics import Evaluation, summarise
from dmnrag.experiments.systems import pairs_of, rank_all
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.index.build import Progress
from dmnrag.index.generations import is_index
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.retrieval.dense import DenseSettings, make_encoder
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.training.dpr_retriever import RetrieverPlan, train_retriever
from dmnrag.training.settings import DprSettings
from dmnrag.types import Answer, Document, Example, GenerationSettings

N_SCORED = 10
"""Held-out questions whose answers are scored: few, so that the demo ends within minutes."""
N_SHOWN = 3
_DEPTH = 10
_MAX_TOKENS = 48
RETRIEVER = "joint"
_TRAINING = DprSettings(batch_size=16, query_tokens=64, passage_tokens=128, evaluate_steps=10_000)
"""The corpus is small and its texts short. Measured before and after only: each measurement takes seconds."""


@dataclass(frozen=True, slots=True)
class Demo:
    """What the demo found."""

    retrieval: Evaluation
    answers: Evaluation
    shown: list[tuple[Example, list[tuple[Answer, list[Document]]]]]
    """A few questions with the answers of two methods and the documents these rest on."""


def prepare_index(name: str, folder: Path, on_progress: Progress) -> Index:
    """The index of a sample corpus; one that is there already is used again."""
    if not is_index(folder):
        documents, examples = load_sample(name)
        dense = DenseSettings(encoder="builtin")
        build_index(
            folder,
            documents,
            IndexSettings(dense=dense),
            examples=examples,
            source={"sample": name},
            encoder=make_encoder(dense.encoder),
            on_progress=on_progress,
        )
    return Index.open(folder)


def train_demo(folder: Path, on_progress: Progress) -> None:
    """Train the joint retriever of a demo's index, unless it is there already; a killed training goes on.

    Better or not by its dev slice of some 40 questions, it is put into the index: the demo shows both.
    """
    with Index.open(folder) as index:
        if RETRIEVER in index.manifest.retrievers:
            return
    train_retriever(folder, RetrieverPlan(training=_TRAINING), accept_worse=True, on_progress=on_progress)


def scored_examples(examples: list[Example]) -> list[Example]:
    """Ten fixed questions, spread evenly over the held-out ones and so over the domains."""
    return [examples[i * len(examples) // N_SCORED] for i in range(min(N_SCORED, len(examples)))]


def run_demo(pipeline: Pipeline, on_progress: Progress) -> Demo:
    """Measure retrieval on all held-out questions and the six methods on ten of them."""
    examples = pipeline.index.examples
    values = score_downstream(pipeline.index, rank_all(pipeline, examples, _DEPTH))
    retrieval = summarise(values, [e.query.query_id for e in examples], pairs_of(pipeline.index))
    chosen = scored_examples(examples)
    settings = AskSettings(
        retrieval=RetrievalSettings(layer=pipeline.default_layer),
        generation=GenerationSettings(max_tokens=_MAX_TOKENS, temperature=0),
    )
    answers = answer_all(pipeline, chosen, settings, on_progress)
    scored = {name: score_answers([a.text for a in rows], chosen) for name, rows in answers.items()}
    figures = summarise(scored, [e.query.query_id for e in chosen], METHOD_PAIRS)
    shown = [
        (
            example,
            [_with_documents(pipeline.index, answers[method][i]) for method in ("no-Dmn", "Dmn-ques-front")],
        )
        for i, example in enumerate(chosen[:N_SHOWN])
    ]
    return Demo(retrieval, figures, shown)


def _with_documents(index: Index, answer: Answer) -> tuple[Answer, list[Document]]:
    return answer, index.documents([hit.doc_id for hit in answer.hits])
