"""What the page's controls do, in terms of the page's library (gradio). What happens behind them is `page_desk`'s."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from dmnrag.service.page_desk import Desk, Visitor
from dmnrag.service.page_form import Form, Slot, chosen, domain_choices
from dmnrag.service.page_panel import Panel
from dmnrag.service.page_presence import Presence

Updates = dict[Any, Any]
_QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "concurrency_limit": None,  # the engine has the queue
    "preprocess": False,  # values as they come: a list of domains may be older than the index
}


def wire(form: Form, presence: Presence, blocks: gr.Blocks, ask: gr.Button, search: gr.Button) -> None:
    """Connect everything; called within the blocks."""
    acts = _Acts(form, presence)
    asked = [form.question, form.domain, form.method, form.compare, form.second]
    enter, answers = form.question.submit, form.desk.answers
    asking = gr.on([enter, ask.click] if answers else [ask.click], acts.ask, asked, form.outputs, **_QUIET)
    gr.on([search.click] if answers else [enter, search.click], acts.search, asked[:3], form.outputs, **_QUIET)
    form.stop.click(acts.stop, None, [form.status, form.stop], cancels=[asking], **_QUIET)
    form.compare.change(acts.compare, [form.compare], [form.second], **_QUIET)
    looks = [form.banner, form.timer, form.domain]
    form.timer.tick(acts.look, None, looks, **_QUIET)
    blocks.load(acts.open, None, [*looks, form.question, *form.answers], **_QUIET)
    for slot in form.slots:
        votes = _Votes(form.desk, slot)
        outputs = [slot.good, slot.bad, slot.comment, slot.send, slot.note, slot.vote]
        slot.good.click(votes.good, [slot.answer_id, slot.comment], outputs, **_QUIET)
        slot.bad.click(votes.bad, [slot.answer_id, slot.comment], outputs, **_QUIET)
        slot.send.click(votes.send, [slot.vote, slot.answer_id, slot.comment], outputs, **_QUIET)


def visitor_of(request: gr.Request) -> Visitor:
    """By what the service's own middleware found out about the request."""
    assert request.request is not None
    state = request.request.state
    allowed = None if state.key is None else state.key.domains
    return Visitor(state.owner, allowed, state.charge, state.request_id)


@dataclass(frozen=True)
class _Acts:
    """Of the form. All are coroutines, so that they run in the engine's event loop."""

    form: Form
    presence: Presence

    async def ask(
        self, question: Any, domain: Any, method: Any, compare: Any, second: Any, request: gr.Request
    ) -> AsyncGenerator[Updates, None]:
        form, visitor = self.form, visitor_of(request)
        texts = form.desk.texts
        methods = [method, second] if compare else [method]
        yield form.working([Panel(texts) for _ in methods], texts.working, stoppable=True)
        panels: Sequence[Panel] = ()
        task = asyncio.current_task()
        assert task is not None
        with self.presence.watch(request.session_hash or "", task.cancel):
            async with aclosing(form.desk.ask(question, domain, methods, visitor)) as shown:
                async for panels in shown:
                    yield {slot.panel: panel.html() for slot, panel in zip(form.slots, panels, strict=False)}
        problems = [panel.problem for panel in panels if panel.problem]
        answered = any(panel.finished is not None and panel.finished.outcome == "answered" for panel in panels)
        # Of a refusal or a notice the panel says what it is.
        yield form.finished(panels, problems[0] if problems else texts.finished if answered else "", visitor)

    async def search(
        self, question: Any, domain: Any, method: Any, request: gr.Request
    ) -> AsyncGenerator[Updates, None]:
        form, visitor = self.form, visitor_of(request)
        texts = form.desk.texts
        yield form.working([], texts.searching, stoppable=False)
        panel = await form.desk.search(question, domain, method, visitor)
        n = 0 if panel.sources is None else len(panel.sources.sources)
        yield form.finished([panel], panel.problem or texts.found.format(n=n), visitor)

    async def stop(self) -> Updates:
        return {self.form.status: escape(self.form.desk.texts.stopped), self.form.stop: gr.update(interactive=False)}

    async def look(self, request: gr.Request) -> Updates:
        visitor = visitor_of(request)
        choices = domain_choices(self.form.desk.texts, self.form.desk.domains(visitor))
        return {**self.form.condition(visitor), self.form.domain: gr.update(choices=choices)}

    async def open(self, request: gr.Request) -> Updates:
        """The page is opened, perhaps on answers that were given before."""
        assert request.request is not None
        form, visitor = self.form, visitor_of(request)
        updates = await self.look(request)
        if wanted := request.request.query_params.getlist("answer")[: len(form.slots)]:
            panels = await form.desk.stored(wanted, visitor)
            updates |= form.shown(panels)
            if panels[0].started is not None:
                updates[form.question] = panels[0].started.question
        return updates

    async def compare(self, compare: bool) -> Any:
        return gr.update(visible=compare)


@dataclass(frozen=True)
class _Votes:
    """Of one answer."""

    desk: Desk
    slot: Slot

    async def good(self, answer_id: Any, comment: Any, request: gr.Request) -> Updates:
        return await self._vote(True, answer_id, comment, request)

    async def bad(self, answer_id: Any, comment: Any, request: gr.Request) -> Updates:
        return await self._vote(False, answer_id, comment, request)

    async def send(self, good: Any, answer_id: Any, comment: Any, request: gr.Request) -> Updates:
        return await self._vote(good, answer_id, comment, request)

    async def _vote(self, good: Any, answer_id: Any, comment: Any, request: gr.Request) -> Updates:
        slot = self.slot
        words = await self.desk.vote(answer_id, good, comment, visitor_of(request))
        if words != self.desk.texts.vote_kept:
            return {slot.note: escape(words)}
        more = {part: gr.update(visible=True) for part in (slot.comment, slot.send)}
        return {**chosen(slot, good, self.desk), **more, slot.note: escape(words), slot.vote: good}
