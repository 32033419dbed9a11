"""What every `Generator` must do, as a test class: subclass it and give a `generator` fixture.

    class TestMyBackEnd(GeneratorContract):
        @pytest.fixture
        def generator(self) -> Generator:
            return MyBackEnd()

The back end must answer `PROMPTS` deterministically at temperature 0 with at least `MIN_CHARACTERS` characters
each within `SETTINGS.max_tokens` tokens, and take more than two pieces to stream the first.
"""

from dataclasses import replace
from typing import ClassVar

import pytest

from dmnrag.protocols import Generator
from dmnrag.types import Excerpt, Generation, GenerationSettings, Prompt


def _prompt(question: str, source: str) -> Prompt:
    return Prompt(f"参考资料：{source}\n问题：{question}\n回答：", excerpts=(Excerpt(1, "d1", source),))


class GeneratorContract:
    """The contract. Class attributes may be replaced where a back end needs other prompts."""

    PROMPTS: ClassVar[tuple[Prompt, ...]] = (
        _prompt("血压高怎么办？", "先静坐五分钟再量血压，少吃盐，多走路，读数长期偏高要去门诊。"),
        _prompt("头晕", "头晕时先坐下。"),
        _prompt("合同没有签字算数吗？", "双方已经履行主要义务、对方也接受的，合同成立；保留转账记录和聊天记录。" * 2),
    )
    SETTINGS: ClassVar[GenerationSettings] = GenerationSettings(max_tokens=16, temperature=0.0)
    MIN_CHARACTERS: ClassVar[int] = 4

    @pytest.fixture
    def generator(self) -> Generator:
        """The back end under test."""
        raise NotImplementedError("a contract test needs a `generator` fixture")

    def test_it_has_a_name_and_a_context(self, generator: Generator) -> None:
        """Reports need the name, prompt building the context."""
        assert generator.name
        assert generator.context_tokens is None or generator.context_tokens > 0

    def test_an_empty_batch_gives_nothing(self, generator: Generator) -> None:
        """No prompts, no answers."""
        assert generator.generate([], self.SETTINGS) == []

    def test_a_batch_equals_one_prompt_at_a_time(self, generator: Generator) -> None:
        """Texts, reasons and usage do not depend on the neighbours in a batch."""
        batch = generator.generate(self.PROMPTS, self.SETTINGS)
        single = [generator.generate([prompt], self.SETTINGS)[0] for prompt in self.PROMPTS]
        assert batch == single
        assert all(len(answer.text) >= self.MIN_CHARACTERS for answer in batch)

    def test_the_order_of_a_batch_changes_no_answer(self, generator: Generator) -> None:
        """Answers come in the order of the prompts."""
        forward = generator.generate(self.PROMPTS, self.SETTINGS)
        backward = generator.generate(self.PROMPTS[::-1], self.SETTINGS)
        assert forward == backward[::-1]

    def test_pieces_of_a_stream_join_to_the_text_of_generate(self, generator: Generator) -> None:
        """Several pieces, none empty, then one `Generation`."""
        *pieces, last = generator.stream(self.PROMPTS[0], self.SETTINGS)
        assert isinstance(last, Generation)
        assert len(pieces) > 2
        assert all(isinstance(piece, str) and piece for piece in pieces)
        assert "".join(map(str, pieces)) == last.text
        assert last == generator.generate(self.PROMPTS[:1], self.SETTINGS)[0]

    def test_max_tokens_is_kept_and_named_as_the_reason(self, generator: Generator) -> None:
        """A shorter limit gives the beginning of the same text."""
        (short,) = generator.generate(self.PROMPTS[:1], replace(self.SETTINGS, max_tokens=2))
        (long,) = generator.generate(self.PROMPTS[:1], self.SETTINGS)
        assert short.finish_reason == "length"
        assert 1 <= short.usage.completion_tokens <= 2
        assert long.text.startswith(short.text)
        assert len(short.text) < len(long.text)

    @pytest.mark.parametrize("whose", ["caller", "template"])
    def test_a_stop_string_ends_the_text_before_it(self, generator: Generator, whose: str) -> None:
        """From the caller or the template, in a batch or a stream."""
        (whole,) = generator.generate(self.PROMPTS[:1], self.SETTINGS)
        stop = whole.text[2:4]
        prompt, settings = self.PROMPTS[0], self.SETTINGS
        if whose == "caller":
            settings = replace(settings, stop=(stop,))
        else:
            prompt = replace(prompt, stop=(stop,))
        (cut,) = generator.generate([prompt], settings)
        assert cut.text == whole.text[: whole.text.index(stop)]
        assert cut.finish_reason == "stop"
        *pieces, last = generator.stream(prompt, settings)
        assert "".join(map(str, pieces)) == cut.text
        assert isinstance(last, Generation)
        assert (last.text, last.finish_reason) == (cut.text, "stop")

    def test_a_cancelled_stream_ends_soon_with_what_it_has(self, generator: Generator) -> None:
        """What was given out is the text."""
        given: list[str] = []
        (whole,) = generator.generate(self.PROMPTS[:1], self.SETTINGS)
        last: str | Generation = ""
        for piece in generator.stream(self.PROMPTS[0], self.SETTINGS, lambda: bool(given)):
            last = piece
            if isinstance(piece, str):
                given.append(piece)
        assert isinstance(last, Generation)
        assert last.finish_reason == "cancelled"
        assert "".join(given) == last.text
        assert whole.text.startswith(last.text)
        assert len(last.text) < len(whole.text)

    def test_a_stream_that_is_left_early_leaves_the_generator_usable(self, generator: Generator) -> None:
        """Closing the iterator frees the model."""
        (before,) = generator.generate(self.PROMPTS[:1], self.SETTINGS)
        stream = generator.stream(self.PROMPTS[0], self.SETTINGS)
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert generator.generate(self.PROMPTS[:1], self.SETTINGS) == [before]

    def test_usage_counts_prompt_and_answer(self, generator: Generator) -> None:
        """Counts are above 0 and within the limit."""
        (answer,) = generator.generate(self.PROMPTS[:1], self.SETTINGS)
        assert answer.usage.prompt_tokens > 0
        assert 0 < answer.usage.completion_tokens <= self.SETTINGS.max_tokens

    def test_longer_prompts_have_more_tokens(self, generator: Generator) -> None:
        """Budgets rest on this."""
        prompt = self.PROMPTS[0]
        longer = replace(prompt, user=prompt.user + "再详细说明一下，谢谢。")
        assert 0 < generator.prompt_tokens(prompt) < generator.prompt_tokens(longer)
        assert generator.counter.count("") == 0
        assert 0 < generator.counter.count("血压") <= generator.counter.count("血压高怎么办")
