"""The page's controls, and how they change together; in terms of the page's library (gradio)."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from dmnrag.service.events import AUTO
from dmnrag.service.page_desk import Desk, Visitor, choice_of
from dmnrag.service.page_panel import Panel, joined
from dmnrag.service.page_texts import Texts
from dmnrag.types import Domain


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one answer, with its votes."""

    column: gr.Column
    panel: gr.HTML
    votes: gr.Column
    good: gr.Button
    bad: gr.Button
    comment: gr.Textbox
    send: gr.Button
    note: gr.HTML
    answer_id: gr.State
    vote: gr.State

    @property
    def parts(self) -> list[Any]:
        """All that an answer changes."""
        first = [self.column, self.panel, self.votes, self.good, self.bad]
        return [*first, self.comment, self.send, self.note, self.answer_id, self.vote]


@dataclass(frozen=True, slots=True)
class Form:
    """The controls, and how they change."""

    desk: Desk
    banner: gr.HTML
    question: gr.Textbox
    domain: gr.Dropdown
    method: gr.Dropdown
    compare: gr.Checkbox
    second: gr.Dropdown
    stop: gr.Button
    status: gr.HTML
    timer: gr.Timer
    slots: tuple[Slot, ...]

    @property
    def answers(self) -> list[Any]:
        """All that shows answers."""
        return [part for slot in self.slots for part in slot.parts]

    @property
    def outputs(self) -> list[Any]:
        """All that asking changes."""
        return [self.banner, self.stop, self.status, self.timer, *self.answers]

    def working(self, panels: Sequence[Panel], words: str, *, stoppable: bool) -> dict[Any, Any]:
        """The answers before are gone, the places of these are there."""
        return {**self.shown(panels), self.status: escape(words), **self._stop(stoppable)}

    def finished(self, panels: Sequence[Panel], words: str, visitor: Visitor) -> dict[Any, Any]:
        """What there is now, and how the service is."""
        return {**self.shown(panels), self.status: escape(words), **self._stop(False), **self.condition(visitor)}

    def _stop(self, active: bool) -> dict[Any, Any]:
        return {self.stop: gr.update(interactive=active)}

    def condition(self, visitor: Visitor) -> dict[Any, Any]:
        """How the service is."""
        now = self.desk.condition(visitor)
        banner = gr.update(value=f"<p>{escape(now.words)}</p>", visible=bool(now.words) or "hidden")
        return {self.banner: banner, self.timer: gr.update(active=not now.settled)}

    def shown(self, panels: Sequence[Panel]) -> dict[Any, Any]:
        """Panels in their places, with votes where they are whole."""
        updates: dict[Any, Any] = {}
        for number, slot in enumerate(self.slots):
            panel = panels[number] if number < len(panels) else None
            updates |= _shown(slot, panel, self.desk)
            updates[slot.column] = gr.update(visible=number == 0 or panel is not None)
        return updates


def _shown(slot: Slot, panel: Panel | None, desk: Desk) -> dict[Any, Any]:
    whole = panel is not None and bool(panel.answer_id)
    return {
        slot.panel: "" if panel is None else panel.html(),
        slot.votes: gr.update(visible=whole),
        **chosen(slot, None, desk),
        slot.comment: gr.update(visible=False, value=""),
        slot.send: gr.update(visible=False),
        slot.note: "" if desk.keeps else escape(desk.texts.vote_impossible),
        slot.answer_id: "" if panel is None else panel.answer_id,
        slot.vote: None,
    }


def chosen(slot: Slot, good: bool | None, desk: Desk) -> dict[Any, Any]:
    """The buttons of a vote; the chosen one has a mark, not only a colour."""
    updates, texts = {}, desk.texts
    for button, words, taken in ((slot.good, texts.good, good is True), (slot.bad, texts.bad, good is False)):
        value, variant = (f"\u2713 {words}", "primary") if taken else (words, "secondary")
        updates[button] = gr.update(value=value, variant=variant, visible=desk.keeps)
    return updates


def domain_choices(texts: Texts, domains: Sequence[Domain]) -> list[tuple[str, str]]:
    """What the list of domains offers: words and values."""
    fixed = [(texts.domain_auto, AUTO), (texts.domain_none, choice_of(None))]
    return fixed + [(joined(domain), choice_of(domain)) for domain in domains]
