"""The Elasticsearch engine against the bare client, on a real node with InsuranceQA's Chinese answers.

    python benchmarks/bench_elastic.py [build] [batch] [single] [--pairs 5] [--release 9] [--url URL]
    python benchmarks/bench_elastic.py quantised --index DIR [--questions 500]

- build: `build_index` of segmented rows with a random unit vector of 384 numbers each, against
  `helpers.parallel_bulk` of the same bodies into an index of the same settings, and a refresh. Building also makes
  the bodies, counts, checks and switches the alias. The bare client serialises with orjson, as ours does.
- batch: 1,000 questions in one call against one call for each.
- single: one call for each question against the client's `search` of the same body, made beforehand.
- quantised: the share of the exact top 10 that each kind of quantised vectors finds, for the vectors of an index
  folder and its held-out questions, which are encoded by its encoder.

Timings are interleaved: each pair runs both sides one after the other, in turns first, and gives one ratio; the
median is the figure, with its range. The data is that of bench_sparse.py; the node is started from
../shared/elasticsearch where no URL is given.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
from bench_sparse import load
from elasticsearch import Elasticsearch, OrjsonSerializer, helpers

from dmnrag.index import Index
from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval import elastic
from dmnrag.retrieval.dense import DenseSettings, make_encoder
from dmnrag.retrieval.dense.vectors import open_vectors
from dmnrag.retrieval.elastic.layout import field_names, index_settings, new_mapping
from dmnrag.retrieval.elastic.rows import to_source
from dmnrag.retrieval.elastic.sparse import search_body
from dmnrag.retrieval.sparse import weigh_queries
from dmnrag.text import SegmenterSettings, make_segmenter
from dmnrag.types import JOINT, Document, Hit, Query

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "elastic"))
from elastic_servers import single_node

DIMENSION = 384
K = 10
CANDIDATES = 100
SEED = 3
SHARDS = elastic.ShardSettings(shards=1, replicas=0)
NAME, BARE = "bench-ours", "bench-bare"
SEGMENTER = SegmenterSettings()
LAYOUT = elastic.IndexLayout(
    segmenter=SEGMENTER.to_dict(), retrievers={"base": elastic.VectorLayout(DIMENSION, DenseSettings())}
)
QUANTISED: tuple[elastic.ElasticVectorKind, ...] = ("int8_hnsw", "bbq_hnsw", "hnsw")


Search = Callable[[Sequence[Query], FloatMatrix], object]


def one_by_one(search: Search, queries: Sequence[Query], vectors: FloatMatrix) -> None:
    for i, query in enumerate(queries):
        search([query], vectors[i : i + 1])


def connection_settings(url: str) -> elastic.ConnectionSettings:
    """With time for a slow machine."""
    return elastic.ConnectionSettings((url,), deadline_s=600, request_timeout_s=300)


class Bench:
    """The data, and a server that holds it."""

    def __init__(self, cluster: elastic.Cluster, options: argparse.Namespace) -> None:
        self.cluster = cluster
        [self.url] = cluster.settings.urls
        self.pairs: int = options.pairs
        self.segmenter = make_segmenter(SEGMENTER)
        data = load(options.cache)
        random = np.random.default_rng(SEED)
        self.vectors = unit(random.standard_normal((options.questions, DIMENSION)))
        self.queries = [Query(str(i), text) for i, text in enumerate(data.questions[: options.questions])]
        documents = [Document(d, "", (text,)) for d, text in zip(data.doc_ids, data.texts, strict=True)]
        vectors = unit(random.standard_normal((len(documents), DIMENSION)))
        texts = ((d, d.answers[0], {"base": vector[None]}) for d, vector in zip(documents, vectors, strict=True))
        self.rows = list(elastic.segment_documents(texts, self.segmenter))

    def build(self) -> None:
        elastic.build_index(self.cluster, NAME, self.rows, LAYOUT, shards=SHARDS)

    def open(self) -> tuple[elastic.ElasticSparseIndex, elastic.ElasticDenseIndex]:
        if not elastic.list_physical(self.cluster, NAME):
            self.build()
        opened = elastic.open_index(self.cluster, NAME, LAYOUT)
        sparse = elastic.ElasticSparseIndex(self.cluster, opened.physical, self.segmenter)
        field, layout = opened.field("base"), opened.retrievers["base"]
        return sparse, elastic.ElasticDenseIndex(self.cluster, opened.physical, field, layout)

    def measure_build(self) -> None:
        fields = field_names(LAYOUT)
        sources = [(row.document.doc_id, to_source(row, fields)) for row in self.rows]
        client = Elasticsearch(self.url, serializer=OrjsonSerializer(), request_timeout=300)

        def bare() -> None:
            client.indices.create(
                index=BARE, settings=index_settings(LAYOUT, SHARDS), mappings=new_mapping(LAYOUT, NAME)
            )
            actions = ({"_index": BARE, "_id": doc_id, "_source": source} for doc_id, source in sources)
            for _ in helpers.parallel_bulk(client, actions):
                pass
            client.indices.refresh(index=BARE)

        def clean() -> None:
            elastic.prune(self.cluster, NAME)
            client.options(ignore_status=404).indices.delete(index=BARE)

        clean()
        times = interleave(self.build, bare, self.pairs, after=clean)
        report(f"building {len(sources):,} documents, ours to bare", [ours / other for ours, other in times], times)
        client.close()

    def measure_batch(self) -> None:
        sparse, dense = self.open()
        queries, vectors = self.queries, self.vectors

        def cascade(queries: Sequence[Query], vectors: FloatMatrix) -> object:
            found = sparse.search(queries, CANDIDATES)
            return dense.rescore(vectors, [[hit.doc_id for hit in hits] for hits in found], K)

        layers: dict[str, Search] = {
            "sparse": lambda queries, vectors: sparse.search(queries, K),
            "dense": lambda queries, vectors: dense.search(vectors, K),
            "cascade": cascade,
        }
        for layer, search in layers.items():
            search(queries, vectors)
            times = interleave(
                partial(one_by_one, search, queries, vectors), partial(search, queries, vectors), self.pairs
            )
            report(f"{layer}, {len(queries):,} one by one to one batch", [a / b for a, b in times], times)

    def measure_single(self) -> None:
        sparse, _ = self.open()
        client = Elasticsearch(self.url)
        physical = elastic.open_index(self.cluster, NAME).physical
        weighed = weigh_queries(self.queries, self.segmenter, JOINT)
        bodies = [search_body(counts, "joint", K, None) for counts in weighed]

        def ours(i: int) -> object:
            return sparse.search([self.queries[i]], K)

        def bare(i: int) -> object:
            return client.search(index=physical, search_type="dfs_query_then_fetch", **bodies[i])

        times = []
        for _ in range(self.pairs + 1):
            taken = [0.0, 0.0]
            for i in range(len(bodies)):
                # In turns, question by question: both meet the same state of the machine.
                for side in (1, 0) if i % 2 else (0, 1):
                    taken[side] += seconds(lambda i=i, side=side: (ours, bare)[side](i))
            times.append((taken[0], taken[1]))
        times = times[1:]  # the first warms up
        report(f"one search, ours to bare, {len(bodies):,} of them", [a / b for a, b in times], times)
        client.close()


def measure_quantised(cluster: elastic.Cluster, options: argparse.Namespace) -> None:
    """Overlap with the exact top 10 by kind of vectors; cascade against exact scores of the same candidates."""
    with Index.open(options.index) as index:
        settings = index.dense_settings()
        exact, documents = index.dense(), list(index.all_documents())
        queries = [example.query for example in index.examples[: options.questions]]
        asked = make_encoder(settings.encoder).encode_queries([query.text for query in queries])
        vectors = vectors_of(index)
        wanted = exact.search(asked, K)
        first = index.sparse.search(queries, CANDIDATES)
        candidates = [[hit.doc_id for hit in hits] for hits in first]
        rescored = exact.rescore(asked, candidates, K)
    print(f"{len(documents):,} documents, {len(queries)} questions, dimension {asked.shape[1]}")
    for kind in QUANTISED:
        layout = elastic.IndexLayout(
            segmenter={}, retrievers={"base": elastic.VectorLayout(asked.shape[1], settings, kind=kind)}
        )
        rows = (elastic.IndexedDocument(d, ["x"], (), {"base": v}) for d, v in zip(documents, vectors, strict=True))
        elastic.build_index(cluster, NAME, rows, layout, shards=SHARDS)
        opened = elastic.open_index(cluster, NAME, layout)
        dense = elastic.ElasticDenseIndex(cluster, opened.physical, opened.field("base"), opened.retrievers["base"])
        shares = overlaps(wanted, dense.search(asked, K))
        low, high = interval(shares)
        whole = overlaps(rescored, dense.rescore(asked, candidates, K))
        print(
            f"{kind}, oversample {opened.retrievers['base'].oversample:g}: overlap with the exact top {K} "
            f"{shares.mean():.4f} [{low:.4f}, {high:.4f}], cascade {whole.mean():.4f}",
            flush=True,
        )


def vectors_of(index: Index) -> list[FloatMatrix]:
    """(n_parts, dimension) of each document of an index without removed ones, as the folder holds them."""
    folder = index.folder / "generations" / f"{index.manifest.generation:06d}" / "dense" / "base"
    found = []
    for segment in index.manifest.segments:
        assert not segment.n_removed, "build the index again: this reads the vectors of all rows"
        opened = open_vectors(folder / segment.name)
        found += np.split(opened.vectors, np.flatnonzero(np.diff(opened.owners)) + 1)
    return found


def overlaps(wanted: Sequence[Sequence[Hit]], found: Sequence[Sequence[Hit]]) -> npt.NDArray[np.float64]:
    """For each query the share of the wanted hits that was found."""
    pairs = zip(wanted, found, strict=True)
    return np.array([len({hit.doc_id for hit in a} & {hit.doc_id for hit in b}) / len(a) for a, b in pairs if a])


def interval(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """95 % of the mean, by the bootstrap over queries."""
    random = np.random.default_rng(SEED)
    means = [random.choice(values, len(values)).mean() for _ in range(2000)]
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def unit(vectors: npt.NDArray[np.float64]) -> FloatMatrix:
    scaled: FloatMatrix = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def interleave(
    first: Callable[[], object], second: Callable[[], object], pairs: int, after: Callable[[], None] = lambda: None
) -> list[tuple[float, float]]:
    """Seconds of both sides in each pair; who comes first takes turns; `after` is not timed."""
    times = []
    for number in range(pairs):
        taken = [0.0, 0.0]
        for side in (1, 0) if number % 2 else (0, 1):
            taken[side] = seconds((first, second)[side])
            after()
        times.append((taken[0], taken[1]))
    return times


def report(name: str, ratios: Sequence[float], times: Sequence[tuple[float, float]]) -> None:
    print(
        f"{name}: {median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}], {len(ratios)} pairs; median seconds "
        f"{median(a for a, _ in times):.2f} and {median(b for _, b in times):.2f}; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def server(options: argparse.Namespace) -> Iterator[str]:
    """The URL of the one that is given, or of a node of our own."""
    if options.url:
        yield options.url
        return
    with tempfile.TemporaryDirectory() as folder, single_node(options.release, Path(folder) / "node") as url:
        yield url


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=(*MEASURES, "quantised"))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--release", choices=("8", "9"), default="9")
    parser.add_argument("--url", help="a server that runs, in place of a node of our own")
    parser.add_argument("--index", type=Path, help="for quantised: an index folder with vectors")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "dmnrag" / "benchmarks")
    options = parser.parse_args(arguments)
    what = options.what or list(MEASURES)
    with server(options) as url, elastic.connect(connection_settings(url)) as cluster:
        try:
            if "quantised" in what:
                measure_quantised(cluster, options)
            timed = [name for name in what if name in MEASURES]
            if timed:
                bench = Bench(cluster, options)
                for name in timed:
                    MEASURES[name](bench)
        finally:
            elastic.delete_index(cluster, NAME)


MEASURES: dict[str, Callable[[Bench], None]] = {
    "build": Bench.measure_build,
    "batch": Bench.measure_batch,
    "single": Bench.measure_single,
}

if __name__ == "__main__":
    main()
