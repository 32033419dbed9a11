"""Three nodes, three shards, one replica: the loss of a node loses no document and no caller sees it."""

from collections.abc import Iterator

import pytest
from elastic_drill import (
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
from elastic_servers import RUN_NODE, Node, three_nodes

from dmnrag.retrieval.elastic import Cluster, ConnectionSettings, OpenedIndex, connect, open_index

pytestmark = [pytest.mark.service, pytest.mark.slow]

N_DOCUMENTS, N_ADDED = 2000, 1000
NAME = "drill"
DEADLINE_S = 600.0
"""Far beyond what it takes, so that nothing depends on the machine's speed; the benchmark has 60 s."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    if not RUN_NODE.exists():
        pytest.skip(f"no Elasticsearch: {RUN_NODE} is not there")
    with three_nodes("9", tmp_path_factory.mktemp("three")) as started:
        yield started


@pytest.fixture(scope="module")
def three(nodes: list[Node]) -> Iterator[Cluster]:
    with connect(ConnectionSettings(tuple(node.url for node in nodes), deadline_s=DEADLINE_S)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.make(N_DOCUMENTS + N_ADDED)


@pytest.fixture(scope="module")
def built(three: Cluster, nodes: list[Node], corpus: Corpus) -> OpenedIndex:
    """Built while the master was killed."""
    opened = build_under(three, NAME, corpus.first(N_DOCUMENTS), Fault("kill", node_of(three, nodes, master=True)))
    wait_green(three)
    return opened


@pytest.fixture(scope="module")
def added(three: Cluster, nodes: list[Node], corpus: Corpus, built: OpenedIndex) -> OpenedIndex:
    """Extended while a node stood still."""
    fault = Fault("pause", node_of(three, nodes, master=False))
    add_under(three, built, corpus.rows[N_DOCUMENTS:], fault)
    wait_green(three)
    return open_index(three, NAME)


def test_a_build_loses_and_doubles_nothing_when_a_node_is_killed(
    three: Cluster, corpus: Corpus, built: OpenedIndex
) -> None:
    assert check_documents(three, built, corpus.rows[:N_DOCUMENTS]) is None


def test_adding_loses_and_doubles_nothing_when_a_node_stands_still(
    three: Cluster, corpus: Corpus, added: OpenedIndex
) -> None:
    assert check_documents(three, added, corpus.rows) is None


@pytest.mark.parametrize(("kind", "master"), [("kill", False), ("pause", True)])
def test_searches_go_on_as_if_nothing_had_happened(
    three: Cluster, nodes: list[Node], corpus: Corpus, added: OpenedIndex, kind: Kind, master: bool
) -> None:
    searches = Searches(three, added, corpus)
    fault = Fault(kind, node_of(three, nodes, master=master))
    during = searches.ask_under(fault, lambda: wait_green(three))
    for calls in (during, searches.ask()):
        assert (calls.errors, calls.wrong) == ([], [])
        assert len(calls.seconds) >= 1000
