"""How fast the second layer is: the built-in encoder, exact search, HNSW.

    python benchmarks/bench_dense.py --texts FILE.jsonl [--n 128] [--threads 2]

FILE has a `text`, `answer` or `question` field per line; texts are joined and cut into passages of 100
characters. Encoding figures are medians of 3 rounds that alternate between batch sizes. Searching uses
random vectors of 384 numbers in clusters, 28,000 by default.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from dmnrag.retrieval.dense import (
    DenseSettings,
    EncodedDocuments,
    FaissDenseIndex,
    builtin_encoder_folder,
    make_encoder,
    write_vectors,
)
from dmnrag.retrieval.dense.encoder import SentenceTransformerEncoder
from dmnrag.retrieval.table import DocumentTable

ROUNDS = 3
BATCH_SIZES = (8, 32, 64)


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


def encoding(path: Path, n: int, threads: int) -> None:
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, help="without it encoding is left out")
    parser.add_argument("--n", type=int, default=128, help="passages to encode")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vectors", type=int, default=28_000)
    given = parser.parse_args()
    if given.texts:
        encoding(given.texts, given.n, given.threads)
    searching(given.vectors)
