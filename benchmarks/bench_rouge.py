"""ROUGE against rouge-chinese on the same word tokens: `python benchmarks/bench_rouge.py [--pairs 1000]`.

Text pairs of 150 characters are cut from the answers of the medical sample corpus and segmented before
the clock starts; rouge-chinese gets the same words joined by spaces. Each round times both, one after the
other, so that a change of the machine's load hits both.
"""

import argparse
import json
import time
from collections.abc import Callable
from importlib import resources
from random import Random
from statistics import mean, median
from typing import get_args

from rouge_chinese import Rouge

from dmnrag.metrics import RougeVariant, rouge
from dmnrag.text import tokenize_words

LENGTH = 150
"""Characters of each text."""


def text_pairs(n_pairs: int) -> list[tuple[list[str], list[str]]]:
    """Neighbouring passages, drawn at random with a fixed seed."""
    rows = resources.files("dmnrag").joinpath("samples/medical/pairs.jsonl").read_text("utf-8").splitlines()
    corpus = "".join(answer for row in rows for answer in json.loads(row)["answers"])
    random = Random(0)
    starts = [random.randrange(len(corpus) - 2 * LENGTH) for _ in range(n_pairs)]
    return [
        (tokenize_words(corpus[s : s + LENGTH]), tokenize_words(corpus[s + LENGTH : s + 2 * LENGTH])) for s in starts
    ]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(pairs: list[tuple[list[str], list[str]]], variant: RougeVariant, rounds: int) -> None:
    candidates = [" ".join(candidate) for candidate, _ in pairs]
    references = [" ".join(reference) for _, reference in pairs]
    peer = Rouge()
    ratios = []
    for number in range(1, rounds + 1):
        ours = seconds(lambda: [rouge(candidate, reference, variant) for candidate, reference in pairs])
        theirs = seconds(lambda: peer.get_scores(candidates, references))
        ratios.append(theirs / ours)
        print(f"  {variant} {number}: {theirs:.2f} s against {ours * 1000:.0f} ms, ratio {ratios[-1]:.0f}")
    print(f"{variant}: median ratio {median(ratios):.0f} (from {min(ratios):.0f} to {max(ratios):.0f})")


def main() -> None:
    parser = argparse.ArgumentParser(description="ROUGE against rouge-chinese on the same word tokens")
    parser.add_argument("--pairs", type=int, default=1000, help="text pairs to score in each round")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds, at least five")
    arguments = parser.parse_args()
    if arguments.pairs < 1 or arguments.rounds < 5:
        parser.error("--pairs must be at least 1 and --rounds at least 5")
    pairs = text_pairs(arguments.pairs)
    print(f"{len(pairs)} pairs of {LENGTH} characters, {mean(len(a) for a, _ in pairs):.0f} words a text")
    for variant in get_args(RougeVariant):
        compare(pairs, variant, arguments.rounds)


if __name__ == "__main__":
    main()
