"""What LLMs think aloud before they answer, in the form `<think>…</think>`, is no part of the answer."""

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkingFilter:
    """Takes an answer in pieces and leaves out a block of thinking that it begins with.

    Tags further on are text. A block that does not end leaves nothing.
    """

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._over = False

    def feed(self, piece: str) -> str:
        """The part of the text so far that is certain, and was not given out yet."""
        if self._over:
            return piece
        self._held += piece
        if not self._inside:
            begun = self._held.lstrip()
            if begun.startswith(_OPEN):
                self._inside = True
            elif _OPEN.startswith(begun):
                return ""
            else:
                return self._release(self._held)
        _, closed, behind = self._held.partition(_CLOSE)
        if closed and behind.strip():
            return self._release(behind.lstrip())
        if not closed:  # an end tag may come in pieces
            self._held = self._held[: len(_OPEN)] + self._held[len(_OPEN) :][-len(_CLOSE) :]
        return ""

    def close(self) -> str:
        """The rest."""
        held, inside = self._held, self._inside
        self._held, self._over = "", True
        return "" if inside else held

    def _release(self, text: str) -> str:
        self._held, self._over = "", True
        return text
