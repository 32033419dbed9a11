"""What the page does with the engine, without a word of HTML or of the page's library: everything a visitor may do, and
in which words what goes wrong is said.

Methods are called from the engine's event loop.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from dmnrag.errors import QueryError
from dmnrag.service.events import AUTO, Asked
from dmnrag.service.faults import NotReady
from dmnrag.service.http_errors import ServiceError, is_fault, kind_of
from dmnrag.service.page_panel import Panel
from dmnrag.service.page_texts import Texts
from dmnrag.service.settings import ServeSettings
from dmnrag.service.store import AnswerUnknownError, StoreError
from dmnrag.types import Domain

if TYPE_CHECKING:
    from dmnrag.service.engine import Engine

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks, by the request of the page."""

    owner: str
    allowed: frozenset[str] | None
    """Labels of the documents that the key may see; None: all."""
    charge: Callable[[], None]
    """Counts one question against the rate. Raises `ServiceError` where it is used up."""
    request_id: str


@dataclass(frozen=True, slots=True)
class Condition:
    """How the service is."""

    words: str
    """What a visitor has to know; empty: all is well."""
    settled: bool
    """Nothing is about to change by itself."""


class Desk:
    """Serves the page in one language."""

    def __init__(
        self, engine: "Engine", settings: ServeSettings, texts: Texts, count_fault: Callable[[], None] = lambda: None
    ) -> None:
        """`count_fault` is called for each fault of the service that a visitor meets."""
        self.texts = texts
        self.settings = settings
        self._engine = engine
        self._count_fault = count_fault

    @property
    def answers(self) -> bool:
        """Whether there is an LLM at all."""
        return self._engine.llm_state != "none"

    @property
    def keeps(self) -> bool:
        """Whether votes are taken."""
        return self._engine.store is not None

    def domains(self, visitor: Visitor) -> list[Domain]:
        """Those of the index that the visitor may see."""
        return [domain for domain, _ in self._engine.domains(visitor.allowed) if domain]

    def condition(self, visitor: Visitor) -> Condition:
        """Of index and LLM."""
        engine, texts = self._engine, self.texts
        if engine.state != "ready":
            return Condition(texts.index_loading if engine.state == "loading" else texts.index_failed, False)
        words = []
        if not engine.gauges()["documents"]:
            words.append(texts.index_empty)
        elif visitor.allowed is not None and not engine.domains(visitor.allowed):
            words.append(texts.index_empty_for_key)
        llm = {"none": texts.llm_none, "loading": texts.llm_loading, "down": texts.llm_down, "ready": ""}
        words.append(llm[engine.llm_state])
        return Condition(" ".join(filter(None, words)), engine.llm_state in {"none", "ready"} and not words[:-1])

    async def ask(
        self, question: Any, choice: Any, methods: Sequence[Any], visitor: Visitor
    ) -> AsyncGenerator[Sequence[Panel], None]:
        """Answer with each of the methods at once; yields the panels, one per method, whenever one has changed.

        Closing it, or cancelling its task, stops the generation.

        Args:
            question, choice, methods: as the browser sends them, whatever that is; `choice` is a value of the list of
                domains, and an empty method the default.
            visitor: who asks.
        """
        panels = [Panel(self.texts, method if isinstance(method, str) else "") for method in methods]
        changed = asyncio.Event()
        tasks = [
            asyncio.create_task(self._fill(panel, (question, choice, method), visitor, changed))
            for panel, method in zip(panels, methods, strict=True)
        ]
        try:
            while not all(task.done() for task in tasks):
                await changed.wait()
                changed.clear()
                yield panels
            yield panels
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def search(self, question: Any, choice: Any, method: Any, visitor: Visitor) -> Panel:
        """What there is on a question; arguments as of `ask`."""
        panel = Panel(self.texts, method if isinstance(method, str) else "")
        try:
            asked = self._asked(question, choice, method, visitor)
            return Panel.of_found(await self._engine.search(asked), self.texts)
        except Exception as error:  # the top of the handler: the page's library would show nothing
            panel.problem = self._words(error, visitor)
        return panel

    async def stored(self, answer_ids: Sequence[str], visitor: Visitor) -> list[Panel]:
        """Answers that were given before."""
        panels = []
        for answer_id in answer_ids:
            try:
                found = await self._engine.stored(answer_id, visitor.owner)
                shown = found is not None and found.visible_to(visitor.allowed)
                gone = Panel(self.texts, problem=self.texts.answer_gone)
                panels.append(Panel.of_stored(found, self.texts) if found is not None and shown else gone)
            except StoreError as error:
                panels.append(Panel(self.texts, problem=self._words(error, visitor)))
        return panels

    async def vote(self, answer_id: Any, good: Any, comment: Any, visitor: Visitor) -> str:
        """Keep a vote; returns what to say. Arguments are as the browser sends them, whatever that is."""
        store, texts = self._engine.store, self.texts
        if store is None:
            return texts.vote_impossible
        try:
            visitor.charge()
            answer_id, comment = _text(answer_id), _text(comment).strip()
            await asyncio.to_thread(store.add_feedback, answer_id, visitor.owner, bool(good), comment)
        except AnswerUnknownError:
            return texts.vote_unknown
        except QueryError:
            return texts.vote_too_long
        except ServiceError as error:
            return self._words(error, visitor)
        except StoreError:
            self._count_fault()
            _logger.exception("a vote is not kept")
            return texts.vote_failed
        return texts.vote_kept

    async def _fill(self, panel: Panel, wanted: tuple[Any, Any, Any], visitor: Visitor, changed: asyncio.Event) -> None:
        try:
            async with aclosing(self._engine.answer(self._asked(*wanted, visitor))) as events:
                async for event in events:
                    panel.take(event)
                    changed.set()
        except Exception as error:  # the top of the handler: the page's library would leave a panel that never ends
            panel.problem = self._words(error, visitor)
        finally:
            changed.set()

    def _asked(self, question: Any, choice: Any, method: Any, visitor: Visitor) -> Asked:
        """The question for the engine, counted against the visitor's rate."""
        question, domain, method = _text(question), domain_of(_text(choice)), _text(method) or None
        if not question.strip():
            raise ServiceError(400, "question_empty", self.texts.question_empty)
        visitor.charge()
        return Asked(
            question,
            domain,
            method,
            allowed_domains=visitor.allowed,
            owner=visitor.owner,
            request_id=visitor.request_id,
        )

    def _words(self, error: Exception, visitor: Visitor) -> str:
        """What a visitor is told; the operator's log has the rest of what is the service's fault."""
        if is_fault(error):
            self._count_fault()
            _logger.error("request %s of the page failed", visitor.request_id, exc_info=error)
        if isinstance(error, NotReady):
            return self._not_ready(error, visitor)
        texts, code = self.texts, error.code if isinstance(error, ServiceError) else kind_of(error).code
        words = {
            "question_empty": texts.question_empty,
            "rate_limited": texts.rate_limited,
            "queue_full": texts.queue_full,
            "timeout": texts.timeout,
            "llm_failed": texts.llm_failed,
            "index_unusable": texts.index_unusable,
            "domain_unknown": texts.domain_unknown,
            "question_too_long": texts.question_too_long,
            "invalid_question": texts.invalid_question,
        }.get(code, texts.internal)
        return words.format(seconds=ceil(getattr(error, "retry_after_s", 0)), request_id=visitor.request_id)

    def _not_ready(self, error: NotReady, visitor: Visitor) -> str:
        """By what is not ready; the turn may also just not have come."""
        condition = self.condition(visitor)
        return condition.words or self.texts.busy.format(seconds=ceil(error.retry_after_s))


def _text(value: Any) -> str:
    """None is no text. Not for the page's own browser, which sends nothing else, but for who writes requests by hand.

    Raises:
        QueryError: it is no text.
    """
    if not isinstance(value, str | None):
        raise QueryError(f"{value!r} is no text")
    return value or ""


def domain_of(choice: str | None) -> str | Domain | None:
    """From a value of the list of domains; see `choice_of`."""
    if not choice or choice == AUTO:
        return AUTO
    labels = tuple(choice.split("\n"))[1:]
    return labels or None


def choice_of(domain: Domain | None) -> str:
    """A value of the list of domains: line ends separate labels, which have none. None: no domain."""
    return "\n".join(("domain", *(domain or ())))
