"""The LLM's pieces to an answer: grounded in the thread that generates, put together on the event loop."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dmnrag.grounding import GroundedStream, Span, citations_of
from dmnrag.protocols import Generator
from dmnrag.service.events import Delta, Unsupported
from dmnrag.types import FinishReason, Generation, GenerationSettings, Prompt, Usage

Written = Delta | Unsupported | Generation


def write(
    generator: Generator,
    prompt: Prompt,
    settings: GenerationSettings,
    grounding: GroundedStream,
    cancelled: Callable[[], bool],
) -> Iterator[Written]:
    """An answer as it is generated. In a thread; `cancelled` is asked between pieces.

    Raises:
        GenerationError: of the LLM; what was given out stays valid.
    """
    n_pieces = 0

    def over() -> bool:
        return cancelled() or grounding.withheld or n_pieces > settings.max_tokens

    for piece in generator.stream(prompt, settings, over):
        if isinstance(piece, str):
            n_pieces += 1  # of a token or more each: a server that does not keep to max_tokens is stopped
            yield from map(_event, grounding.feed(piece))
        else:
            yield from map(_event, grounding.close())
            yield replace(piece, finish_reason="length") if n_pieces > settings.max_tokens else piece


def _event(item: str | Span) -> Delta | Unsupported:
    return Delta(item) if isinstance(item, str) else Unsupported(item.start, item.end)


def merged(things: Sequence[Written]) -> Iterator[Written]:
    """The same with neighbouring deltas joined, empty ones left out."""
    text = ""
    for thing in things:
        if isinstance(thing, Delta):
            text += thing.text
            continue
        if text:
            yield Delta(text)
            text = ""
        yield thing
    if text:
        yield Delta(text)


@dataclass(slots=True)
class Draft:
    """An answer as far as it was given out."""

    text: str = ""
    unsupported: list[Unsupported] = field(default_factory=list)
    generation: Generation | None = None
    """None: the LLM was left behind before it ended."""

    def take(self, thing: Written) -> None:
        """What was, or is about to be, given out."""
        if isinstance(thing, Delta):
            self.text += thing.text
        elif isinstance(thing, Unsupported):
            self.unsupported.append(thing)
        else:
            self.generation = thing

    @property
    def citations(self) -> tuple[int, ...]:
        """Numbers in the text, in the order of their first use."""
        return citations_of(self.text)

    @property
    def usage(self) -> Usage:
        """Tokens; none where the LLM was left behind."""
        return Usage(0, 0) if self.generation is None else self.generation.usage

    def finish_reason(self, *, timed_out: bool, withheld: bool) -> FinishReason:
        """Why the answer ends. An answer whose time ran out is cut off like one that has all its tokens: `length`."""
        if withheld:
            return "stop"
        if self.generation is None:
            return "length"
        if self.generation.finish_reason == "cancelled" and timed_out:
            return "length"
        return self.generation.finish_reason
