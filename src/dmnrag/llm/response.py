"""What a model's own chat function does to the text of an answer, for whole texts and for growing ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ResponseForm:
    """How an answer is tidied."""

    strip: bool = False
    """White space around it is taken off."""
    replaced: tuple[tuple[str, str], ...] = ()
    """(spelling, replacement)."""

    def whole(self, text: str) -> str:
        """The tidied form of a finished text."""
        text = text.strip() if self.strip else text
        for spelling, replacement in self.replaced:
            text = text.replace(spelling, replacement)
        return text

    def so_far(self, text: str) -> str:
        """As much of the tidied form as is certain, whatever comes after `text`."""
        text = text[: len(text) - begun(text, (spelling for spelling, _ in self.replaced))]
        return self.whole(text)


AS_IS = ResponseForm()
CHATGLM2 = ResponseForm(strip=True, replaced=(("[[训练时间]]", "2023年"),))
"""`process_response` of ChatGLM2-6B. It was trained with a placeholder for the date of its training."""


def response_form(tokenizer: Any) -> ResponseForm:
    """The form that goes with a tokenizer's chat template: only ChatGLM2 counts rounds like this."""
    template = str(getattr(tokenizer, "chat_template", None) or "")
    return CHATGLM2 if "[Round " in template and "问：" in template else AS_IS


def begun(text: str, spellings: Iterable[str]) -> int:
    """Length of the longest ending of `text` that is the beginning of one of the spellings, and not all of it."""
    spellings = tuple(spellings)
    longest = max((len(spelling) for spelling in spellings), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(spelling.startswith(text[-length:]) for spelling in spellings):
            return length
    return 0
