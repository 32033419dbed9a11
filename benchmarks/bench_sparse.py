"""Embedded BM25 against jieba.lcut + bm25s on InsuranceQA (Chinese): speed, recall and memory.

    python benchmarks/bench_sparse.py [--pairs 5] [--questions 500] [--cache ~/.cache/dmnrag/benchmarks]

The data is the source package insuranceqa_data 1.0 from the package index, fetched once. Timings are
interleaved: each pair runs both sides one after the other, in turns first, and gives one ratio; the
median ratio is the figure, with its range. Run it on an otherwise idle machine.
"""

import argparse
import gzip
import json
import logging
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dmnrag.retrieval.sparse import Bm25Settings, EmbeddedSparseIndex, write_segment
from dmnrag.retrieval.table import DocumentTable
from dmnrag.text import SegmenterSettings, make_segmenter
from dmnrag.types import PLAIN, Query

PACKAGE = "insuranceqa_data"
VERSION = "1.0"
K = 3


@dataclass(frozen=True)
class Collection:
    """Answers as documents, questions as queries, their answers as gold."""

    doc_ids: list[str]
    texts: list[str]
    questions: list[str]
    gold: list[set[str]]


def load(cache: Path) -> Collection:
    """InsuranceQA zh, fetched with pip where the cache lacks it."""
    archive = cache / f"{PACKAGE}-{VERSION}.tar.gz"
    if not archive.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--no-binary",
            ":all:",
            "-d",
            str(cache),
        ]
        subprocess.run([*command, f"{PACKAGE}=={VERSION}"], check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(archive) as members:

        def read(name: str) -> dict[str, Any]:
            member = members.extractfile(f"{PACKAGE}-{VERSION}/{PACKAGE}/{name}.json.gz")
            assert member is not None
            content: dict[str, Any] = json.loads(gzip.decompress(member.read()))
            return content

        answers, test = read("answers"), read("test")
    return Collection(
        list(answers),
        [answer["zh"] for answer in answers.values()],
        [question["zh"] for question in test.values()],
        [set(question["answers"]) for question in test.values()],
    )


class Peer:
    """jieba.lcut + bm25s with its defaults."""

    def __init__(self) -> None:
        import bm25s
        import jieba

        jieba.setLogLevel(logging.ERROR)
        jieba.initialize()
        self._cut = jieba.lcut
        self._new = bm25s.BM25
        self._index = None

    def index(self, data: Collection) -> None:
        self._index = self._new(method="lucene")
        self._index.index([self._cut(text) for text in data.texts], show_progress=False)

    def search(self, question: str) -> list[int]:
        found, _ = self._index.retrieve([self._cut(question)], k=K, show_progress=False)
        return [int(number) for number in found[0]]


class Ours:
    """write_segment, EmbeddedSparseIndex and the public search."""

    def __init__(self, segmenter: str) -> None:
        self._segmenter = make_segmenter(SegmenterSettings(name=segmenter))
        self._index: EmbeddedSparseIndex | None = None

    def index(self, data: Collection) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.index_into(data, Path(folder) / "segment")

    def index_into(self, data: Collection, folder: Path) -> None:
        write_segment(folder, ((text, ()) for text in data.texts), self._segmenter)
        table = DocumentTable.from_lists([f"{i:06d}" for i in range(len(data.texts))], [()] * len(data.texts))
        self._index = EmbeddedSparseIndex([folder], table, self._segmenter, Bm25Settings())

    def search(self, question: str) -> list[int]:
        [hits] = self._index.search([Query("q", question)], K, use=PLAIN)
        return [int(hit.doc_id) for hit in hits]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def report_ratio(name: str, peer: Callable[[], object], ours: Callable[[], object], pairs: int) -> None:
    """Interleaved pairs; who comes first takes turns."""
    times = []
    for number in range(pairs):
        if number % 2:
            of_ours = seconds(ours)
            times.append((seconds(peer), of_ours))
        else:
            times.append((seconds(peer), seconds(ours)))
    ratios = sorted(p / o for p, o in times)
    print(
        f"{name}: {median(ratios):.1f} times as fast [{ratios[0]:.1f}, {ratios[-1]:.1f}], {pairs} pairs; "
        f"median seconds {median(p for p, _ in times):.2f} against {median(o for _, o in times):.2f}",
        flush=True,
    )


def recall(data: Collection, search: Callable[[str], list[int]]) -> float:
    """Mean share of a question's answers among the first K."""
    shares = []
    for question, gold in zip(data.questions, data.gold, strict=True):
        found = {data.doc_ids[number] for number in search(question)}
        shares.append(len(found & gold) / len(gold))
    return sum(shares) / len(shares)


def peak_mib(cache: Path, segmenter: str) -> int:
    """Peak memory of a fresh process that loads the data, indexes it, opens it and searches once."""
    command = [sys.executable, __file__, "--cache", str(cache), "--segmenter", segmenter, "--memory-only"]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure_memory(data: Collection, segmenter: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(segmenter)
        ours.index_into(data, Path(folder) / "segment")
        ours.search(data.questions[0])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "dmnrag" / "benchmarks")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--questions", type=int, default=500, help="questions timed in each pair")
    parser.add_argument("--segmenter", default=SegmenterSettings().name)
    parser.add_argument("--memory-only", action="store_true", help="print the peak memory in MiB and stop")
    options = parser.parse_args(arguments)
    data = load(options.cache)
    if options.memory_only:
        measure_memory(data, options.segmenter)
        return
    mean_length = sum(map(len, data.texts)) / len(data.texts)
    print(f"{len(data.texts):,} answers of {mean_length:.0f} characters, segmenter {options.segmenter}")
    peak = peak_mib(options.cache, options.segmenter)
    print(f"peak memory of loading, indexing, opening and searching: {peak} MiB", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        compare(data, Peer(), Ours(options.segmenter), Path(folder), options)


def compare(data: Collection, peer: Peer, ours: Ours, folder: Path, options: argparse.Namespace) -> None:
    report_ratio("text to index", lambda: peer.index(data), lambda: ours.index(data), options.pairs)
    ours.index_into(data, folder / "segment")
    timed = data.questions[: options.questions]
    report_ratio(
        "text to hits, one question at a time",
        lambda: [peer.search(q) for q in timed],
        lambda: [ours.search(q) for q in timed],
        options.pairs,
    )
    each = [seconds(lambda q=q: ours.search(q)) for q in timed]
    print(f"median search in the open index: {median(each) * 1e3:.2f} ms")
    print(
        f"recall@{K} of {len(data.questions)} questions: peer {recall(data, peer.search):.4f}, "
        f"ours {recall(data, ours.search):.4f}"
    )


if __name__ == "__main__":
    main()
