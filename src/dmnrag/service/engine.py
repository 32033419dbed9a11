"""The engine of the service: an index, an LLM, and the one way from questions to answers. No HTTP.

    engine = Engine(folder, "openai:Qwen3-4B@http://localhost:8000/v1", ServeSettings())
    await engine.start()
    async with aclosing(engine.answer(Asked("高血压能喝酒吗？"))) as events:
        async for event in events: ...
    await engine.stop()

All methods are called from one event loop, the one that ran `start`.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from dmnrag.errors import ConfigError, DmnragError, EndpointError
from dmnrag.index import Index
from dmnrag.index.generations import current_generation
from dmnrag.llm import make_generator
from dmnrag.llm.adapters import AdapterRecord, read_record, template_with
from dmnrag.llm.factory import check_spec, split_dtype
from dmnrag.pipeline import Pipeline, default_template
from dmnrag.prompts import Template, load_template
from dmnrag.protocols import Generator
from dmnrag.refusal import EvidenceModel
from dmnrag.refusal.files import FILE_NAME as EVIDENCE_FILE
from dmnrag.service.answering import Answering, Found, OpenIndex, Parts
from dmnrag.service.audit import AuditLog
from dmnrag.service.events import Asked, Event, Finished, Started
from dmnrag.service.faults import AnswerTimeout, NotReady, QueueFull
from dmnrag.service.generating import LlmQueue
from dmnrag.service.lookup import EvidenceJudge, Looked, Wanted, look_up, visible
from dmnrag.service.notices import Notices
from dmnrag.service.prompting import Llm
from dmnrag.service.records import Records
from dmnrag.service.reloading import RETRY_S, IndexKeeper, reusable_encoders, warm
from dmnrag.service.searching import SearchBatcher
from dmnrag.service.settings import ServeSettings
from dmnrag.service.store import Store, StoredAnswer
from dmnrag.types import Domain, Generation, GenerationSettings, Layer, Prompt

__all__ = ["AnswerTimeout", "Engine", "Found", "NotReady", "QueueFull"]

_logger = logging.getLogger(__name__)

T = TypeVar("T")
State = Literal["loading", "ready", "failed"]
LlmState = Literal["none", "loading", "ready", "down"]

_SERVER_RETRIES = 1
"""A person waits: an LLM's server that fails twice is down, and the next question tries it again."""

_SERVER_SILENCE_S = 60.0
"""Longest wait for a server's next bytes, within the time of an answer."""

PROBE_EVERY_S = 10.0
"""An LLM that is down is asked for one token so often."""

PROBE_S = 10.0
"""So long it may take for that."""

_RETRY_LOADING_S, _RETRY_NEVER_S = 5.0, 60.0


@dataclass(frozen=True, slots=True)
class OpenGeneration:
    """A generation of the index with what judges its evidence."""

    pipeline: Pipeline
    judge: EvidenceJudge | None

    def close(self) -> None:
        """Let it be pruned."""
        self.pipeline.index.close()


class Engine:
    """What routes and page are given."""

    def __init__(
        self,
        folder: Path,
        llm: str | Generator | None,
        settings: ServeSettings,
        *,
        template: str | None = None,
        adapter: Path | None = None,
    ) -> None:
        """Check what can be checked without loading anything, and open store and audit log.

        Args:
            folder: of the index; it may still be missing, and is used when it is there.
            llm: its spec, or one that is loaded; None: search only.
            settings: everything an operator can set.
            template: of the prompt; None is the one that suits the LLM.
            adapter: folder of a LoRA adapter; brings its method, template, layer and k.

        Raises:
            ConfigError: an LLM, template, adapter or file of notices that cannot be.
            StoreError: the store cannot be used.
            OSError: the audit log cannot be written.
        """
        self._folder = folder
        self._settings = settings
        self._llm_given = llm
        self._adapter_folder = adapter
        self._adapter, self._template = _check(llm, template, adapter)
        self._loaded_llm: Llm | None = None
        self._llm_problem = self._index_crash = ""
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._index_thread = ThreadPoolExecutor(1, thread_name_prefix="dmnrag-index")
        self._llm_thread = ThreadPoolExecutor(1, thread_name_prefix="dmnrag-load")
        load, trust = settings.load, settings.trust
        notices = Notices.load(settings.answer.notices)
        self.store: Store | None = None if trust.store_file is None else Store.open(trust.store_file)
        audit = None if trust.audit_file is None else AuditLog.open(trust.audit_file, questions=trust.log_questions)
        self._records = Records(self.store, audit)
        self._keeper: IndexKeeper[OpenIndex] = IndexKeeper(folder, self._open_index, mark=_mark)
        self._searches: SearchBatcher[Wanted, Looked] = SearchBatcher(look_up)
        self._queue = LlmQueue(
            _concurrency(llm, load.llm_concurrency),
            load.queue,
            queue_timeout_s=load.queue_timeout_s,
            answer_timeout_s=load.answer_timeout_s,
        )
        self.observers: list[Callable[[Started, Finished], None]] = []
        """Each is told, on the event loop, of every answer that is whole."""
        self._answering = Answering(
            Parts(
                settings=settings,
                index=self._keeper,
                searches=self._searches,
                llms=self,
                queue=self._queue,
                notices=notices,
                records=self._records,
                on_finished=self._tell,
            )
        )

    async def start(self) -> None:
        """Begin to load index and LLM; returns at once."""
        self._tasks = [asyncio.create_task(self._watch_index())]
        if self._llm_given is not None:
            self._tasks.append(asyncio.create_task(self._watch_llm(self._llm_given)))

    async def drain(self) -> None:
        """Refuse new questions and finish running answers; when the grace is over, give what is there of them."""
        await self._queue.drain(self._settings.load.shutdown_grace_s)

    async def stop(self) -> None:
        """`drain`, where that was not done yet, then free everything."""
        self._stopping = True
        await self.drain()
        for task in self._tasks:
            task.cancel()
        self._searches.stop()
        self._queue.stop()
        self._answering.close()
        for pool in (self._index_thread, self._llm_thread):
            pool.shutdown(wait=False, cancel_futures=True)
        self._keeper.close()
        self._records.close()

    @property
    def state(self) -> State:
        """Of the index."""
        if self._keeper.ready:
            return "ready"
        return "failed" if self._keeper.problem or self._index_crash else "loading"

    @property
    def llm_state(self) -> LlmState:
        """Of the LLM. `down` is what the last answer found out; every question tries again, and so does a probe."""
        if self._llm_given is None:
            return "none"
        if self._llm_problem:
            return "down"
        return "loading" if self._loaded_llm is None else "ready"

    @property
    def problem(self) -> str:
        """What is wrong, in plain words, for the operator: it names files and servers. Empty where nothing is."""
        return "; ".join(problem for problem in (self._keeper.problem, self._index_crash, self._llm_problem) if problem)

    def domains(self, allowed: frozenset[str] | None = None) -> list[tuple[Domain, int]]:
        """The index's domains with their number of documents, those that a key with these labels may see."""
        opened = self._keeper.peek()
        return [] if opened is None else list(visible(opened.pipeline.index.domains, allowed).items())

    async def search(self, asked: Asked, layer: Layer | None = None) -> Found:
        """What there is on a question; needs no LLM. Errors as `Answering.search`."""
        return await self._answering.search(asked, layer)

    def answer(self, asked: Asked) -> AsyncGenerator[Event, None]:
        """The events of an answer; closing it stops the generation. Errors as `Answering.answer`."""
        return self._answering.answer(asked)

    async def stored(self, answer_id: str, owner: str) -> StoredAnswer | None:
        """An answer as it was shown to this owner: from the store, or one of the latest where there is none."""
        return await self._records.stored(answer_id, owner)

    async def forget(self, owner: str, answer_id: str | None = None) -> int:
        """Delete an owner's answer, or all of them, from wherever they are kept; how many there were.

        Raises:
            StoreError: they could not be deleted.
        """
        return await self._records.forget(owner, answer_id)

    def gauges(self) -> Mapping[str, float]:
        """What can be watched, by name."""
        opened = self._keeper.peek()
        index = None if opened is None else opened.pipeline.index
        return {
            "queue_length": self._queue.waiting,
            "running": self._queue.running,
            "answers_in_progress": self._queue.admitted,
            "searches_waiting": self._searches.waiting,
            "index_ready": float(self._keeper.ready),
            "llm_ready": float(self.llm_state == "ready"),
            "generation": 0 if index is None else index.manifest.generation,
            "documents": 0 if index is None else index.n_documents,
            "reloads": self._keeper.reloads,
            "index_problem": float(bool(self._keeper.problem or self._index_crash)),
            "store_failures": self._records.failures,
        }

    def llm(self) -> Llm:
        """The LLM, also where it did not answer the last time.

        Raises:
            NotReady: there is none, or it is still loading.
        """
        if self._loaded_llm is not None:
            return self._loaded_llm
        if self._llm_given is None:
            raise NotReady("this service has no LLM: it searches, and does not answer", _RETRY_NEVER_S)
        if self._llm_problem:
            raise NotReady("the LLM could not be loaded; the operator's log says why", _RETRY_NEVER_S)
        raise NotReady("the LLM is being loaded: ask again in a moment", _RETRY_LOADING_S)

    def report(self, problem: str) -> None:
        """How the LLM did: why it cannot be used, empty where it answered."""
        if problem != self._llm_problem:
            _logger.log(logging.ERROR if problem else logging.INFO, "LLM: %s", problem or "answers again")
        self._llm_problem = problem

    async def _watch_index(self) -> None:
        loop, every_s = asyncio.get_running_loop(), self._settings.load.reload_every_s
        while True:
            try:
                await loop.run_in_executor(self._index_thread, self._keeper.refresh)
                self._index_crash = ""
            except Exception as error:  # the top of this task, which must not end: what is open still answers
                self._index_crash = _crashed("the index", error, self._index_crash)
            if not every_s:
                return
            await asyncio.sleep(max(every_s, RETRY_S) if self._index_crash else every_s)

    def _open_index(self, former: OpenIndex | None) -> OpenIndex:
        """In the index's thread."""
        index = Index.open(self._folder)
        try:
            encoders = reusable_encoders(None if former is None else former.pipeline, index)
            pipeline = Pipeline(index, encoders=encoders)
            layer = self._settings.answer.layer or pipeline.default_layer
            warm(pipeline, layer)
            return OpenGeneration(pipeline, self._load_judge(index, layer))
        except BaseException:
            index.close()
            raise

    def _load_judge(self, index: Index, layer: Layer) -> EvidenceModel | None:
        if not self._settings.answer.refuse:
            return None
        judge, k = EvidenceModel.load(self._folder), self._settings.answer.k
        if judge is not None and not judge.covers(layer, k):
            _logger.warning(
                "nothing is refused: the evidence model is for layer %s from k = %d, and layer %s with k = %d is used; "
                "run dmnrag calibrate for that",
                *(judge.stored.layer, judge.k, layer, k),
            )
        elif judge is not None and judge.is_stale(index):
            _logger.warning("the index has changed since it was calibrated: run dmnrag calibrate again")
        return judge

    async def _watch_llm(self, given: str | Generator) -> None:
        try:
            loaded = await self._in_llm_thread(partial(self._open_llm, given))
            # A server that is not there yet must not be called ready.
            problem = await self._probe(loaded.generator) if _is_server(given) else ""
        except DmnragError as error:
            self.report(f"the LLM cannot be used: {error}")
            return
        except Exception as error:  # the top of this task: whoever waits for the LLM has to learn of it
            self.report(_crashed("the LLM", error, ""))
            return
        self.report(problem)
        self._loaded_llm = loaded
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            if self._llm_problem:
                self.report(await self._probe(loaded.generator))

    async def _probe(self, generator: Generator) -> str:
        """Why an LLM does not write one token; empty where it does.

        Who sends questions only to a ready service waits for that. A server that is silent is left after `PROBE_S`.
        """
        until = time.monotonic() + PROBE_S

        def work() -> str:
            pieces = generator.stream(
                Prompt("1"), GenerationSettings(max_tokens=1), lambda: self._stopping or time.monotonic() > until
            )
            reasons = [piece.finish_reason for piece in pieces if isinstance(piece, Generation)]
            return f"the LLM is silent for {PROBE_S:g} s" if reasons == ["cancelled"] else ""

        try:
            return await self._in_llm_thread(work)
        except EndpointError as error:
            return "" if error.answered else str(error)
        except Exception as error:  # as above
            return _crashed("the LLM", error, self._llm_problem)

    async def _in_llm_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._llm_thread, work)

    def _open_llm(self, given: str | Generator) -> Llm:
        """In the LLM's thread."""
        silence_s = min(_SERVER_SILENCE_S, self._settings.load.answer_timeout_s)
        if isinstance(given, str):
            generator = make_generator(
                given, adapter=self._adapter_folder, timeout_s=silence_s, retries=_SERVER_RETRIES
            )
        else:
            generator = given
        # A server is asked for the length of its context here, so that no question has to wait for that.
        generator.prompt_tokens(Prompt("1"))
        _ = generator.context_tokens
        return Llm(generator, self._template or default_template(generator), self._adapter)

    def _tell(self, started: Started, finished: Finished) -> None:
        for observer in self.observers:
            observer(started, finished)


def _check(
    llm: str | Generator | None, template: str | None, adapter: Path | None
) -> tuple[AdapterRecord | None, Template | None]:
    if isinstance(llm, str):
        check_spec(split_dtype(llm)[0])
    if adapter is not None and not isinstance(llm, str):
        raise ConfigError(f"adapter {adapter} is put onto an LLM and none is named: give the one it was trained on")
    record = None if adapter is None else read_record(adapter)
    return record, template_with(record, None if template is None else load_template(template))


def _crashed(what: str, error: Exception, known: str) -> str:
    """A fault that is no foreseen problem, in words; logged with its traceback where it was not `known` before."""
    words = f"{what} cannot be used ({type(error).__name__}: {error}); the log has the details"
    if words != known:
        _logger.error("%s cannot be used", what, exc_info=error)
    return words


def _is_server(llm: str | Generator) -> bool:
    return (llm if isinstance(llm, str) else llm.name).startswith("openai:")


def _mark(folder: Path) -> object:
    """Changes with every generation, and with every calibration, which is not one."""
    generation, calibrated = current_generation(folder), folder / EVIDENCE_FILE
    status = calibrated.stat() if calibrated.is_file() else None
    return generation, status and (status.st_mtime_ns, status.st_size)


def _concurrency(llm: str | Generator | None, wanted: int) -> int:
    """A model in this process computes one answer at a time; servers have queues of their own."""
    name = llm if isinstance(llm, str) else "" if llm is None else llm.name
    return wanted if name == "fake" or name.startswith("openai:") else 1
