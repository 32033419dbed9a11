"""Servers of both releases, an index name for each test, and what builds indexes in them."""

import os
from collections.abc import Iterator

import pytest
from elastic_servers import RELEASES, RUN_NODE, single_node

from dmnrag.retrieval.elastic import Cluster, ConnectionSettings, connect, delete_index

URL_VARIABLE = "DMNRAG_TEST_ES_URL"
"""A running server, in place of the launcher's; several, one of each release, with commas between."""

_given = [url for url in os.environ.get(URL_VARIABLE, "").split(",") if url]


@pytest.fixture(scope="session", params=_given or RELEASES)
def server_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server after the other, so that only one is in memory."""
    if _given:
        yield request.param
        return
    if not RUN_NODE.exists():
        pytest.skip(f"no Elasticsearch: neither {RUN_NODE} nor {URL_VARIABLE}")
    with single_node(request.param, tmp_path_factory.mktemp("elastic") / f"node{request.param}") as url:
        yield url


@pytest.fixture(scope="session")
def cluster(server_url: str) -> Iterator[Cluster]:
    with connect(ConnectionSettings((server_url,))) as connected:
        yield connected


@pytest.fixture
def name(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """An index name of this test's own; whatever it names is deleted afterwards."""
    chosen = f"t{abs(hash(request.node.nodeid)):x}-{os.getpid()}"
    yield chosen
    delete_index(cluster, chosen)
