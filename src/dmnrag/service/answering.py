"""The one way from a question to an answer: API, chat and page show the events that come out here and add nothing.

Checks, notices, the follow-up made whole, a place in the queue, domain and documents (`lookup`), evidence, the prompt,
the LLM (`generating`), grounding (`writing`), records. Runs on the event loop and does nothing slow there: searching,
prompts, the LLM and the disk each have threads of their own, so none of them waits for another.

What fails before the first event is raised by the first `anext`, so that the client gets its status: searching and the
prompt come before it, the LLM after.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Protocol
from uuid import uuid4

from dmnrag.errors import EndpointError, GenerationError
from dmnrag.grounding import GroundedStream
from dmnrag.pipeline import Pipeline
from dmnrag.refusal import nothing_found_text, refusal_text
from dmnrag.service.checking import checked
from dmnrag.service.events import (
    Asked,
    Delta,
    Event,
    Evidence,
    Finished,
    Inferred,
    Outcome,
    Source,
    Sources,
    Started,
)
from dmnrag.service.faults import AnswerTimeout
from dmnrag.service.followup import earlier_questions, whole_question
from dmnrag.service.generating import LlmQueue
from dmnrag.service.lookup import EvidenceJudge, Looked, Wanted
from dmnrag.service.notices import Notice, Notices
from dmnrag.service.prompting import Llm, make_prompt, sources_of
from dmnrag.service.records import Records
from dmnrag.service.reloading import IndexKeeper
from dmnrag.service.searching import SearchBatcher
from dmnrag.service.settings import ServeSettings
from dmnrag.service.writing import Draft, merged, write
from dmnrag.types import Domain, FinishReason, GenerationSettings, Layer, Prompt


class OpenIndex(Protocol):
    """What the service has open of an index."""

    @property
    def pipeline(self) -> Pipeline:
        """For searching."""

    @property
    def judge(self) -> EvidenceJudge | None:
        """None: not calibrated."""

    def close(self) -> None:
        """Free it."""


class LlmHolder(Protocol):
    """Where the LLM comes from, and who is told how it does."""

    def llm(self) -> Llm:
        """The LLM. Raises `NotReady` where there is none."""

    def report(self, problem: str) -> None:
        """The outcome of an answer: why the LLM cannot be used, empty where it answered."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search without an answer tells."""

    question: str
    domain: Domain
    inferred: Inferred | None
    method: str
    layer: Layer
    sources: tuple[Source, ...]
    """Best first, without excerpts."""
    evidence: Evidence | None
    timings_ms: dict[str, float]


@dataclass(frozen=True, slots=True)
class Parts:
    """What answering needs."""

    settings: ServeSettings
    index: IndexKeeper[OpenIndex]
    searches: SearchBatcher[Wanted, Looked]
    llms: LlmHolder
    queue: LlmQueue
    notices: Notices
    records: Records
    on_finished: Callable[[Started, Finished], None]
    """Told of every whole answer."""
    today: Callable[[], date] = date.today
    clock: Callable[[], float] = time.perf_counter


@dataclass(slots=True)
class _Clock:
    """Names what each stretch of time went into."""

    clock: Callable[[], float]
    began: float = 0.0
    last: float = 0.0
    timings_ms: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = self.last = self.clock()

    def stop(self, name: str) -> None:
        now = self.clock()
        self.timings_ms[name] = (now - self.last) * 1000
        self.last = now

    def total(self) -> dict[str, float]:
        return {**self.timings_ms, "total": (self.clock() - self.began) * 1000}


@dataclass(frozen=True, slots=True)
class _Ask:
    """What the LLM is asked, and what its answer is held against."""

    prompt: Prompt
    grounding: GroundedStream


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A question on its way to the LLM."""

    asked: Asked
    started: Started
    sources: Sources
    generation: int | None
    """Of the index."""
    ask: "_Ask | None"
    """None: there is not enough to answer from."""
    llm: Llm
    clock: _Clock


class Answering:
    """Answers and searches."""

    def __init__(self, parts: Parts) -> None:
        """The parts are the caller's, who also stops them."""
        self._parts = parts
        self._prompts = ThreadPoolExecutor(1, thread_name_prefix="dmnrag-prompt")

    def close(self) -> None:
        """No more prompts."""
        self._prompts.shutdown(wait=False)

    async def search(self, asked: Asked, layer: Layer | None = None) -> Found:
        """What there is on a question.

        Raises:
            QueryError: it cannot be searched for.
            NotReady: the index is not there yet, or the service stops.
            AnswerTimeout, QueueFull: the machine has too much to do.
            IndexFolderError, ClusterError: the index has become unusable.
        """
        parts = self._parts
        asked = checked(asked, parts.settings)
        clock = _Clock(parts.clock)
        with parts.index.use() as opened:
            wanted = self._wanted(asked, opened, None, layer)
            looked = await parts.searches.search(wanted, parts.settings.load.search_timeout_s)
        clock.stop("search")
        return Found(
            question=looked.query.text,
            domain=looked.query.domain,
            inferred=looked.inferred,
            method=looked.method.name,
            layer=wanted.layer,
            sources=self._sources(looked, None).sources,
            evidence=looked.evidence,
            timings_ms=clock.total(),
        )

    async def answer(self, asked: Asked) -> AsyncGenerator[Event, None]:
        """The events of an answer, in the order that `events` tells. Closing it stops the generation.

        Raises:
            QueryError, PromptTooLongError: the question cannot be answered as it is.
            QueueFull, NotReady: not now.
            AnswerTimeout: the search took too long, or the LLM wrote nothing in its time.
            GenerationError: of the LLM, mostly after the first events.
            IndexFolderError, ClusterError: the index has become unusable.
            OSError: the audit log cannot be written.
        """
        asked = checked(asked, self._parts.settings)
        notice = self._parts.notices.match(asked.question)
        if notice is not None:
            async for event in self._notice(asked, notice):
                yield event
            return
        llm = self._parts.llms.llm()
        with self._parts.queue.place():
            ready = await self._prepare(asked, llm)
            await self._parts.records.give(asked, ready.started, ready.sources)
            yield ready.started
            yield ready.sources
            if ready.ask is None:
                text = _refusal(ready.started.question, ready.sources.evidence)
                yield Delta(text)
                yield await self._finish(ready, Draft(text), "refused", "stop")
                return
            generating = self._generate(ready, ready.ask)
            try:
                async for event in generating:
                    yield event
            finally:
                await generating.aclose()

    async def _notice(self, asked: Asked, notice: Notice) -> AsyncGenerator[Event, None]:
        started = Started(_new_id(), asked.question, (), None, "", "")
        sources = Sources(())
        finished = Finished(started.answer_id, notice.text, "notice", "stop", ())
        yield started
        yield sources
        yield Delta(notice.text)
        await self._parts.records.keep(asked, started, sources, finished, None)
        self._parts.on_finished(started, finished)
        yield finished

    async def _prepare(self, asked: Asked, llm: Llm) -> _Prepared:
        parts = self._parts
        clock = _Clock(parts.clock)
        with parts.index.use() as opened:
            wanted = self._wanted(asked, opened, llm, None)
            looked = await parts.searches.search(wanted, parts.settings.load.search_timeout_s)
            generation = opened.pipeline.index.manifest.generation
        clock.stop("search")
        ask = None
        if self._enough(looked):
            ask = await asyncio.get_running_loop().run_in_executor(
                self._prompts, partial(self._ask, looked, llm, asked)
            )
            clock.stop("prompt")
        name = llm.generator.name
        query, method = looked.query, looked.method.name
        started = Started(_new_id(), query.text, query.domain, looked.inferred, method, name)
        sources = self._sources(looked, None if ask is None else ask.prompt)
        return _Prepared(asked, started, sources, generation, ask, llm, clock)

    def _wanted(self, asked: Asked, opened: OpenIndex, llm: Llm | None, layer: Layer | None) -> Wanted:
        settings = self._parts.settings
        adapter = None if llm is None else llm.adapter
        trained = {} if adapter is None else adapter.retrieval
        earlier = earlier_questions(asked.history)
        return Wanted(
            pipeline=opened.pipeline,
            judge=opened.judge if settings.answer.refuse else None,
            question=whole_question(asked.question, asked.history, settings.trust.max_question_characters),
            earlier=tuple(earlier),
            domain=asked.domain,
            method=asked.method,
            layer=layer or trained.get("layer") or settings.answer.layer or opened.pipeline.default_layer,
            k=asked.k or int(trained.get("k", settings.answer.k)),
            adapter=adapter,
            allowed=asked.allowed_domains,
        )

    def _enough(self, looked: Looked) -> bool:
        return bool(looked.hits) and (looked.evidence is None or looked.evidence.enough)

    def _ask(self, looked: Looked, llm: Llm, asked: Asked) -> _Ask:
        """In the prompts' thread."""
        template = llm.template
        prompt = make_prompt(looked, llm, _max_tokens(asked, llm), self._parts.settings.answer.mask)
        grounding = GroundedStream(
            prompt.excerpts, secret=template.system_text, fence=template.fence, question=looked.query.text
        )
        return _Ask(prompt, grounding)

    def _sources(self, looked: Looked, prompt: Prompt | None) -> Sources:
        excerpts = () if prompt is None else prompt.excerpts
        column = self._parts.settings.answer.valid_until_column
        return Sources(sources_of(looked, excerpts, column, self._parts.today()), looked.evidence)

    async def _generate(self, ready: _Prepared, ask: _Ask) -> AsyncGenerator[Event, None]:
        parts, llm, draft, grounding = self._parts, ready.llm, Draft(), ask.grounding
        settings = GenerationSettings(max_tokens=_max_tokens(ready.asked, llm), temperature=ready.asked.temperature)
        async with parts.queue.run(partial(write, llm.generator, ask.prompt, settings, grounding)) as running:
            ready.clock.stop("queue")
            try:
                while things := await running.take():
                    for thing in merged(things):
                        draft.take(thing)
                        if isinstance(thing, Event):
                            yield thing
            except EndpointError as error:
                if not error.answered:
                    parts.llms.report(str(error))
                raise
            timed_out = running.timed_out
        ready.clock.stop("generation")
        if timed_out and not draft.text.strip():
            problem = f"the LLM wrote nothing within {parts.settings.load.answer_timeout_s:g} s: ask again later"
            parts.llms.report(problem)
            raise AnswerTimeout(problem)
        parts.llms.report("")
        if not draft.text.strip():
            raise GenerationError("the LLM wrote nothing that is an answer: ask again, or in other words")
        reason = draft.finish_reason(timed_out=timed_out, withheld=grounding.withheld)
        yield await self._finish(ready, draft, "withheld" if grounding.withheld else "answered", reason)

    async def _finish(self, ready: _Prepared, draft: Draft, outcome: Outcome, reason: FinishReason) -> Finished:
        finished = Finished(
            answer_id=ready.started.answer_id,
            text=draft.text,
            outcome=outcome,
            finish_reason=reason,
            citations=draft.citations if outcome != "refused" else (),
            unsupported=tuple(draft.unsupported),
            usage=draft.usage,
            timings_ms=ready.clock.total(),
        )
        await self._parts.records.keep(ready.asked, ready.started, ready.sources, finished, ready.generation)
        self._parts.on_finished(ready.started, finished)
        return finished


def _max_tokens(asked: Asked, llm: Llm) -> int:
    """As asked, within the operator's limit, and an adapter's: its prompts were cut to leave that much."""
    assert asked.max_tokens is not None  # since it was checked
    return asked.max_tokens if llm.adapter is None else min(asked.max_tokens, llm.adapter.answer_tokens)


def _refusal(question: str, evidence: Evidence | None) -> str:
    return (
        nothing_found_text(question) if evidence is None else refusal_text(question, evidence.score, evidence.threshold)
    )


def _new_id() -> str:
    return uuid4().hex
