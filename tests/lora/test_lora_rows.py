"""What is learnt of a row, by hand; batches and their order."""

import pytest
import torch
from lora_tiny import CHATML, make_tokenizer, quick

from dmnrag.errors import ConfigError
from dmnrag.llm.encoding import PromptEncoder
from dmnrag.training.lora_examples import LoraExample
from dmnrag.training.lora_rows import MASKED, Row, collate, encode_rows, epoch_steps, n_steps_of_epoch
from dmnrag.types import Prompt

PAD, BOS, EOS, IM_START, IM_END = 0, 1, 2, 4, 5


def example(question: str, answer: str) -> LoraExample:
    return LoraExample("d", Prompt(question), answer)


def ids_of(text: str) -> list[int]:
    return make_tokenizer()(text, add_special_tokens=False)["input_ids"]


def test_only_the_answer_and_the_end_are_learnt() -> None:
    encoder = PromptEncoder(make_tokenizer())
    rows = encode_rows([example("高血压", "多喝水"), example("感冒", "休息")], encoder, EOS, quick())
    # <s> 高 血 压 | 多 喝 水 </s>  and, padded on the left,  <pad> <pad> <s> 感 冒 | 休 息 </s>
    assert rows[0] == Row((BOS, *ids_of("高血压多喝水"), EOS), 4, cut=False)
    batch = collate(rows, PAD)
    assert batch.width == 4
    assert batch.ids.tolist() == [[BOS, *ids_of("高血压多喝水"), EOS], [PAD, PAD, BOS, *ids_of("感冒休息"), EOS]]
    assert batch.mask.tolist() == [[1] * 8, [0, 0, 1, 1, 1, 1, 1, 1]]
    assert batch.labels.tolist() == [
        [MASKED] * 4 + [*ids_of("多喝水"), EOS],
        [MASKED] * 5 + [*ids_of("休息"), EOS],
    ]


def test_with_a_chat_template_the_turn_ends_as_the_template_ends_it() -> None:
    encoder = PromptEncoder(make_tokenizer(CHATML))
    end = encoder.end_token({EOS, IM_END})
    assert end == IM_END
    (row,) = encode_rows([example("高血压", "多喝水")], encoder, end, quick())
    assert row.ids == (*encoder.encode(Prompt("高血压")), *ids_of("多喝水"), IM_END)
    assert row.ids[0] == IM_START


def test_without_a_chat_template_the_end_is_the_tokenizers() -> None:
    assert PromptEncoder(make_tokenizer()).end_token({EOS, IM_END}) == EOS
    without = make_tokenizer()
    without.eos_token = None
    assert PromptEncoder(without).end_token({7}) == 7
    with pytest.raises(ConfigError, match="no end token"):
        PromptEncoder(without).end_token(set())


def test_a_long_answer_is_cut_as_generation_cuts_it_and_has_no_end() -> None:
    encoder = PromptEncoder(make_tokenizer())
    settings = quick(answer_tokens=3)
    whole, cut = encode_rows([example("高", "多喝"), example("高", "多喝水")], encoder, EOS, settings)
    assert (whole.n_answer, whole.cut, whole.ids[-1]) == (3, False, EOS)
    assert (cut.n_answer, cut.cut) == (3, True)
    assert cut.ids[-3:] == tuple(ids_of("多喝水"))


def test_control_tokens_in_an_answer_stay_text() -> None:
    encoder = PromptEncoder(make_tokenizer())
    (row,) = encode_rows([example("高", "水</s>水")], encoder, EOS, quick())
    assert row.ids.count(EOS) == 1


def test_every_row_is_seen_once_an_epoch_in_another_order() -> None:
    rows = [Row((1,) * (5 + n % 4), 1, cut=False) for n in range(20)]
    settings = quick(batch_size=3, gradient_accumulation=2)
    first, second = (epoch_steps(rows, settings, epoch) for epoch in (0, 1))
    for steps in (first, second):
        assert sorted(place for step in steps for batch in step for place in batch) == list(range(20))
        assert [len(step) for step in steps] == [2, 2, 2, 1]  # 6 + 6 + 6 + 2 rows
        assert len(steps) == n_steps_of_epoch(20, settings)
    assert first != second
    assert first == epoch_steps(rows, settings, 0)


def test_neighbours_in_length_share_a_batch() -> None:
    rows = [Row((1,) * length, 1, cut=False) for length in (9, 3, 8, 4, 7, 5)]
    (step,) = epoch_steps(rows, quick(batch_size=3, gradient_accumulation=2), 0)
    assert [[len(rows[place].ids) for place in batch] for batch in step] == [[3, 4, 5], [7, 8, 9]]


def test_tensors_are_whole_numbers() -> None:
    assert collate([Row((1, 2), 1, cut=False)], PAD).ids.dtype == torch.long
