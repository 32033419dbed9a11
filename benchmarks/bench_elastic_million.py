"""A million documents on one Elasticsearch node and in the embedded engine: building, bytes on disk, joint search.

    python benchmarks/bench_elastic_million.py [--documents 1000000] [--queries 500] [--release 9] [--heap 2g]

The documents are those of bench_million.py, text only, one shard without replicas. The node is started from
../shared/elasticsearch. Each phase runs in a process of its own, whose peak memory is that of the client. The
embedded engine rounds lengths as Lucene does here, so that both must find the same. Run it on an otherwise
idle machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench_million import K, peak_mb, percentiles, questions, resampled, rows, timed

from dmnrag.index import Index, IndexSettings, build_index, disk_usage
from dmnrag.index.settings import searchable_text
from dmnrag.retrieval import elastic
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.text import make_segmenter
from dmnrag.types import JOINT, Query

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "elastic"))
from elastic_servers import one_node

NAME = "million"
CLIENT_GB = 1
"""What building may take in the client."""
SETTINGS = replace(IndexSettings(), bm25=Bm25Settings(lucene_lengths=True))
LAYOUT = elastic.IndexLayout(segmenter=SETTINGS.segmenter.to_dict(), bm25=SETTINGS.bm25)

Found = dict[str, list[str]]


def connect(options: argparse.Namespace) -> elastic.Cluster:
    return elastic.connect(elastic.ConnectionSettings((options.url,), deadline_s=600, request_timeout_s=300))


def phase_elastic_build(options: argparse.Namespace) -> dict[str, float]:
    documents = resampled(rows(), options.documents)
    texts = ((d, searchable_text(d, SETTINGS.indexed_text), {}) for d in documents)
    segmented = elastic.segment_documents(texts, make_segmenter(SETTINGS.segmenter))
    shards = elastic.ShardSettings(shards=1, replicas=0)
    with connect(options) as cluster:
        seconds = timed(lambda: elastic.build_index(cluster, NAME, segmented, LAYOUT, shards=shards))
        cluster.call("flush", lambda es: es.indices.flush(index=NAME))
        answer = cluster.call("statistics", lambda es: es.indices.stats(index=NAME, metric=["store", "segments"]))
        n_bytes = answer["_all"]["primaries"]["store"]["size_in_bytes"]
        segments = answer["_all"]["primaries"]["segments"]["count"]
        found = elastic.count(cluster, elastic.open_index(cluster, NAME, LAYOUT).physical)
    return {"seconds": seconds, "bytes": n_bytes, "segments": segments, "documents": found}


def phase_elastic_search(options: argparse.Namespace) -> dict[str, float]:
    asked = questions(rows(), options.queries)
    started = time.perf_counter()
    with connect(options) as cluster:
        opened = elastic.open_index(cluster, NAME, LAYOUT)
        index = elastic.ElasticSparseIndex(cluster, opened.physical, make_segmenter(SETTINGS.segmenter))
        seconds = time.perf_counter() - started
        first = timed(lambda: index.search(asked[:1], K, use=JOINT))
        times = percentiles(lambda query: index.search([query], K, use=JOINT), asked)
        found = top_of(lambda queries: index.search(queries, K, use=JOINT), asked)
    (options.folder / "found.json").write_text(json.dumps(found))
    return {"open_seconds": seconds, "first_search_seconds": first, **times}


def phase_embedded_build(options: argparse.Namespace) -> dict[str, float]:
    folder = options.folder / "embedded"
    seconds = timed(lambda: build_index(folder, resampled(rows(), options.documents), SETTINGS))
    return {"seconds": seconds, "bytes": disk_usage(folder).bytes}


def phase_embedded_search(options: argparse.Namespace) -> dict[str, float]:
    asked = questions(rows(), options.queries)
    started = time.perf_counter()
    with Index.open(options.folder / "embedded") as index:
        seconds = time.perf_counter() - started
        first = timed(lambda: index.sparse.search(asked[:1], K, use=JOINT))
        times = percentiles(lambda query: index.sparse.search([query], K, use=JOINT), asked)
        found = top_of(lambda queries: index.sparse.search(queries, K, use=JOINT), asked)
    other: Found = json.loads((options.folder / "found.json").read_text())
    same = sum(found[query_id] == other[query_id] for query_id in found) / len(found)
    return {"open_seconds": seconds, "first_search_seconds": first, **times, "share_with_the_same_top_10": same}


def top_of(search: Callable[[Sequence[Query]], Sequence[Sequence[object]]], asked: Sequence[Query]) -> Found:
    """Ids of the hits of each query."""
    return {
        query.query_id: [hit.doc_id for hit in hits]  # type: ignore[attr-defined]
        for query, hits in zip(asked, search(asked), strict=True)
    }


PHASES: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "elastic build": phase_elastic_build,
    "elastic search": phase_elastic_search,
    "embedded build": phase_embedded_build,
    "embedded search": phase_embedded_search,
}


def run_phase(name: str, options: argparse.Namespace) -> dict[str, float]:
    """The figures of a phase in a process of its own."""
    command = [sys.executable, __file__, "--phase", name, "--folder", str(options.folder), "--url", options.url]
    command += ["--documents", str(options.documents), "--queries", str(options.queries)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{name} failed, exit code {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    shown = ", ".join(f"{key.replace('_', ' ')} {value:,.4g}" for key, value in found.items())
    print(f"{name}: {shown}; load {os.getloadavg()[0]:.1f}", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--release", choices=("8", "9"), default="9")
    parser.add_argument("--heap", default="2g", help="of the node")
    parser.add_argument("--folder", type=Path, help="where the indexes go; default: a temporary folder")
    parser.add_argument("--phase", choices=PHASES, help="run one phase and print its figures as JSON")
    parser.add_argument("--url", help="of the node, for --phase")
    options = parser.parse_args(arguments)
    if options.phase:
        found = PHASES[options.phase](options)
        print(json.dumps({**found, "cpu_seconds": time.process_time(), "peak_mb": peak_mb()}))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        options.folder = Path(folder)
        run_all(options)


def run_all(options: argparse.Namespace) -> None:
    load = os.getloadavg()[0]
    print(
        f"{options.documents:,} documents, {options.queries} queries, heap {options.heap}, load {load:.1f}", flush=True
    )
    with one_node(options.release, options.folder / "node", heap=options.heap) as node:
        options.url = node.url
        peak = run_phase("elastic build", options)["peak_mb"]
        run_phase("elastic search", options)
        status = Path(f"/proc/{node.process.pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    verdict = "within" if peak < 1024 * CLIENT_GB else "OVER"
    print(f"peak memory of the client while building: {peak:,.0f} MB, {verdict} {CLIENT_GB} GB", flush=True)
    print(f"peak memory of the node: {resident / 1024:,.0f} MB", flush=True)
    run_phase("embedded build", options)
    run_phase("embedded search", options)


if __name__ == "__main__":
    main()
