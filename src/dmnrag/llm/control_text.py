"""Keeps text of users and documents text: no spelling of a control token becomes one.

Tokenizers turn `</s>` or `<|im_end|>` in ordinary text into the token that ends a turn. The cure is the smallest
visible change: a space behind the first character (`< /s>`), only where such a spelling stands. It works for
every tokenizer and inside every chat template.
"""

import re
from collections.abc import Iterable
from typing import Any

_MARKUP = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|<\|[^<>]+\|>", re.DOTALL)
"""Added tokens spelt like this steer a model even where its tokenizer does not call them special
(`<think>`, `<reserved_107>`); others, such as runs of line breaks, are ordinary text."""

KNOWN_SPELLINGS = re.compile(
    r"<\|[^<>|\n]{1,40}\|>"  # ChatML, Llama 3, Phi, GLM-4
    r"|<｜[^<>\n]{1,40}｜>"  # DeepSeek
    r"|</?(?:s|think|tool_call|tool_response|start_of_turn|end_of_turn|bos|eos|pad|unk|mask)>"
    r"|<(?:reserved_|unused)\d{1,5}>"  # Baichuan, Gemma
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|gMASK|sMASK)\]"  # Mistral, ChatGLM
    r"|<</?SYS>>"  # Llama 2
)
"""Control spellings of common model families, for servers whose tokenizer cannot be asked."""


def break_spellings(text: str, spellings: re.Pattern[str]) -> str:
    """The text with a space behind the first character of every spelling."""
    while (changed := spellings.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)) != text:
        text = changed
    return text


def control_spellings(tokenizer: Any) -> re.Pattern[str] | None:
    """The spellings that this Hugging Face tokenizer would turn into control tokens; None when it has none."""
    spellings = {
        token.content
        for token_id, token in tokenizer.added_tokens_decoder.items()
        if (_MARKUP.fullmatch(token.content) or (token.special and not token.content.isspace()))
        and _is_read(tokenizer, token.content, token_id)
    }
    return _any_of(spelling for spelling in spellings if len(spelling) > 1)


def _is_read(tokenizer: Any, spelling: str, token_id: int) -> bool:
    """Whether the tokenizer makes the token of its spelling within a text; some never do, or only of some tokens."""
    return token_id in tokenizer(f".{spelling}.{spelling}", add_special_tokens=False, verbose=False)["input_ids"]


def _any_of(spellings: Iterable[str]) -> re.Pattern[str] | None:
    # Longest first, so that `<|end|>` is not taken for a shorter spelling inside it.
    ordered = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
    return re.compile("|".join(re.escape(spelling) for spelling in ordered)) if ordered else None
