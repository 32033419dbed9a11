"""Stop strings and streaming on the level of text.

Models stop at tokens, templates at strings: a stop string may begin in the middle of a token. Everything here
sees only text, so that every back end stops and streams alike.
"""

from collections.abc import Iterable

from dmnrag.llm.response import AS_IS, ResponseForm, begun

# What decoders put in place of bytes that are not yet a whole character.
_HALF_CHARACTER = "\ufffd"


def never() -> bool:
    """The answer of a caller that does not cancel."""
    return False


def first_stop(text: str, stops: Iterable[str]) -> int | None:
    """Where the stop string begins that is complete first (of several, the longest); None where there is none.

    The end decides, not the beginning: a generation that is read as it grows stops there, in whatever steps it comes.
    """
    found = [(at + len(stop), at) for stop in stops if stop and (at := text.find(stop)) >= 0]
    return min(found)[1] if found else None


class TextStream:
    """Turns the growing text of a generation into pieces that never have to be taken back.

    Held back are half characters and endings that may become a stop string, or that the form of the answer may
    change. `text` is what was given out: the pieces joined.
    """

    def __init__(self, stops: Iterable[str] = (), form: ResponseForm = AS_IS) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._form = form
        self._whole = ""
        self.text = ""
        self.stopped = False
        """A stop string was met; nothing comes after it."""

    def feed(self, whole: str) -> str:
        """Take the whole text so far, half characters included; return the piece that is new and certain."""
        if self.stopped:
            return ""
        self._whole = whole
        at = first_stop(whole, self._stops)
        if at is not None:
            self.stopped = True
            return self._give(self._form.whole(whole[:at]))
        certain = whole.rstrip(_HALF_CHARACTER)
        certain = certain[: len(certain) - begun(certain, self._stops)]
        return self._give(self._form.so_far(certain))

    def close(self) -> str:
        """The generation is over: the piece that was held back, without half characters."""
        return "" if self.stopped else self._give(self._form.whole(self._whole.rstrip(_HALF_CHARACTER)))

    def _give(self, certain: str) -> str:
        # Decoders may rewrite the last characters once more is known; what was given out stays.
        piece = certain[len(self.text) :]
        self.text += piece
        return piece
