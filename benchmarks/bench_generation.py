"""Tokens a second of a local LLM: batches against one prompt at a time in fp32, and int8 beside them.

    python benchmarks/bench_generation.py [--llm builtin] [--prompts 64] [--max-tokens 128] [--batch-size 32]

The prompts are those of `ask` for the held-out questions of a bundled sample: BM25 with the domain, three documents,
the domain in front. Greedy decoding, otherwise the model's own settings and the template's stop strings, the same on
all sides; only the number of prompts at once differs. Sides alternate, `--rounds` times. The first two must write the
same texts: where they do not, the scores of the two tokens at the first difference are shown, computed anew for the
one text alone (a tie to rounding, or a fault). int8 rounds, so only its share of equal texts is given, and the mean
loss of the right answers under both models, by token.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dmnrag.data import load_sample
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.llm import make_generator
from dmnrag.llm.decoding import TokenChooser, resolve_decoding
from dmnrag.llm.transformers_lm import TransformersGenerator
from dmnrag.methods import DEFAULT
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.types import Generation, GenerationSettings, Prompt

N_LOSSES = 12
"""Right answers whose loss is compared: a minute of one core."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llm", default="builtin", help="a local model, without a precision")
    parser.add_argument("--sample", default="medical", help="medical or legal")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--without-int8", action="store_true")
    return parser.parse_args()


def asked(options: argparse.Namespace, llm: TransformersGenerator) -> tuple[list[Prompt], list[str]]:
    """Prompts, and the right answers."""
    documents, examples = load_sample(options.sample)
    chosen = examples[: options.prompts]
    if len(chosen) < options.prompts:
        raise SystemExit(f"the sample {options.sample} has {len(chosen)} held-out questions")
    settings = AskSettings(
        retrieval=RetrievalSettings(layer="sparse"), generation=GenerationSettings(max_tokens=options.max_tokens)
    )
    with tempfile.TemporaryDirectory() as folder:
        build_index(Path(folder), documents, IndexSettings(), examples=examples)
        with Index.open(folder) as index:
            pipeline = Pipeline(index, generator=llm)
            queries = [example.query for example in chosen]
            rankings = pipeline.search(queries, pipeline.retrieval_settings(DEFAULT, settings))
            prompts = [pipeline.prompt(q, hits, DEFAULT, settings) for q, hits in zip(queries, rankings, strict=True)]
    return prompts, [example.references[0] for example in chosen]


class Side:
    """One way to generate, and what it took."""

    def __init__(self, name: str, llm: TransformersGenerator, at_once: int) -> None:
        self.name, self.llm, self.at_once = name, llm, at_once
        self.answers: list[Generation] = []
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def run(self, prompts: Sequence[Prompt], settings: GenerationSettings) -> None:
        self.llm.batch_size = self.at_once
        wall, cpu = time.perf_counter(), time.process_time()
        self.answers = self.llm.generate(prompts, settings)
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)
        print(f"  {self.name}: {self.tokens} tokens, {self.wall[-1]:.1f} s, CPU {self.cpu[-1]:.1f} s", flush=True)

    @property
    def tokens(self) -> int:
        return sum(answer.usage.completion_tokens for answer in self.answers)


def report(sides: Sequence[Side]) -> None:
    first = sides[0]
    for side in sides:
        rate = side.tokens / statistics.median(side.wall)
        line = f"{side.name}: {rate:.1f} tokens/s"
        if side is not first:
            # Per token: int8 writes other texts, which may be longer.
            for what in ("wall", "cpu"):
                pairs = zip(getattr(first, what), getattr(side, what), strict=True)
                ratios = sorted(a / first.tokens / (b / side.tokens) for a, b in pairs)
                line += f"; {what} {statistics.median(ratios):.2f} times [{ratios[0]:.2f}, {ratios[-1]:.2f}]"
            equal = sum(a.text == b.text for a, b in zip(first.answers, side.answers, strict=True))
            line += f"; {equal} of {len(side.answers)} texts are those of {first.name}"
        print(line)


def explain(llm: TransformersGenerator, prompt: Prompt, texts: tuple[str, str], settings: GenerationSettings) -> str:
    """The scores of the two tokens at which two greedy texts part, and of the best token."""
    start = llm.counter.encode(prompt)
    rows = [llm.counter.encode_answer(text) for text in texts]
    same = next((i for i, (a, b) in enumerate(zip(*rows, strict=False)) if a != b), min(map(len, rows)))
    ids = torch.tensor([start + rows[0][:same]])
    with torch.inference_mode():
        scores = llm.model(ids).logits[:, -1].float()
    decoding = resolve_decoding(settings, llm.model.generation_config)
    scores = TokenChooser(decoding, torch.ones(1, len(start)), [])(ids, scores)[0]
    tokens = [row[same] if same < len(row) else min(llm.end_ids) for row in rows]
    shown = " and ".join(f"{float(scores[token]):.6f}" for token in tokens)
    return f"after {same} tokens, scores {shown}, highest {float(scores.max()):.6f}"


def mean_loss(llm: TransformersGenerator, prompts: Sequence[Prompt], answers: Sequence[str]) -> float:
    losses: list[float] = []
    for prompt, answer in zip(prompts, answers, strict=True):
        start, end = llm.counter.encode(prompt), llm.counter.encode_answer(answer)
        with torch.inference_mode():
            scores: Any = llm.model(torch.tensor([start + end]), logits_to_keep=len(end) + 1).logits[0, :-1]
        losses.append(float(torch.nn.functional.cross_entropy(scores.float(), torch.tensor(end))))
    return statistics.mean(losses)


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    settings = GenerationSettings(max_tokens=options.max_tokens, temperature=0.0)
    llm = make_generator(options.llm, device="cpu", dtype="float32")
    assert isinstance(llm, TransformersGenerator)
    prompts, right = asked(options, llm)
    lengths = [llm.prompt_tokens(prompt) for prompt in prompts]
    print(
        f"{options.llm}, {len(prompts)} prompts of {min(lengths)} to {max(lengths)} tokens "
        f"(mean {statistics.mean(lengths):.0f}), at most {options.max_tokens} new, {options.threads} threads"
    )
    sides = [Side("one by one", llm, 1), Side(f"batches of {options.batch_size}", llm, options.batch_size)]
    if not options.without_int8:
        rounded = make_generator(options.llm, device="cpu", dtype="int8")
        assert isinstance(rounded, TransformersGenerator)
        sides += [
            Side("int8, one by one", rounded, 1),
            Side(f"int8, batches of {options.batch_size}", rounded, options.batch_size),
        ]
    for _ in range(options.rounds):
        for side in sides:
            side.run(prompts, settings)
    report(sides)
    single, batch = (side.answers for side in sides[:2])
    for prompt, a, b in zip(prompts, single, batch, strict=True):
        if a.text != b.text:
            print(f"differs {explain(llm, prompt, (a.text, b.text), settings)}")
    if not options.without_int8:
        n = min(N_LOSSES, len(prompts))
        exact, approximate = (mean_loss(g, prompts[:n], right[:n]) for g in (llm, rounded))
        print(f"mean loss of {n} right answers: fp32 {exact:.4f}, int8 {approximate:.4f}")


if __name__ == "__main__":
    main()
