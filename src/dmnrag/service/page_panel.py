"""One answer on the page: what is known of it so far, and its HTML.

Texts of documents, people and models reach the HTML through the template engine alone, which escapes all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from dmnrag.grounding.citations import CITATION
from dmnrag.service.events import Delta, Event, Finished, Inferred, Source, Sources, Started, Unsupported
from dmnrag.service.page_texts import Texts
from dmnrag.text.characters import has_cjk
from dmnrag.types import Domain

if TYPE_CHECKING:
    from jinja2 import Template

    from dmnrag.service.answering import Found
    from dmnrag.service.store import StoredAnswer


@dataclass(frozen=True, slots=True)
class Part:
    """Text, or a citation where there is a number."""

    text: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Text that is supported or not as a whole."""

    parts: tuple[Part, ...]
    unsupported: bool


@dataclass(slots=True)
class Panel:
    """An answer, from nothing to its end; or what a search found."""

    texts: Texts
    method: str = ""
    """As chosen; empty: the default."""
    started: Started | None = None
    sources: Sources | None = None
    text: str = ""
    unsupported: list[Unsupported] = field(default_factory=list)
    finished: Finished | None = None
    problem: str = ""
    """Why there is no answer, or no more of it."""
    searched: bool = False
    """Documents alone were wanted."""

    def take(self, event: Event) -> None:
        """The next event."""
        match event:
            case Started():
                self.started = event
            case Sources():
                self.sources = event
            case Delta():
                self.text += event.text
            case Unsupported():
                self.unsupported.append(event)
            case Finished():
                self.finished = event
                self.text, self.unsupported = event.text, list(event.unsupported)

    @classmethod
    def of_stored(cls, stored: "StoredAnswer", texts: Texts) -> "Panel":
        """An answer that was given before."""
        panel = cls(texts)
        for event in (stored.started, stored.sources, stored.finished):
            panel.take(event)
        return panel

    @classmethod
    def of_found(cls, found: "Found", texts: Texts) -> "Panel":
        """Documents without an answer."""
        started = Started("", found.question, found.domain, found.inferred, found.method, "")
        return cls(texts, started=started, sources=Sources(found.sources, found.evidence), searched=True)

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self.finished is not None or bool(self.problem) or self.searched

    @property
    def answer_id(self) -> str:
        """Of a whole answer; empty before."""
        return "" if self.finished is None else self.finished.answer_id

    def html(self) -> str:
        """All of it."""
        evidence = None if self.sources is None else self.sources.evidence
        return _template().render(
            panel=self,
            t=self.texts,
            source_list=() if self.sources is None else self.sources.sources,
            evidence=evidence,
            outcome="" if self.finished is None else self.finished.outcome,
            cut_off=self.finished is not None and self.finished.finish_reason == "length",
            domain_line=self._domain_line(),
            stretches=stretches(self.text, self.unsupported, self._citable()),
            language_of=language_of,
            joined=joined,
        )

    def _citable(self) -> set[int]:
        if self.sources is None:
            return set()
        return {source.number for source in self.sources.sources if source.excerpt}

    def _domain_line(self) -> str:
        if self.started is None or not (self.started.method or self.searched):
            return ""
        texts, inferred = self.texts, self.started.inferred
        if inferred is None:
            domain = joined(self.started.domain)
            return texts.given_domain.format(domain=domain) if domain else texts.no_domain
        percent = round(inferred.probability * 100)
        if inferred.abstained:
            likely = _likely(inferred, texts)
            return texts.abstained + (f" ({likely})" if likely else "")
        return texts.inferred.format(domain=joined(inferred.domain), percent=percent)


def stretches(text: str, unsupported: Sequence[Unsupported], numbers: set[int]) -> list[Stretch]:
    """The text cut into supported and unsupported stretches, each into text and citations; joined it is the text."""
    cut, position = [], 0
    for span in sorted(unsupported, key=lambda span: span.start):
        start, end = max(span.start, position), min(span.end, len(text))
        if start < end:
            cut += [
                Stretch(_parts(text[position:start], numbers), False),
                Stretch(_parts(text[start:end], numbers), True),
            ]
            position = end
    cut.append(Stretch(_parts(text[position:], numbers), False))
    return [stretch for stretch in cut if stretch.parts]


def _parts(text: str, numbers: set[int]) -> tuple[Part, ...]:
    parts, position = [], 0
    for found in CITATION.finditer(text):
        if (number := int(found[1])) in numbers:
            parts += [Part(text[position : found.start()]), Part(found[0], number)]
            position = found.end()
    parts.append(Part(text[position:]))
    return tuple(part for part in parts if part.text)


def joined(domain: Domain) -> str:
    """Labels from general to specific, as they are shown."""
    return " / ".join(domain)


def language_of(text: str) -> str:
    """For the `lang` of a text that may be in another language than the page."""
    return "zh-CN" if has_cjk(text) else "en"


def _likely(inferred: Inferred, texts: Texts) -> str:
    best = [(joined(inferred.domain), inferred.probability)] if inferred.domain else list(inferred.alternatives[:1])
    return ", ".join(texts.likely.format(domain=name, percent=round(share * 100)) for name, share in best)


def source_title(source: Source) -> str:
    """How a source is named in a list."""
    return source.question or source.doc_id


@cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals["source_title"] = source_title
    return environment.from_string((files("dmnrag.service") / "page_panel.html").read_text(encoding="utf-8"))
