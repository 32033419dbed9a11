"""Real servers for the tests: nodes of the launcher beside the checkout, started and stopped here."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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

    def __init__(self, release: str, home: Path, *settings: str) -> None:
        self.port = free_port()
        self._command = [str(RUN_NODE), release, str(home), f"http.port={self.port}", *settings]
        self._log = home.parent / f"{home.name}.log"
        self.process = self._start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            return subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | {"ES_HEAP": "512m"}
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
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def single_node(release: str, home: Path) -> Iterator[str]:
    """The URL of a node that runs as long as the block."""
    node = Node(release, home, f"transport.port={free_port()}", "discovery.type=single-node")
    try:
        node.wait_started()
        yield node.url
    finally:
        node.stop()
