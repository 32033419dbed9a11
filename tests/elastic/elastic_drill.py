"""A node of three is killed, or stands still, while documents are written or questions asked: what callers see.

Every answer is compared with the embedded engine's, and every document is read back. Shared by the test and by
benchmarks/bench_elastic_faults.py, which prints how long calls took.
"""

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count as count_up
from pathlib import Path
from threading import Event, Lock, Timer
from typing import Literal

import numpy as np
from elastic_builder import Words, dense_of, layout_of, rows_of, sparse_of, vector_layout
from elastic_servers import Node

from dmnrag.protocols import FloatMatrix
from dmnrag.retrieval.dense.nearest import inner_products
from dmnrag.retrieval.elastic import (
    Cluster,
    ElasticDocuments,
    IndexedDocument,
    OpenedIndex,
    ShardSettings,
    build_index,
    open_index,
    settle,
)
from dmnrag.retrieval.elastic.bulk import write_bulk
from dmnrag.retrieval.elastic.catalog import write_alias
from dmnrag.retrieval.elastic.connection import Deadline
from dmnrag.retrieval.elastic.rows import index_actions
from dmnrag.retrieval.elastic.settle import refresh
from dmnrag.retrieval.sparse import Bm25Settings, EmbeddedSparseIndex, write_segment
from dmnrag.retrieval.table import DocumentTable
from dmnrag.types import Document, Query

Kind = Literal["kill", "pause"]

N_NODES = 3
THREADS = 8
SEARCHES = 1000
CANDIDATES, K = 50, 10
SPREAD = ShardSettings(shards=3, replicas=1)
PAUSE_S = 30.0

_DIMENSION = 32
_BATCH_BYTES = 50_000
"""Small, so that many requests are under way when the node goes."""
_BETWEEN_S = 0.02
"""Pause of a thread between calls once it has asked enough: a node that comes back needs the processor."""
_GREEN_S = 600.0


@dataclass
class Corpus:
    """Made documents and questions: words by Zipf's law, vectors at random."""

    rows: list[IndexedDocument]
    queries: list[Query]
    vectors: FloatMatrix
    """(n_queries, dimension)."""

    @classmethod
    def make(cls, n_documents: int, n_queries: int = SEARCHES, *, seed: int = 5) -> "Corpus":
        random = np.random.default_rng(seed)
        words = np.array([f"w{number}" for number in range(3000)])
        weights = 1 / np.arange(10, 3010)
        weights /= weights.sum()

        def text(length: int) -> str:
            return " ".join(random.choice(words, length, p=weights))

        def unit(n: int) -> FloatMatrix:
            drawn = random.standard_normal((n, _DIMENSION))
            return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)

        domains = [(f"domain{number}",) for number in random.integers(0, 8, n_documents + n_queries)]
        documents = [Document(f"d{i:06d}", text(20), (text(40),), domains[i]) for i in range(n_documents)]
        vectors = unit(n_documents)
        rows = [
            IndexedDocument(row.document, row.terms, row.label_terms, {"base": vector[None]})
            for row, vector in zip(rows_of(documents), vectors, strict=True)
        ]
        queries = [Query(str(i), text(8), domains[n_documents + i]) for i in range(n_queries)]
        return cls(rows, queries, unit(n_queries))

    def first(self, n_documents: int) -> "Corpus":
        """With fewer documents."""
        return replace(self, rows=self.rows[:n_documents])

    def expected(self) -> list[list[tuple[str, float]]]:
        """Cascade by the embedded first layer and exact products: (doc_id, score) of each query's hits."""
        documents = [row.document for row in self.rows]
        domains = [document.domain for document in documents]
        vectors = {row.document.doc_id: row.vectors["base"] for row in self.rows}
        with tempfile.TemporaryDirectory() as folder:
            segment = Path(folder) / "segment"
            texts = [" ".join(row.terms) for row in self.rows]
            write_segment(segment, zip(texts, domains, strict=True), Words())
            table = DocumentTable.from_lists([document.doc_id for document in documents], domains)
            index = EmbeddedSparseIndex([segment], table, Words(), Bm25Settings(lucene_lengths=True))
            candidates = [[hit.doc_id for hit in hits] for hits in index.search(self.queries, CANDIDATES)]
        found = []
        for vector, doc_ids in zip(self.vectors, candidates, strict=True):
            scores = inner_products(vector, np.concatenate([vectors[doc_id] for doc_id in doc_ids]))
            ranked = sorted(zip(doc_ids, scores.tolist(), strict=True), key=lambda hit: (-hit[1], hit[0]))
            found.append(ranked[:K])
        return found


LAYOUT = layout_of(base=vector_layout(_DIMENSION))


@dataclass
class Calls:
    """What callers saw."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def percentile_ms(self, percent: float) -> float:
        return float(np.percentile(self.seconds, percent)) * 1e3


class Fault:
    """One node that is killed and started again, or stands still and goes on."""

    def __init__(self, kind: Kind, node: Node, *, pause_s: float = PAUSE_S) -> None:
        self._kind, self._node, self._pause_s = kind, node, pause_s

    def strike(self) -> None:
        self._node.send(signal.SIGKILL if self._kind == "kill" else signal.SIGSTOP)
        self._struck = time.monotonic()

    def heal(self) -> None:
        """A paused node goes on when its time is over, a killed one is started at once."""
        if self._kind == "kill":
            self._node.start_again()
            return
        time.sleep(max(0.0, self._struck + self._pause_s - time.monotonic()))
        self._node.send(signal.SIGCONT)


def node_of(cluster: Cluster, nodes: Sequence[Node], *, master: bool) -> Node:
    """The elected master, or another one."""
    state = cluster.call("master", lambda es: es.cluster.state(metric=["master_node", "nodes"]))
    name = state["nodes"][state["master_node"]]["name"]
    return next(node for node in nodes if (node.name == name) == master)


def wait_green(cluster: Cluster) -> None:
    """Until every node and every copy is there."""

    def ask(es: object) -> object:
        return es.cluster.health(  # type: ignore[attr-defined]
            wait_for_status="green", wait_for_nodes=str(N_NODES), wait_for_no_relocating_shards=True, timeout="20s"
        )

    cluster.call("health", ask, deadline=Deadline(_GREEN_S), attempt_s=40.0)


def striking(rows: Sequence[IndexedDocument], after: int, strike: Callable[[], None]) -> Iterator[IndexedDocument]:
    """The rows; the fault comes when so many of them have been taken."""
    for number, row in enumerate(rows):
        if number == after:
            strike()
        yield row


def build_under(cluster: Cluster, name: str, corpus: Corpus, fault: Fault) -> OpenedIndex:
    """A build during which the fault comes, once every shard has its copies; it heals when the build is done."""

    def strike() -> None:
        wait_green(cluster)
        fault.strike()

    rows = striking(corpus.rows, len(corpus.rows) // 2, strike)
    build_index(cluster, name, rows, LAYOUT, shards=SPREAD, batch_bytes=_BATCH_BYTES)
    fault.heal()
    return open_index(cluster, name, LAYOUT)


def add_under(cluster: Cluster, opened: OpenedIndex, rows: Sequence[IndexedDocument], fault: Fault) -> None:
    """Rows join while the fault comes and, where it passes by itself, goes."""
    healing = Timer(0, fault.heal)

    def strike() -> None:
        fault.strike()
        healing.start()

    actions = index_actions(striking(rows, len(rows) // 2, strike), {"base": opened.field("base")})
    report = write_bulk(cluster, write_alias(opened.physical), actions, batch_bytes=_BATCH_BYTES)
    refresh(cluster, opened.physical)
    healing.join()
    report.raise_refused("adding")


def check_documents(cluster: Cluster, opened: OpenedIndex, rows: Sequence[IndexedDocument]) -> str | None:
    """What is lost, doubled or altered; None where all is well. Leaves the statistics settled."""
    found = list(ElasticDocuments(cluster, opened))
    expected = [row.document for row in rows]
    if found != expected:
        ids, wanted = [d.doc_id for d in found], [d.doc_id for d in expected]
        lost, foreign = sorted(set(wanted) - set(ids)), sorted(set(ids) - set(wanted))
        return f"{len(found)} documents for {len(expected)}: lost {lost[:5]}, foreign {foreign[:5]}"
    if not settle(cluster, opened.physical):
        return "the copies did not agree on what was removed"
    answer = cluster.call("statistics", lambda es: es.indices.stats(index=opened.physical, metric="docs"))
    deleted = answer["_all"]["total"]["docs"]["deleted"]
    return f"{deleted} replaced documents still count in the statistics of some copies" if deleted else None


class Searches:
    """Eight threads that ask one question after the other: cascade, which is both layers."""

    def __init__(self, cluster: Cluster, opened: OpenedIndex, corpus: Corpus) -> None:
        self._sparse, self._dense = sparse_of(cluster, opened), dense_of(cluster, opened)
        self._corpus = corpus
        self._expected = corpus.expected()

    def ask(
        self, n_searches: int = SEARCHES, *, on_call: Callable[[int], None] | None = None, until: Event | None = None
    ) -> Calls:
        """At least so many searches, and on until the event; `on_call` is told the number of each one."""
        calls, lock, numbers = Calls(), Lock(), count_up()

        def work() -> None:
            for number in iter(numbers.__next__, None):
                enough = number >= n_searches
                if enough and (until is None or until.wait(_BETWEEN_S)):
                    return
                if on_call is not None:
                    on_call(number)
                self._one(number % len(self._corpus.queries), calls, lock)

        with ThreadPoolExecutor(THREADS) as pool:
            for future in [pool.submit(work) for _ in range(THREADS)]:
                future.result()
        return calls

    def _one(self, number: int, calls: Calls, lock: Lock) -> None:
        started, wrong, error = time.perf_counter(), None, None
        try:
            candidates = self._sparse.search([self._corpus.queries[number]], CANDIDATES)
            doc_ids = [[hit.doc_id for hit in hits] for hits in candidates]
            [hits] = self._dense.rescore(self._corpus.vectors[number][None], doc_ids, K)
            found = [(hit.doc_id, hit.score) for hit in hits]
            wrong = difference(found, self._expected[number])
        except Exception as caught:  # whatever reaches a caller is counted
            error = f"{type(caught).__name__}: {caught}"
        with lock:
            calls.seconds.append(time.perf_counter() - started)
            calls.errors += [error] if error else []
            calls.wrong += [f"question {number}: {wrong}"] if wrong else []

    def ask_under(self, fault: Fault, after_heal: Callable[[], None]) -> Calls:
        """Searches during which the fault comes and goes; they end when `after_heal` has returned."""
        healed = Event()

        def heal() -> None:
            try:
                fault.heal()
                after_heal()
            finally:
                healed.set()

        healing = Timer(1.0, heal)

        def on_call(number: int) -> None:
            if number == SEARCHES // 4:
                fault.strike()
                healing.start()

        calls = self.ask(on_call=on_call, until=healed)
        healing.join()
        return calls


def difference(found: Sequence[tuple[str, float]], expected: Sequence[tuple[str, float]]) -> str | None:
    """How hits differ; scores that differ by rounding alone do not."""
    if [doc_id for doc_id, _ in found] != [doc_id for doc_id, _ in expected]:
        return f"{found} for {expected}"
    apart = max((abs(a - b) for (_, a), (_, b) in zip(found, expected, strict=True)), default=0.0)
    return f"scores {apart} apart" if apart > 1e-5 else None
