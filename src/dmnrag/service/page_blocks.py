"""The page's layout, in one language; in terms of the page's library (gradio)."""

from html import escape
from typing import Any

import gradio as gr

from dmnrag.methods import METHODS
from dmnrag.service.events import AUTO
from dmnrag.service.page_desk import Desk
from dmnrag.service.page_form import Form, Slot, domain_choices
from dmnrag.service.page_presence import Presence
from dmnrag.service.page_session import SIGN_OUT
from dmnrag.service.page_texts import LANGUAGES, NAMES, TEXTS, Texts
from dmnrag.service.page_wiring import wire
from dmnrag.service.store import MAX_COMMENT_CHARACTERS

_LOOK_EVERY_S = 3.0
"""How often the page asks how the service is, while that is about to change."""
ANSWERS_AT_ONCE = 2
_PLAIN: dict[str, Any] = {"js_on_load": None, "apply_default_css": False}
"""HTML as it is, in the page's own style."""


def build(desk: Desk, presence: Presence, *, with_keys: bool) -> gr.Blocks:
    """The page."""
    texts = desk.texts
    blocks: gr.Blocks = gr.Blocks(title=texts.title, analytics_enabled=False)
    with blocks:
        gr.HTML(_head(texts, with_keys=with_keys), **_PLAIN, elem_id="head")
        banner = gr.HTML(**_PLAIN, elem_id="banner", padding=False)
        question = gr.Textbox(
            label=texts.question,
            info=texts.question_hint,
            lines=1,
            max_lines=8,
            max_length=desk.settings.trust.max_question_characters,
            autofocus=True,
            elem_id="question",
        )
        with gr.Row(elem_id="choices"):
            domain = gr.Dropdown(domain_choices(texts, ()), value=AUTO, label=texts.domain, elem_id="domain")
            method = gr.Dropdown(_method_choices(texts), value="", label=texts.method, elem_id="method")
            second = gr.Dropdown(
                _method_choices(texts)[1:],
                value=METHODS[0].name,
                label=texts.second_method,
                elem_id="second",
                visible=False,
            )
        compare = gr.Checkbox(label=texts.compare, elem_id="compare", visible=desk.answers)
        with gr.Row(elem_id="actions"):
            ask = gr.Button(texts.ask, variant="primary", elem_id="ask", visible=desk.answers)
            search = gr.Button(texts.search, variant="secondary" if desk.answers else "primary", elem_id="search")
            stop = gr.Button(texts.stop, interactive=False, elem_id="stop", visible=desk.answers)
        status = gr.HTML(**_PLAIN, elem_id="status")
        with gr.Row(elem_id="answers"):
            slots = [_slot(desk, texts, number) for number in range(ANSWERS_AT_ONCE)]
        timer = gr.Timer(_LOOK_EVERY_S, active=False)

    form = Form(desk, banner, question, domain, method, compare, second, stop, status, timer, tuple(slots))
    with blocks:
        wire(form, presence, blocks, ask, search)
    return blocks


def _slot(desk: Desk, texts: Texts, number: int) -> Slot:
    with gr.Column(min_width=280, visible=number == 0) as column:
        panel = gr.HTML(**_PLAIN, elem_id=f"panel{number}", elem_classes="panel")
        with gr.Column(visible=False, elem_id=f"votes{number}", elem_classes="votes") as votes:
            gr.HTML(f"<h3>{escape(texts.vote)}</h3>", **_PLAIN, visible=desk.keeps)
            with gr.Row():
                good = gr.Button(texts.good, size="sm", scale=0, min_width=110, elem_classes="good")
                bad = gr.Button(texts.bad, size="sm", scale=0, min_width=110, elem_classes="bad")
            comment = gr.Textbox(label=texts.comment, max_length=MAX_COMMENT_CHARACTERS, max_lines=4, visible=False)
            send = gr.Button(texts.send_comment, size="sm", scale=0, visible=False)
            note = gr.HTML(**_PLAIN, elem_classes="vote-note")
    return Slot(column, panel, votes, good, bad, comment, send, note, gr.State(""), gr.State(None))


def _method_choices(texts: Texts) -> list[tuple[str, str]]:
    return [(texts.method_default, "")] + [
        (f"{method.name}: {texts.methods[method.name]}", method.name) for method in METHODS
    ]


def _head(texts: Texts, *, with_keys: bool) -> str:
    links = []
    for language in LANGUAGES:
        current = ' aria-current="true"' if language == texts.language else ""
        lang = TEXTS[language].html_lang
        links.append(f'<a href="../{language}/" lang="{lang}" hreflang="{lang}"{current}>{NAMES[language]}</a>')
    out = ""
    if with_keys:
        button = f'<button type="submit" class="link">{escape(texts.sign_out)}</button>'
        out = f'<form method="post" action="..{SIGN_OUT}">{button}</form>'
    return (
        f'<div class="top"><h1>{escape(texts.title)}</h1>'
        f'<nav aria-label="{escape(texts.switch)}">{"".join(links)}</nav>{out}</div><p>{escape(texts.intro)}</p>'
    )
