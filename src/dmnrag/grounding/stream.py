"""One answer on its way from an LLM to a client: citations in order, no secrets, unsupported sentences named."""

from collections.abc import Sequence
from dataclasses import dataclass

from dmnrag.grounding.citations import CitationFilter, citations_of
from dmnrag.grounding.guard import PromptGuard
from dmnrag.grounding.sentences import Span, SupportWatch
from dmnrag.grounding.thinking import ThinkingFilter
from dmnrag.text.characters import has_cjk
from dmnrag.types import Excerpt


class GroundedStream:
    """Takes an answer in pieces and gives out what a client may see.

    The joined output and everything that is known of it depend on the joined input alone, not on the pieces.
    Thinking aloud is left out, then the citation filter acts, so that a removed citation cannot hide a secret from the
    guard, and the sentences are judged as the client sees them. Cheap enough for an event loop; not for
    several threads at once.
    """

    def __init__(
        self, excerpts: Sequence[Excerpt], *, secret: str = "", fence: Sequence[str] = (), question: str = ""
    ) -> None:
        """Begin an answer.

        Args:
            excerpts: those of the prompt (`Prompt.excerpts`).
            secret: what must not come out in long runs, such as `Template.system_text`.
            fence: marks that must not come out at all, such as `Template.fence`.
            question: in its language a cut answer says that it was cut.
        """
        self._thinking = ThinkingFilter()
        self._citations = CitationFilter({excerpt.number for excerpt in excerpts})
        self._guard = PromptGuard(secret, fence)
        self._support = SupportWatch([excerpt.text for excerpt in excerpts])
        self._question = question
        self._text = ""
        self._unsupported: list[Span] = []

    @property
    def text(self) -> str:
        """What was given out so far."""
        return self._text

    @property
    def citations(self) -> tuple[int, ...]:
        """The numbers in `text`, in the order of their first use; each is that of an excerpt."""
        return citations_of(self._text)

    @property
    def unsupported(self) -> tuple[Span, ...]:
        """The finished sentences of `text` that no excerpt supports."""
        return tuple(self._unsupported)

    @property
    def withheld(self) -> bool:
        """The answer was cut because it gave away the prompt: the rest is dropped, and generation may be stopped."""
        return self._guard.withheld

    def feed(self, piece: str) -> list[str | Span]:
        """Take a piece of the LLM's text; return the text that may be shown now, then spans of finished sentences."""
        return [] if self.withheld else self._shown(self._guard.feed(self._citations.feed(self._thinking.feed(piece))))

    def close(self) -> list[str | Span]:
        """The answer is over: the rest of it, as `feed` returns it. Called again, it returns nothing."""
        if self.withheld:
            return []
        rest = self._citations.feed(self._thinking.close()) + self._citations.close()
        last = self._shown(self._guard.feed(rest))
        return (
            last if self.withheld else [*last, *self._shown(self._guard.close()), *self._named(self._support.close())]
        )

    def _shown(self, text: str) -> list[str | Span]:
        self._text += text
        shown: list[str | Span] = [text] if text else []
        shown += self._named(self._support.feed(text))
        if self.withheld:
            shown += self._named(self._support.close())
            notice = ("\n\n" if self._text else "") + withheld_notice(self._question)
            self._text += notice
            shown.append(notice)
        return shown

    def _named(self, spans: list[Span]) -> list[Span]:
        self._unsupported += spans
        return spans


@dataclass(frozen=True, slots=True)
class Grounded:
    """A whole answer as a client may see it."""

    text: str
    citations: tuple[int, ...]
    """Numbers in the text, in the order of their first use; each is that of an excerpt."""
    unsupported: tuple[Span, ...]
    """Sentences that no excerpt supports."""
    withheld: bool
    """The answer was cut because it gave away the prompt."""


def ground(
    text: str, excerpts: Sequence[Excerpt], *, secret: str = "", fence: Sequence[str] = (), question: str = ""
) -> Grounded:
    """A whole answer at once: what `GroundedStream` gives for it in any pieces."""
    stream = GroundedStream(excerpts, secret=secret, fence=fence, question=question)
    stream.feed(text)
    stream.close()
    return Grounded(stream.text, stream.citations, stream.unsupported, stream.withheld)


def withheld_notice(question: str) -> str:
    """What a cut answer ends with: English for a question without a Chinese character, else Chinese."""
    if question.strip() and not has_cjk(question):
        return "The rest of this answer is withheld because it would repeat internal instructions."
    return "回答的其余部分涉及内部指令，不予显示。"
