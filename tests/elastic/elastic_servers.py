"""Real servers for the tests: nodes of the launcher beside the checkout, started and stopped here."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer

RUN_NODE = Path(__file__).resolve().parents[3] / "shared" / "elasticsearch" / "run-node"
RELEASES = ("8", "9")
_START_S = 600.0
"""A node needs seven seconds of a processor; where others use all of them it has taken 80 seconds."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Node:
    """One node as a process of its own."""

    def __init__(self, release: str, home: Path, *settings: str, heap: str = "512m") -> None:
        self.name = home.name
        self.port = free_port()
        self._heap = heap
        self._command = [str(RUN_NODE), release, str(home), f"http.port={self.port}", *settings]
        self._log = home.parent / f"{home.name}.log"
        self.process = self._start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            return subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | {"ES_HEAP": self._heap}
            )

    def wait_started(self) -> None:
        assert self.process.stdout is not None
        timer = Timer(_START_S, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.strip() == "started":
                    return
        finally:
            timer.cancel()
        raise RuntimeError(f"no Elasticsearch node came up: {self._log.read_text()[-2000:]}")

    def start_again(self) -> None:
        """After it was killed."""
        self.stop()
        self.process = self._start()
        self.wait_started()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)  # a paused process does not hear that it should end
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def one_node(release: str, home: Path, *, heap: str = "512m") -> Iterator[Node]:
    """A node that runs as long as the block."""
    node = Node(release, home, f"transport.port={free_port()}", "discovery.type=single-node", heap=heap)
    try:
        node.wait_started()
        yield node
    finally:
        node.stop()


@contextmanager
def single_node(release: str, home: Path) -> Iterator[str]:
    """The URL of a node that runs as long as the block."""
    with one_node(release, home) as node:
        yield node.url


@contextmanager
def three_nodes(release: str, folder: Path) -> Iterator[list[Node]]:
    """A cluster that survives the loss of one node; runs as long as the block."""
    names = ("n1", "n2", "n3")
    ports = [free_port() for _ in names]
    common = [
        "cluster.name=three",
        f"discovery.seed_hosts={','.join(f'127.0.0.1:{port}' for port in ports)}",
        f"cluster.initial_master_nodes={','.join(names)}",
    ]
    with ExitStack() as started:
        nodes = []
        for name, port in zip(names, ports, strict=True):
            node = Node(release, folder / name, f"node.name={name}", f"transport.port={port}", *common)
            started.callback(node.stop)
            nodes.append(node)
        for node in nodes:
            node.wait_started()
        yield nodes
