"""What callers of a cluster see while one node of three is killed or stands still: errors, wrong hits, waiting.

    python benchmarks/bench_elastic_faults.py [--documents 3000] [--release 9] [--deadline-s 60]

Three nodes from ../shared/elasticsearch, three shards, one replica. A node is killed (SIGKILL) while an index is
built, and another stands still (SIGSTOP, 30 s) while documents are added; then 8 threads ask 1,000 questions
before, during (until the cluster is whole again) and after the same two faults. Every answer is compared with the
embedded engine's and every document is read back. The drill is that of tests/elastic/test_elastic_faults.py; a
search is a cascade, two requests.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dmnrag.retrieval.elastic import Cluster, ConnectionSettings, connect, open_index

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "elastic"))
from elastic_drill import (
    Calls,
    Corpus,
    Fault,
    Kind,
    Searches,
    add_under,
    build_under,
    check_documents,
    node_of,
    wait_green,
)
from elastic_servers import Node, three_nodes

NAME = "drill"
SEARCH_FAULTS: tuple[tuple[Kind, bool], ...] = (("kill", False), ("pause", True))
"""With whether it is the master that it hits."""


def report(what: str, calls: Calls) -> bool:
    """Print it; whether nothing was wrong."""
    print(
        f"{what}: {len(calls.seconds):,} searches, {len(calls.errors)} errors, {len(calls.wrong)} wrong or short; "
        f"ms: p50 {calls.percentile_ms(50):.1f}, p99 {calls.percentile_ms(99):.1f}, longest "
        f"{calls.percentile_ms(100):,.0f}; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    for text in (calls.errors + calls.wrong)[:5]:
        print(f"  {text}", flush=True)
    return not calls.errors and not calls.wrong


def write(what: str, work: Callable[[], object], check: Callable[[], str | None]) -> bool:
    started = time.perf_counter()
    work()
    taken = time.perf_counter() - started
    trouble = check()
    print(f"{what}: {taken:.1f} s until it heals; {trouble or 'nothing lost, doubled or altered'}", flush=True)
    return trouble is None


def drill(cluster: Cluster, nodes: Sequence[Node], corpus: Corpus) -> bool:
    n_first = 2 * len(corpus.rows) // 3
    first, added = corpus.first(n_first), corpus.rows[n_first:]
    killed = Fault("kill", node_of(cluster, nodes, master=True))
    sound = [
        write(
            f"building of {n_first:,} documents, master killed",
            lambda: build_under(cluster, NAME, first, killed),
            lambda: check_documents(cluster, open_index(cluster, NAME), first.rows),
        )
    ]
    wait_green(cluster)
    paused = Fault("pause", node_of(cluster, nodes, master=False))
    sound.append(
        write(
            f"adding of {len(added):,} documents, node paused",
            lambda: add_under(cluster, open_index(cluster, NAME), added, paused),
            lambda: check_documents(cluster, open_index(cluster, NAME), corpus.rows),
        )
    )
    searches = Searches(cluster, open_index(cluster, NAME), corpus)
    searches.ask()  # the servers' compilers have seen it then
    for kind, master in SEARCH_FAULTS:
        wait_green(cluster)
        sound.append(report(f"before the {kind}", searches.ask()))
        fault = Fault(kind, node_of(cluster, nodes, master=master))
        sound.append(report(f"during the {kind}", searches.ask_under(fault, lambda: wait_green(cluster))))
        sound.append(report(f"after the {kind}", searches.ask()))
    return all(sound)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--release", choices=("8", "9"), default="9")
    parser.add_argument("--deadline-s", type=float, default=60)
    options = parser.parse_args(arguments)
    corpus = Corpus.make(options.documents)
    with tempfile.TemporaryDirectory() as folder, three_nodes(options.release, Path(folder)) as nodes:
        urls = tuple(node.url for node in nodes)
        with connect(ConnectionSettings(urls, deadline_s=options.deadline_s)) as cluster:
            sound = drill(cluster, nodes, corpus)
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    main()
