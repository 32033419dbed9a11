"""What the service bears: answers a second, waiting times and memory, with a fake LLM of 50 ms.

    python benchmarks/load_test.py [--index DIR] [--seconds 20] [--clients 32 128] [--in-process] [--json OUT]

A server process with the fake LLM, the layer `cascade` and the index's own encoder; clients in this process, each with
one question at a time, as fast as they are answered. `--index` is any index with vectors; without it one is built of
the bundled medical sample with the built-in encoder. Questions are the index's held-out ones (documents' questions
where there are none), each with a number behind it so that no two are equal.

Printed for each number of clients: answers a second, median, 95th and 99th percentile of the waiting time, refusals
(429) apart from other errors, the server's CPU time for each answer, and its resident memory over time. A client that
is refused waits a second. `--in-process` drives the engine without HTTP, and `--profile` says where its time goes.
The machine is shared with the clients: they cost the server what they use.
"""

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count, cycle
from pathlib import Path

import httpx
import psutil

from dmnrag.data import load_sample
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.llm.fake import FakeGenerator
from dmnrag.retrieval.dense import DenseSettings, make_encoder
from dmnrag.service.engine import Engine
from dmnrag.service.events import Asked
from dmnrag.service.faults import QueueFull
from dmnrag.service.settings import AnswerSettings, LoadSettings, ServeSettings, TrustSettings
from dmnrag.types import Generation, GenerationSettings, Prompt

LLM_S = 0.05
REPLY = "根据资料[1]，请先休息。"
SETTINGS = ServeSettings(answer=AnswerSettings(layer="cascade"), load=LoadSettings(), trust=TrustSettings())
MOST_WAIT_S = 1.0

Ask = Callable[[str], Awaitable[bool]]
"""Answers a question; False: refused with 429."""


@dataclass
class Result:
    """Of one number of clients."""

    clients: int
    seconds: float = 0.0
    answered: int = 0
    refused: int = 0
    errors: list[str] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    server_cpu_s: float = 0.0

    def summary(self) -> dict[str, object]:
        """JSON-ready."""
        row = {key: value for key, value in asdict(self).items() if key not in ("latencies_s", "errors")}
        cuts = statistics.quantiles(self.latencies_s, n=100) if len(self.latencies_s) > 1 else [0.0] * 99
        return {
            **row,
            "answers_per_s": round(self.answered / self.seconds, 1),
            "p50_ms": round(cuts[49] * 1000),
            "p95_ms": round(cuts[94] * 1000),
            "p99_ms": round(cuts[98] * 1000),
            "cpu_ms_per_answer": round(1000 * self.server_cpu_s / max(1, self.answered), 1),
            "errors": len(self.errors),
            "first_errors": self.errors[:3],
            "memory_mb": [round(mb) for mb in self.memory_mb],
        }


class ForgetfulGenerator(FakeGenerator):
    """The fake, without the prompts it keeps for tests: they would look like a leak."""

    def stream(
        self, prompt: Prompt, settings: GenerationSettings, cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[str | Generation]:
        yield from super().stream(prompt, settings, cancelled)
        self.prompts.clear()
        self.settings.clear()


def fake_llm() -> FakeGenerator:
    """Takes LLM_S for each answer: the fake waits before each piece."""
    return ForgetfulGenerator([REPLY], delay_s=LLM_S / FakeGenerator().counter.count(REPLY))


def questions(folder: Path) -> Iterator[str]:
    """Without end, no two equal."""
    with Index.open(folder) as index:
        texts = [example.query.text for example in index.examples]
        texts = texts or [document.question for document, _ in zip(index.all_documents(), range(500), strict=False)]
    numbers = count(1)
    return (f"{text} {next(numbers)}" for text in cycle(texts))


async def client(ask: Ask, texts: Iterator[str], until: float, result: Result) -> None:
    while time.perf_counter() < until:
        started = time.perf_counter()
        try:
            answered = await ask(next(texts))
        except (httpx.HTTPError, RuntimeError, ValueError) as error:
            result.errors.append(f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.1)
            continue
        if answered:
            result.answered += 1
            result.latencies_s.append(time.perf_counter() - started)
        else:
            result.refused += 1
            await asyncio.sleep(MOST_WAIT_S)


async def watch_memory(process: psutil.Process, result: Result, every_s: float) -> None:
    while True:
        result.memory_mb.append(process.memory_info().rss / 1e6)
        await asyncio.sleep(every_s)


async def load(ask: Ask, texts: Iterator[str], n_clients: int, seconds: float, process: psutil.Process) -> Result:
    result = Result(n_clients)
    started, used_s = time.perf_counter(), sum(process.cpu_times()[:2])
    watching = asyncio.create_task(watch_memory(process, result, max(1.0, seconds / 20)))
    await asyncio.gather(*(client(ask, texts, started + seconds, result) for _ in range(n_clients)))
    watching.cancel()
    result.seconds = time.perf_counter() - started
    result.server_cpu_s = sum(process.cpu_times()[:2]) - used_s
    return result


@asynccontextmanager
async def in_process(folder: Path) -> AsyncIterator[tuple[Ask, psutil.Process]]:
    """The engine alone."""
    engine = Engine(folder, fake_llm(), SETTINGS)
    await engine.start()
    while engine.state == "loading" or engine.llm_state == "loading":
        await asyncio.sleep(0.05)
    if engine.problem:
        raise SystemExit(engine.problem)

    async def ask(question: str) -> bool:
        try:
            async with aclosing(engine.answer(Asked(question))) as events:
                async for _ in events:
                    pass
        except QueueFull:
            return False
        return True

    try:
        yield ask, psutil.Process()
    finally:
        await engine.stop()


@asynccontextmanager
async def over_http(folder: Path, clients: int) -> AsyncIterator[tuple[Ask, psutil.Process]]:
    """A server process, asked without streaming."""
    with server(folder) as (process, url):
        limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60, trust_env=False) as http:
            await _until_ready(http, process)

            async def ask(question: str) -> bool:
                response = await http.post("/v1/answer", json={"question": question})
                if response.status_code == 429:
                    return False
                if response.status_code != 200:
                    raise ValueError(f"{response.status_code} {response.text[:200]}")
                return bool(response.json()["answer"])

            yield ask, psutil.Process(process.pid)


async def _until_ready(http: httpx.AsyncClient, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            if (await http.get("/readyz")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.2)
    raise SystemExit(f"the server ended with {process.returncode}")


@contextmanager
def server(folder: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """This file with `--serve`: the real app with the fake LLM, stopped with SIGTERM as an operator would."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([sys.executable, __file__, "--serve", str(port), "--index", str(folder)], stderr=log)
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)
            log.seek(0)
            faults = [line for line in log.read().decode(errors="replace").splitlines() if '"status": 5' in line]
            print(*faults[:3], sep="\n", file=sys.stderr)


def serve(folder: Path, port: int) -> None:
    import uvicorn

    from dmnrag.service.app import create_app
    from dmnrag.service.keys import KeyRing
    from dmnrag.service.logs import configure_logs

    configure_logs(log_questions=False)
    app = create_app(Engine(folder, fake_llm(), SETTINGS), SETTINGS, KeyRing.load(None, {}))
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False, timeout_keep_alive=75)


@contextmanager
def index_of(folder: Path | None) -> Iterator[Path]:
    """The given index, or one of the bundled sample."""
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        documents, examples = load_sample("medical")
        settings = IndexSettings(dense=DenseSettings(encoder="builtin"))
        build_index(Path(temporary) / "i", documents, settings, encoder=make_encoder("builtin"), examples=examples)
        yield Path(temporary) / "i"


async def run(folder: Path, options: argparse.Namespace) -> list[Result]:
    texts, results = questions(folder), []
    running = in_process(folder) if options.in_process else over_http(folder, max(options.clients))
    async with running as (ask, process):
        await load(ask, texts, 4, 2, process)  # warm
        for n_clients in options.clients:
            results.append(await load(ask, texts, n_clients, options.seconds, process))
            print(json.dumps(results[-1].summary()), flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--in-process", action="store_true")
    parser.add_argument("--profile", action="store_true", help="of the event loop's thread, in process")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if options.serve is not None:
        serve(options.index, options.serve)
        return
    with index_of(options.index) as folder:
        profile = cProfile.Profile() if options.profile else None
        results = profile.runcall(asyncio.run, run(folder, options)) if profile else asyncio.run(run(folder, options))
        if profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    if options.json is not None:
        options.json.write_text(json.dumps([result.summary() for result in results], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
