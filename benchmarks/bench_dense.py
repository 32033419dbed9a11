"""How fast the second layer is: the built-in encoder in fp32, bf16 and int8, exact search, HNSW, and whole searches.

    python benchmarks/bench_dense.py --texts FILE.jsonl [--n 128] [--threads 2] [--precisions fp32,int8]
    python benchmarks/bench_dense.py --end-to-end [--documents 28000] [--cache ~/.cache/dmnrag/benchmarks]

FILE has a `text`, `answer` or `question` field per line; texts are joined and cut into passages of 100
characters. Encoding figures are medians of 3 rounds that alternate between batch sizes and precisions. Searching
uses random vectors of 384 numbers in clusters, 28,000 by default. `--end-to-end` searches an open index of
InsuranceQA's Chinese answers (see bench_sparse.py), one question at a time: BM25 over the texts, random vectors in
place of the documents' own, which takes the same time, and the questions encoded by the built-in encoder.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from bench_sparse import load
from sentence_transformers import SentenceTransformer

from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.dense import (
    DenseSettings,
    EncodedDocuments,
    FaissDenseIndex,
    builtin_encoder_folder,
    make_encoder,
    write_vectors,
)
from dmnrag.retrieval.dense.encoder import SentenceTransformerEncoder
from dmnrag.retrieval.dense.settings import EncoderPrecision
from dmnrag.retrieval.layers import RetrievalSettings, Retriever
from dmnrag.retrieval.table import DocumentTable
from dmnrag.types import PLAIN, Document, Layer, Query

ROUNDS = 3
BATCH_SIZES = (8, 16, 32, 64)
DIMENSION = 384
LAYERS: tuple[Layer, ...] = ("sparse", "dense", "cascade", "hybrid")


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def passages_of(path: Path, n: int) -> list[str]:
    rows = (json.loads(line) for line in path.open(encoding="utf-8") if line.strip())
    fields = ("text", "answer", "question")
    text = "".join(str(row[field]) for row in rows for field in fields if row.get(field))
    passages = [text[i : i + 100] for i in range(0, len(text) - 100, 100)]
    return (passages * (n // len(passages) + 1))[:n]


def encoding(path: Path, n: int, threads: int, precisions: Sequence[EncoderPrecision]) -> None:
    print(f"folder (converts at first use): {seconds(builtin_encoder_folder):.1f} s")
    print(f"load, libraries included: {seconds(lambda: make_encoder('builtin')):.1f} s")
    model = SentenceTransformer(str(builtin_encoder_folder()), device="cpu")
    encoders = {n: SentenceTransformerEncoder(model, "builtin", batch_size=n, threads=threads) for n in BATCH_SIZES}
    passages = passages_of(path, n)
    queries = [passage[:20] for passage in passages[:32]]
    rates: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for size, encoder in encoders.items():
            taken = seconds(lambda e=encoder: e.encode_passages(passages))  # type: ignore[misc]
            rates.setdefault(f"passages of 100 characters, batches of {size}", []).append(n / taken)
        encoder = encoders[BATCH_SIZES[0]]
        taken = seconds(lambda e=encoder: [e.encode_queries([q]) for q in queries])  # type: ignore[misc]
        rates.setdefault("queries of 20 characters, one by one", []).append(len(queries) / taken)
        taken = seconds(lambda e=encoder: e.encode_queries(queries))  # type: ignore[misc]
        rates.setdefault("queries of 20 characters, together", []).append(len(queries) / taken)
    for name, values in rates.items():
        print(f"{name}: {statistics.median(values):.0f}/s on {threads} threads")
    compare_precisions(passages, threads, precisions)


def compare_precisions(passages: list[str], threads: int, precisions: Sequence[EncoderPrecision]) -> None:
    """Times as fast as plain sentence-transformers, round by round, and the cosine of each vector to its own."""
    torch.set_num_threads(threads)
    plain = SentenceTransformer(str(builtin_encoder_folder()), device="cpu")
    sides: dict[str, Callable[[list[str]], FloatMatrix]] = {
        "plain sentence-transformers": lambda texts: plain.encode_document(texts, show_progress_bar=False)
    }
    sides |= {
        p: make_encoder("builtin", precision=p, device="cpu", threads=threads).encode_passages for p in precisions
    }
    times: dict[str, list[float]] = {}
    vectors: dict[str, FloatMatrix] = {}
    for encode in sides.values():
        encode(passages[:8])
    for _ in range(ROUNDS):
        for side, encode in sides.items():
            start = time.perf_counter()
            vectors[side] = encode(passages)
            times.setdefault(side, []).append(time.perf_counter() - start)
    [first, *_] = sides
    for side, taken in times.items():
        ratios = sorted(base / t for base, t in zip(times[first], taken, strict=True))
        cosines = (vectors[first] * vectors[side]).sum(1)
        print(
            f"{side}: {len(passages) / statistics.median(taken):.0f}/s, {statistics.median(ratios):.2f} times "
            f"[{ratios[0]:.2f}, {ratios[-1]:.2f}] the first; cosine {cosines.mean():.5f}, lowest {cosines.min():.5f}"
        )


def searching(n: int) -> None:
    random = np.random.default_rng(0)
    centres = random.standard_normal((n // 50, 384))
    vectors = centres[random.integers(0, len(centres), n)] + 0.7 * random.standard_normal((n, 384))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    queries = vectors[:200] + 0.02 * random.standard_normal((200, 384)).astype(np.float32)
    table = DocumentTable.from_lists([f"d{i}" for i in range(n)], [(f"l{i % 8}",) for i in range(n)])
    encoded = EncodedDocuments(vectors, np.arange(n), n_long=0)
    indexes = {}
    with tempfile.TemporaryDirectory() as folder:
        for settings in (DenseSettings(), DenseSettings(kind="hnsw")):
            home = Path(folder) / settings.kind
            taken = seconds(lambda s=settings, h=home: write_vectors(h, encoded, s))  # type: ignore[misc]
            print(f"write {n:,} vectors, {settings.kind}: {taken:.1f} s")
            indexes[settings.kind] = FaissDenseIndex([home], table, settings)
        times: dict[str, list[float]] = {}
        ways = {
            "exact": lambda q: indexes["exact"].search(q, 10),
            "exact, filter of one label in 8": lambda q: indexes["exact"].search(q, 10, allowed=[("l3",)]),
            "hnsw": lambda q: indexes["hnsw"].search(q, 10),
            "rescore 100": lambda q: indexes["exact"].rescore(q, [[f"d{i}" for i in range(0, n, n // 100)]], 10),
        }
        for query in queries:
            for name, search in ways.items():
                times.setdefault(name, []).append(seconds(lambda s=search, q=query: s(q[None])))  # type: ignore[misc]
        for name, values in times.items():
            print(f"{name}: {1000 * statistics.median(values):.2f} ms")
        best, near = (indexes[kind].search(queries, 10) for kind in ("exact", "hnsw"))
        shared = [len({h.doc_id for h in a} & {h.doc_id for h in b}) / 10 for a, b in zip(best, near, strict=True)]
        print(f"hnsw finds {statistics.mean(shared):.3f} of the exact 10")


class RandomVectors:
    """Stands for an encoder of documents: vectors of length 1, the same in each run."""

    name = "random"
    dimension = DIMENSION
    max_tokens = 512

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix:
        raise NotImplementedError

    def encode_passages(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> FloatMatrix:
        vectors = np.random.default_rng(0).standard_normal((len(texts), DIMENSION), np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def passage_tokens(self, texts: Sequence[str]) -> list[int]:
        return [1] * len(texts)


class KnownQueries(RandomVectors):
    """Vectors of queries that were encoded before."""

    def __init__(self, known: dict[str, FloatMatrix]) -> None:
        self._known = known

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix:
        return np.concatenate([self._known[text] for text in texts])


def end_to_end(cache: Path, n: int, n_questions: int, threads: int) -> None:
    data = load(cache)
    documents = (Document(f"{i:06d}", text, (text,)) for i, text in enumerate(islice(cycle(data.texts), n)))
    settings = IndexSettings(indexed_text="answer", dense=DenseSettings(encoder="builtin", passage="answer"))
    queries = [Query(str(i), text) for i, text in enumerate(data.questions[:n_questions])]
    encoder = make_encoder("builtin", threads=threads)
    encoder.encode_queries(["warm"])
    times: dict[str, list[float]] = {}
    vectors: dict[str, FloatMatrix] = {}
    for query in queries:
        start = time.perf_counter()
        vectors[query.text] = encoder.encode_queries([query.text])
        times.setdefault("encode the question", []).append(time.perf_counter() - start)
    with tempfile.TemporaryDirectory() as folder:
        build_index(Path(folder), documents, settings, encoder=RandomVectors())
        with Index.open(Path(folder)) as index:
            retriever = Retriever(index.sparse, index.dense(), KnownQueries(vectors))
            for query in queries:
                for layer in LAYERS:
                    asked = RetrievalSettings(layer=layer, use=PLAIN)
                    taken = seconds(lambda q=query, s=asked: retriever.retrieve([q], s))  # type: ignore[misc]
                    times.setdefault(layer, []).append(taken)
    print(f"{n:,} documents, {len(queries)} questions one by one, {threads} threads")
    for name, values in times.items():
        print(f"{name}: median {1000 * statistics.median(values):.2f} ms, 95 % {1000 * np.quantile(values, 0.95):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, help="without it encoding is left out")
    parser.add_argument("--n", type=int, default=128, help="passages to encode")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vectors", type=int, default=28_000)
    parser.add_argument("--precisions", default="fp32,int8", help=f"of {', '.join(get_args(EncoderPrecision))}")
    parser.add_argument("--end-to-end", action="store_true", help="whole searches instead")
    parser.add_argument("--documents", type=int, default=28_000, help="for --end-to-end")
    parser.add_argument("--questions", type=int, default=200, help="for --end-to-end")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "dmnrag" / "benchmarks")
    given = parser.parse_args()
    if given.end_to_end:
        end_to_end(given.cache, given.documents, given.questions, given.threads)
    else:
        if given.texts:
            encoding(given.texts, given.n, given.threads, given.precisions.split(","))
        searching(given.vectors)
