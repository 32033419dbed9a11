"""Zero-shot and LoRA side by side on an index's held-out questions, and whether either reads its documents.

    python benchmarks/lora_baseline.py medical --out DIR        # a bundled sample, first layer alone
    python benchmarks/lora_baseline.py INDEX --out DIR --llm Qwen/Qwen3-4B --layer hybrid --limit 200

The adapter is trained as `dmnrag finetune` trains it. Then four systems answer the same questions: base model and
adapter, each with the documents that were found and with those of another question (the control: a system that
reads its documents gets worse). What is done is kept in DIR: a killed run goes on. Greedy decoding.
Intervals resample groups of re-posts.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from retrieval_choices import report

from dmnrag._io import read_jsonl, write_json_atomic, write_jsonl_atomic
from dmnrag.data import load_sample
from dmnrag.experiments.answers import score_answers
from dmnrag.experiments.evaluate import held_out
from dmnrag.experiments.statistics import summarise
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.index.generations import is_index
from dmnrag.llm import make_generator
from dmnrag.llm.adapters import AdapterRecord
from dmnrag.methods import find_method
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.prompts import load_template
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.training.lora_examples import shuffle_rankings
from dmnrag.training.lora_finetune import FinetunePlan, finetune
from dmnrag.training.lora_settings import LoraSettings
from dmnrag.types import Example, GenerationSettings, Hit

SAMPLES = ("medical", "legal")
OWN, OTHERS = "own documents", "documents of others"
PAIRS = (
    (f"LoRA, {OWN}", f"zero-shot, {OWN}"),
    (f"zero-shot, {OWN}", f"zero-shot, {OTHERS}"),
    (f"LoRA, {OWN}", f"LoRA, {OTHERS}"),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", help="an index with held-out questions, or a bundled sample: medical, legal")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--llm", default="builtin")
    parser.add_argument("--method", default="Dmn-ques-front")
    parser.add_argument("--template", default=None)
    parser.add_argument("--layer", default="sparse")
    parser.add_argument("-k", type=int, default=3)
    parser.add_argument("--limit", type=int, default=None, help="held-out questions to answer, evenly spread")
    parser.add_argument("--train-limit", type=int, default=None)
    parser.add_argument("--training", type=json.loads, default={}, help="JSON of LoraSettings, such as its epochs")
    parser.add_argument("--batch-size", type=int, default=8, help="prompts generated together")
    parser.add_argument("--device", default=None)
    return parser.parse_args()


def index_folder(options: argparse.Namespace) -> Path:
    if options.index not in SAMPLES:
        return Path(options.index)
    folder: Path = options.out / "index"
    if not is_index(folder):
        documents, examples = load_sample(options.index)
        build_index(folder, documents, IndexSettings(), examples=examples)
    return folder


def train(options: argparse.Namespace, index: Path) -> tuple[AdapterRecord, Path]:
    plan = FinetunePlan(
        llm=options.llm,
        method=find_method(options.method),
        template=None if options.template is None else load_template(options.template),
        retrieval=RetrievalSettings(k=options.k, layer=options.layer),
        training=LoraSettings.from_dict(options.training),
        limit=options.train_limit,
        device=options.device,
    )
    started = time.monotonic()
    made = finetune(
        index,
        plan,
        options.out / "lora",
        on_measurement=lambda entry: print(f"{time.monotonic() - started:,.0f} s", entry, flush=True),
    )
    told = {name: value for name, value in made.to_dict().items() if name != "history"}
    print(json.dumps(told, ensure_ascii=False), flush=True)
    return made.record, made.folder


def answer(
    pipeline: Pipeline,
    record: AdapterRecord,
    examples: Sequence[Example],
    rankings: Sequence[Sequence[Hit]],
    path: Path,
) -> list[str]:
    """The answers to these questions with these documents; read back where they were made before."""
    if not path.is_file():
        settings = AskSettings(generation=GenerationSettings(max_tokens=record.answer_tokens, temperature=0))
        method = find_method(record.method)
        prompts = [
            pipeline.prompt(example.query, hits, method, settings)
            for example, hits in zip(examples, rankings, strict=True)
        ]
        started = time.monotonic()
        made = pipeline.generator.generate(prompts, settings.generation)
        tokens = sum(generation.usage.completion_tokens for generation in made)
        seconds = time.monotonic() - started
        ended = sum(generation.finish_reason == "stop" for generation in made) / len(made)
        print(f"{path.stem}: {tokens:,} tokens, {tokens / seconds:.1f} a second, {ended:.1%} ended", flush=True)
        rows = zip(examples, prompts, made, strict=True)
        write_jsonl_atomic(
            path,
            (
                {"query_id": e.query.query_id, "prompt": p.user, "answer": g.text, "finish_reason": g.finish_reason}
                for e, p, g in rows
            ),
        )
    return [row["answer"] for row in read_jsonl(path)]


def main() -> None:
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = index_folder(options)
    record, adapter = train(options, folder)
    with Index.open(folder) as index:
        asked = held_out(index)
        wanted = min(options.limit or len(asked), len(asked))
        examples = [asked[i * len(asked) // wanted] for i in range(wanted)]
        searcher = Pipeline(index)
        method = find_method(record.method)
        settings = AskSettings(RetrievalSettings(k=options.k, layer=options.layer))
        found = searcher.search([e.query for e in examples], searcher.retrieval_settings(method, settings))
        documents = {OWN: found, OTHERS: shuffle_rankings(found, seed=0)}
        values = {}
        for system, on_top in (("zero-shot", None), ("LoRA", adapter)):
            generator = make_generator(
                options.llm, adapter=on_top, batch_size=options.batch_size, device=options.device
            )
            pipeline = searcher.with_llm(generator, record.template)
            for name, rankings in documents.items():
                path = options.out / f"answers-{system}-{name.replace(' ', '-')}.jsonl"
                texts = answer(pipeline, record, examples, rankings, path)
                values[f"{system}, {name}"] = score_answers(texts, examples)
        figures = summarise(values, [e.cluster or e.query.query_id for e in examples], PAIRS)
    write_json_atomic(options.out / "figures.json", figures.to_dict())
    report(f"{options.llm}, {record.method}", figures)


if __name__ == "__main__":
    main()
