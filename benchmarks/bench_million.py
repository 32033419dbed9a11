"""A million documents: build, open, search, extend; time, bytes and memory, beside bm25s.

    python benchmarks/bench_million.py [--documents 1000000] [--queries 500] [--skip-bm25s]

The documents are rows of ../shared/data/medical_im_gb18030.csv, resampled with changes: sentences of other
answers put in, sentences left out, characters of the question swapped. No vectors. They are streamed from a
generator: nothing here holds them all. Each phase runs in a process of its own, whose peak memory is its own.
bm25s gets the same terms, the labels among them; it holds a corpus in memory and is given the most that
`--bm25s-memory-gb` allows. Run it on an otherwise idle machine.
"""

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from dmnrag.data import ColumnMapping, read_documents
from dmnrag.index import Index, IndexSettings, build_index, disk_usage, update_index
from dmnrag.text import make_segmenter
from dmnrag.types import JOINT, Document, Query

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "medical_im_gb18030.csv"
MAPPING = ColumnMapping(question=("title", "ask"), answer=("answer",), domain=("department",))
ADDED = 1000
K = 10
SEED = 7
MEMORY_GB = 4
"""What building, opening, searching and extending may take."""


def rows() -> list[Document]:
    """The real rows that are resampled."""
    if not DATA.is_file():
        sys.exit(f"{DATA} is needed and not there")
    return read_documents([DATA], MAPPING)[0]


def resampled(source: Sequence[Document], n_documents: int, first: int = 0) -> Iterator[Document]:
    """Changed copies of random rows, the same ones each time."""
    chance = random.Random(SEED + first)
    sentences = [re.split(r"(?<=[。！？；])", document.answers[0]) for document in source]
    for number in range(first, first + n_documents):
        row = chance.randrange(len(source))
        answer = [s for s in sentences[row] if s and chance.random() > 0.2]
        answer.insert(chance.randint(0, len(answer)), chance.choice(sentences[chance.randrange(len(source))]))
        question = list(source[row].question)
        for _ in range(1 + len(question) // 10):
            a, b = chance.randrange(len(question)), chance.randrange(len(question))
            question[a], question[b] = question[b], question[a]
        text = "".join(answer) or source[row].answers[0]
        yield Document(f"{number:08d}", "".join(question), (text,), source[row].domain)


def questions(source: Sequence[Document], n_queries: int) -> list[Query]:
    """Questions of random real rows with their labels."""
    chosen = random.Random(SEED).sample(range(len(source)), min(n_queries, len(source)))
    return [Query(str(n), source[n].question, source[n].domain) for n in chosen]


def peak_mb() -> float:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(work: Callable[[], Any]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def percentiles(search: Callable[[Query], object], asked: Sequence[Query]) -> dict[str, float]:
    """Median and 99th percentile of one question at a time, the first pass left out."""
    for query in asked[:20]:
        search(query)
    times = sorted(timed(lambda q=query: search(q)) for query in asked)
    return {"median_ms": 1e3 * median(times), "p99_ms": 1e3 * times[min(len(times) - 1, int(0.99 * len(times)))]}


def phase_build(options: argparse.Namespace) -> dict[str, float]:
    source = rows()
    documents = resampled(source, options.documents)
    seconds = timed(lambda: build_index(options.folder / "ours", documents, IndexSettings()))
    return {"seconds": seconds, "bytes": disk_usage(options.folder / "ours").bytes}


def phase_search(options: argparse.Namespace) -> dict[str, float]:
    asked = questions(rows(), options.queries)
    started = time.perf_counter()
    with Index.open(options.folder / "ours") as index:
        opened = time.perf_counter() - started
        first = timed(lambda: index.sparse.search(asked[:1], K, use=JOINT))
        found = percentiles(lambda query: index.sparse.search([query], K, use=JOINT), asked)
        return {"open_seconds": opened, "first_search_seconds": first, **found}


def phase_add(options: argparse.Namespace) -> dict[str, float]:
    added = resampled(rows(), ADDED, first=options.documents)
    seconds = timed(lambda: update_index(options.folder / "ours", add=added))
    return {"seconds": seconds, "bytes": disk_usage(options.folder / "ours").bytes}


def phase_bm25s_build(options: argparse.Namespace) -> dict[str, float]:
    import bm25s

    limit_memory(options.bm25s_memory_gb)
    started = time.perf_counter()
    tokens = Tokens()
    ids = [tokens.of(batch) for batch in batches(resampled(rows(), options.documents))]
    corpus = bm25s.tokenization.Tokenized(ids=[document for batch in ids for document in batch], vocab=tokens.numbers)
    peer = bm25s.BM25(method="lucene")
    peer.index(corpus, show_progress=False)
    del ids, corpus
    peer.save(options.folder / "bm25s")
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "bytes": sum(p.stat().st_size for p in (options.folder / "bm25s").iterdir())}


def phase_bm25s_search(options: argparse.Namespace) -> dict[str, float]:
    import bm25s

    asked = questions(rows(), options.queries)
    started = time.perf_counter()
    peer = bm25s.BM25.load(options.folder / "bm25s", mmap=True)
    opened = time.perf_counter() - started
    segmenter = make_segmenter(IndexSettings().segmenter)

    def search(query: Query) -> object:
        terms = [term for text in (query.text, *query.domain) for term in segmenter.segment(text)]
        return peer.retrieve([terms], k=K, show_progress=False)

    first = timed(lambda: search(asked[0]))
    return {"open_seconds": opened, "first_search_seconds": first, **percentiles(search, asked)}


class Tokens:
    """Terms as numbers; the numbers are shared objects, so a token takes 8 bytes in a list."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._segmenter = make_segmenter(IndexSettings().segmenter)

    def of(self, documents: Sequence[Document]) -> list[list[int]]:
        """Term numbers of each document, its labels among them."""
        numbers = self.numbers
        texts = ["\n".join((d.question, *d.answers, *d.domain)) for d in documents]
        return [[numbers.setdefault(t, len(numbers)) for t in terms] for terms in self._segmenter.segment_all(texts)]


def batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Some at a time."""
    while batch := list(islice(documents, 2048)):
        yield batch


def limit_memory(gigabytes: float) -> None:
    """Beyond this an allocation fails instead of the machine."""
    limit = int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


PHASES: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "build": phase_build,
    "search": phase_search,
    "add": phase_add,
    "search again": phase_search,
    "bm25s build": phase_bm25s_build,
    "bm25s search": phase_bm25s_search,
}


def run_phase(name: str, options: argparse.Namespace) -> dict[str, float] | None:
    """The figures of a phase in a process of its own; None where it failed."""
    command = [sys.executable, __file__, "--phase", name, "--folder", str(options.folder)]
    command += ["--documents", str(options.documents), "--queries", str(options.queries)]
    command += ["--bm25s-memory-gb", str(options.bm25s_memory_gb)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        print(f"{name}: failed ({reason})", flush=True)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    shown = ", ".join(
        f"{key.replace('_', ' ')} {value:,.4g}" if value < 1e4 else f"{key} {value:,.0f}"
        for key, value in found.items()
    )
    print(f"{name}: {shown}", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--skip-bm25s", action="store_true")
    parser.add_argument("--bm25s-memory-gb", type=float, default=12, help="address space that bm25s may take")
    parser.add_argument("--folder", type=Path, help="where the indexes go; default: a temporary folder")
    parser.add_argument("--phase", choices=PHASES, help="run one phase and print its figures as JSON")
    options = parser.parse_args(arguments)
    if options.phase:
        found = PHASES[options.phase](options)
        # What other programs take of the machine shows in the seconds, hardly in these.
        print(json.dumps({**found, "cpu_seconds": time.process_time(), "peak_mb": peak_mb()}))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        options.folder = Path(folder)
        run_all(options)


def run_all(options: argparse.Namespace) -> None:
    load = os.getloadavg()[0]
    print(f"{options.documents:,} documents, {options.queries} queries, load {load:.1f} before", flush=True)
    peaks = []
    for name in PHASES:
        if name.startswith("bm25s") and options.skip_bm25s:
            continue
        found = run_phase(name, options)
        if found is None:
            if name == "bm25s build":
                print(f"bm25s does not fit into {options.bm25s_memory_gb:g} GB of address space, or failed", flush=True)
                return
            sys.exit(1)
        if not name.startswith("bm25s"):
            peaks.append(found["peak_mb"])
    verdict = "within" if max(peaks) < 1024 * MEMORY_GB else "OVER"
    print(f"peak memory of our phases: {max(peaks):,.0f} MB, {verdict} {MEMORY_GB} GB", flush=True)


if __name__ == "__main__":
    main()
