"""The six-method matrix as an experiment against the same work question by question.

    python benchmarks/bench_experiment.py [--questions 50] [--one-by-one 50] [--llm builtin] [--max-tokens 64]

Both use the same index of a bundled corpus (untrained second layer), the same LLM, prompts and decoding (temperature
0). Question by question: for each method and question one search, one prompt, one call of the LLM, nothing kept.
Building the index and loading the LLM are in neither time; ranking, prompts, writing every file and scoring are in the
experiment's. With fewer questions one by one its time per answer is what is compared, over the same questions for all
methods; answers to these are compared too.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dmnrag.experiments.matrix.runner import run_experiment
from dmnrag.experiments.matrix.spec_files import LoadedSpec, spec_from_dict
from dmnrag.experiments.results import ResultsFolder
from dmnrag.index import Index
from dmnrag.llm import make_generator
from dmnrag.methods import METHODS
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.prompts import load_template
from dmnrag.protocols import Generator
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.types import Example, GenerationSettings


def spec_of(options: argparse.Namespace, index: Path) -> LoadedSpec:
    values: dict[str, Any] = {
        "questions": options.questions,
        "template": "base",
        "controls": [],
        "retrievers": "base",
        "retrieval_table": "none",
        "corpus": [{"name": options.sample, "index": str(index)}],
        "llm": [{"name": "llm", "model": options.llm, "batch_size": options.batch_size}],
        "generation": {"max_tokens": options.max_tokens, "temperature": 0},
    }
    return LoadedSpec("bench", spec_from_dict(values, "bench"), Path())


def build(options: argparse.Namespace, out: Path) -> Path:
    """The index of the corpus, as an experiment without questions to ask builds it."""
    loaded = spec_of(options, out)
    corpus: list[dict[str, Any]] = [{"name": options.sample, "sample": options.sample}]
    values = {"corpus": corpus, "llm": [{"name": "fake"}], "retrievers": "base", "retrieval_table": "none"}
    values |= {"methods": ["no-Dmn"], "controls": [], "questions": 1}
    run_experiment(LoadedSpec("build", spec_from_dict(values, "build"), loaded.folder), out)
    return out / "corpora" / options.sample / "index"


def one_by_one(
    index: Path, generator: Generator, examples: Sequence[Example], max_tokens: int
) -> tuple[float, dict[tuple[str, str], str]]:
    settings = AskSettings(RetrievalSettings(), GenerationSettings(max_tokens=max_tokens, temperature=0))
    answers = {}
    with Index.open(index) as opened:
        pipeline = Pipeline(opened, generator=generator, template=load_template("base"))
        pipeline.encoder_of()
        started = time.perf_counter()
        for method in METHODS:
            for example in examples:
                [answer] = pipeline.ask_all([example.query], method, settings)
                answers[method.name, example.query.query_id] = answer.text
        return time.perf_counter() - started, answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--one-by-one", type=int, default=50, help="questions asked one by one, at most --questions")
    parser.add_argument("--llm", default="builtin")
    parser.add_argument("--sample", default="medical")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    with TemporaryDirectory() as scratch:
        index = build(options, Path(scratch) / "build")
        generator = make_generator(options.llm, batch_size=options.batch_size)
        started = time.perf_counter()
        run_experiment(spec_of(options, index), Path(scratch) / "out", open_llm=lambda _llm, _adapter: generator)
        together_s = time.perf_counter() - started
        folder = ResultsFolder.open(Path(scratch) / "out")
        questions = folder.questions(options.sample)
        made = {(cell.row, row.query_id): row.answer for cell in folder.cells() for row in folder.predictions(cell)}
        asked = sum(cost.generated for cost in folder.cost().cells.values())
        alone_s, alone = one_by_one(index, generator, questions[: options.one_by_one], options.max_tokens)
        started = time.perf_counter()
        run_experiment(spec_of(options, index), Path(scratch) / "out", open_llm=lambda _llm, _adapter: generator)
        again_s = time.perf_counter() - started
    per_answer, per_answer_alone = together_s / len(made), alone_s / len(alone)
    equal = sum(made[key] == text for key, text in alone.items())
    print(
        f"experiment    {len(made):5} answers in {together_s:8.1f} s  {per_answer:7.3f} s each; "
        f"{asked} asked of the LLM"
    )
    print(f"one by one    {len(alone):5} answers in {alone_s:8.1f} s  {per_answer_alone:7.3f} s each")
    print(f"ratio         {per_answer_alone / per_answer:.1f}; equal answers: {equal} of {len(alone)}")
    print(f"second run    {again_s:.2f} s")


if __name__ == "__main__":
    main()
