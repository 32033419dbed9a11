"""From a prompt to the tokens a local model reads: chat template where there is one, plain text otherwise.

The only place that knows roles and special tokens. Models whose template has no system role get the system
text in front of the user's.
"""

from collections.abc import Collection
from typing import Any

from dmnrag.errors import ConfigError, PromptError
from dmnrag.llm.control_text import break_spellings, control_spellings
from dmnrag.types import Prompt

_FOLD = "\n\n"
"""Between system and user text where there is one role, or none."""


class PromptEncoder:
    """Encodes prompts for one Hugging Face tokenizer. Also a `TokenCounter`."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._spellings = control_spellings(tokenizer)
        self.has_chat_template = bool(getattr(tokenizer, "chat_template", None))
        self.has_system_role = self.has_chat_template and self._shows_system()

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of the prompt as the model reads it, roles and special tokens included.

        Raises:
            PromptError: the prompt is empty.
        """
        text = self.render(prompt)
        # A chat template writes every special token that it wants.
        ids = self._ids(text, add_special=not self.has_chat_template)
        if not ids:
            raise PromptError("the prompt is empty: give the model some text")
        return ids

    def render(self, prompt: Prompt) -> str:
        """The text that is encoded, control tokens of the chat template spelt out."""
        system, user = self._plain(prompt.system), self._plain(prompt.user)
        if not self.has_system_role:
            system, user = "", _FOLD.join(part for part in (system, user) if part)
        return self._chat(system, user) if self.has_chat_template else user

    def count(self, text: str) -> int:
        """Tokens of the text alone, without special tokens."""
        return len(self.encode_answer(text))

    def encode_answer(self, text: str) -> list[int]:
        """Token ids of a text behind a prompt, without special tokens."""
        return self._ids(self._plain(text), add_special=False)

    def end_token(self, end_ids: Collection[int]) -> int:
        """The token that ends an answer: of the model's end tokens the one its chat template writes, else its first.

        Raises:
            ConfigError: the model has no end token.
        """
        written = [token for token in self._ids(self._behind_answer(), add_special=False) if token in end_ids]
        own = [self._tokenizer.eos_token_id, *sorted(end_ids)]
        found = next((token for token in (*written, *own) if token is not None), None)
        if found is None:
            raise ConfigError("the model has no end token (eos_token_id), so no answer of it ever ends")
        return int(found)

    def _ids(self, text: str, *, add_special: bool) -> list[int]:
        # Not verbose: the warning about long texts is ours to give, as an error with numbers.
        encoded = self._tokenizer(text, add_special_tokens=add_special, verbose=False)
        return [int(token) for token in encoded["input_ids"]]

    def _plain(self, text: str) -> str:
        return text if self._spellings is None else break_spellings(text, self._spellings)

    def _chat(self, system: str, user: str) -> str:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": user})
        # Models that think aloud unless told not to would spend max_tokens before they answer.
        rendered: str = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return rendered

    def _behind_answer(self) -> str:
        """What the chat template writes behind the assistant's text; nothing where it has no such role."""
        from jinja2 import TemplateError

        if not self.has_chat_template:
            return ""
        messages = [{"role": "user", "content": "user-probe"}, {"role": "assistant", "content": "answer-probe"}]
        try:
            rendered: str = self._tokenizer.apply_chat_template(messages, tokenize=False)
        except TemplateError:
            return ""
        return rendered.partition("answer-probe")[2]

    def _shows_system(self) -> bool:
        """Whether the template has a system role: some refuse it, some drop it without a word."""
        from jinja2 import TemplateError

        try:
            self._chat("", "user-probe")
        except TemplateError as error:
            raise ConfigError(f"the model's chat template cannot show a user's message ({error})") from error
        try:
            return "system-probe" in self._chat("system-probe", "user-probe")
        except TemplateError:
            return False
