"""Servers of both releases, and index folders whose documents are in them."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
for _neighbour in ("elastic", "cli", "training"):  # their helpers, whichever tests run
    if str(TESTS / _neighbour) not in sys.path:
        sys.path.append(str(TESTS / _neighbour))

from cli_runner import Outcome, RunCli  # noqa: E402
from cluster_corpus import Place  # noqa: E402
from elastic_servers import RELEASES, RUN_NODE, single_node  # noqa: E402

from dmnrag.cli.main import run  # noqa: E402
from dmnrag.retrieval.elastic import Cluster, ConnectionSettings, connect, delete_index  # noqa: E402
from dmnrag.retrieval.elastic.settings import ENVIRONMENT_PREFIX  # noqa: E402

_given = [url for url in os.environ.get("DMNRAG_TEST_ES_URL", "").split(",") if url]


@pytest.fixture(scope="session", params=_given or RELEASES)
def server_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server after the other, so that only one is in memory."""
    if _given:
        yield request.param
        return
    if not RUN_NODE.exists():
        pytest.skip(f"no Elasticsearch: neither {RUN_NODE} nor DMNRAG_TEST_ES_URL")
    with single_node(request.param, tmp_path_factory.mktemp("elastic") / f"node{request.param}") as url:
        yield url


@pytest.fixture(scope="session")
def cluster(server_url: str) -> Iterator[Cluster]:
    with connect(ConnectionSettings((server_url,))) as connected:
        yield connected


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(ENVIRONMENT_PREFIX)]:
        monkeypatch.delenv(name)


@pytest.fixture
def place(cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A folder and a name of this test's own; whatever the name names is deleted afterwards."""
    name = f"i{abs(hash(request.node.nodeid)):x}-{os.getpid()}"
    yield Place(tmp_path / "index", name, cluster)
    delete_index(cluster, name)


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCli:
    """`run_cli("info", folder)`: the entry point in this process."""

    def _run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dmnrag", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            run()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return _run
