import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from llm_tiny_models import CHATML, make_model, make_tokenizer, save_tiny

from dmnrag.errors import ConfigError, GenerationError, PromptTooLongError
from dmnrag.llm.key_value_cache import drops_rows
from dmnrag.llm.stopping import TextStream
from dmnrag.llm.transformers_lm import TransformersGenerator
from dmnrag.types import Generation, GenerationSettings, Prompt

GREEDY = GenerationSettings(max_tokens=24, temperature=0.0)
PROMPTS = [Prompt("头疼怎么办" * n + "abc"[: n % 4]) for n in (1, 9, 3, 5, 2, 7)]


def tiny(kind: str = "llama", batch_size: int = 8, **model_arguments: Any) -> TransformersGenerator:
    tokenizer = make_tokenizer()
    model = make_model(kind, vocab_size=len(tokenizer), **model_arguments)
    return TransformersGenerator(model, tokenizer, name=f"tiny-{kind}", batch_size=batch_size)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
@pytest.mark.parametrize("penalty", [None, 1.3])
def test_a_padded_batch_gives_the_texts_of_one_prompt_at_a_time(kind: str, penalty: float | None) -> None:
    generator = tiny(kind)
    settings = replace(GREEDY, repetition_penalty=penalty)
    single = [generator.generate([prompt], settings)[0] for prompt in PROMPTS]
    assert generator.generate(PROMPTS, settings) == single
    assert generator.generate(PROMPTS[::-1], settings) == single[::-1]
    assert len({answer.text for answer in single}) > 3


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_texts_that_have_ended_leave_the_batch(kind: str, temperature: float) -> None:
    generator = tiny(kind)
    settings = replace(GREEDY, temperature=temperature, seed=1, repetition_penalty=1.1)
    whole = generator.generate(PROMPTS, settings)
    # Each text ends at another place, the last one at max_tokens.
    prompts = [replace(prompt, stop=(whole[i].text[3 * i : 3 * i + 2],)) for i, prompt in enumerate(PROMPTS[:-1])]
    prompts.append(PROMPTS[-1])
    single = [generator.generate([prompt], settings)[0] for prompt in prompts]
    sizes: list[int] = []
    hook = generator.model.register_forward_hook(lambda _, __, out: sizes.append(len(out.logits)))
    assert generator.generate(prompts, settings) == single
    hook.remove()
    assert sizes[0] == len(PROMPTS)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < len(PROMPTS) / 2
    assert len(sizes) == max(answer.usage.completion_tokens for answer in single)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
@pytest.mark.parametrize("at_once", [6, 40])
def test_prompts_read_in_pieces_give_the_same_texts(kind: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = tiny(kind)
    whole = generator.generate(PROMPTS, GREEDY)
    lengths: list[int] = []
    monkeypatch.setattr("dmnrag.llm.transformers_lm._READ_AT_ONCE", at_once)
    hook = generator.model.register_forward_pre_hook(
        lambda _, __, given: lengths.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    assert generator.generate(PROMPTS, GREEDY) == whole
    hook.remove()
    assert max(lengths) == max(1, at_once // len(PROMPTS))


def test_a_model_whose_cache_holds_more_than_keys_and_values_keeps_its_rows() -> None:
    from transformers import AutoModelForCausalLM, MambaConfig

    config = MambaConfig(hidden_size=16, num_hidden_layers=1, state_size=4, vocab_size=50)
    assert not drops_rows(AutoModelForCausalLM.from_config(config))
    generator = tiny()
    assert drops_rows(generator.model)
    generator._drops_rows = False
    prompts = [replace(PROMPTS[0], stop=("的", "一", "是")), *PROMPTS[1:]]
    assert generator.generate(prompts, GREEDY) == [generator.generate([p], GREEDY)[0] for p in prompts]


def test_greedy_tokens_are_the_argmax_of_the_plain_forward_pass() -> None:
    generator = tiny()
    (answer,) = generator.generate(PROMPTS[:1], replace(GREEDY, max_tokens=6))
    model, tokenizer = generator._model, generator._tokenizer
    ids = tokenizer(PROMPTS[0].user)["input_ids"]
    n_prompt = len(ids)
    with torch.inference_mode():
        for _ in range(6):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    assert 2 not in ids[n_prompt:]
    stream = TextStream()
    for end in range(n_prompt, len(ids)):
        stream.feed(tokenizer.decode(ids[n_prompt : end + 1]))
    assert answer.text == stream.text + stream.close()
    # <s>, five ideographs outside the vocabulary of three bytes each, and one letter.
    assert answer.usage.prompt_tokens == n_prompt == 1 + 5 * 3 + 1
    assert answer.usage.completion_tokens == 6


def test_a_sampled_batch_equals_one_prompt_at_a_time_and_repeats_by_seed() -> None:
    generator = tiny()
    settings = GenerationSettings(max_tokens=16, temperature=1.5, top_k=40, top_p=0.95, seed=7)
    batch = generator.generate(PROMPTS, settings)
    assert batch == [generator.generate([prompt], settings)[0] for prompt in PROMPTS]
    assert batch != generator.generate(PROMPTS, replace(settings, seed=8))


def test_sampling_leaves_the_global_random_state_alone() -> None:
    generator = tiny()
    before = torch.random.get_rng_state()
    generator.generate(PROMPTS[:2], GenerationSettings(max_tokens=4, temperature=1.0))
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_models_own_defaults_hold_where_settings_say_none() -> None:
    generator = tiny()
    own = generator._model.generation_config
    (greedy,) = generator.generate(PROMPTS[:1], GREEDY)
    assert generator.generate(PROMPTS[:1], replace(GREEDY, temperature=None)) == [greedy]
    own.do_sample, own.temperature, own.top_k, own.max_new_tokens = True, 1.7, 0, 3
    sampled = generator.generate(PROMPTS[:1], replace(GREEDY, temperature=None, seed=1))
    assert sampled == generator.generate(PROMPTS[:1], replace(GREEDY, temperature=1.7, seed=1))
    assert sampled[0].text != greedy.text
    # max_tokens of the caller counts, not max_new_tokens of the model; temperature 0 is greedy whatever it says.
    assert generator.generate(PROMPTS[:1], GREEDY) == [greedy]
    own.repetition_penalty = 1.8
    assert generator.generate(PROMPTS[:1], GREEDY) == generator.generate(
        PROMPTS[:1], replace(GREEDY, repetition_penalty=1.8)
    )


def test_the_end_token_ends_a_text_and_is_no_part_of_it() -> None:
    generator = tiny()
    (free,) = generator.generate(PROMPTS[:1], GREEDY)
    ids = generator._tokenizer(free.text, add_special_tokens=False)["input_ids"]
    # Declare the fourth token of the text to be the end token.
    generator._end_ids = frozenset({ids[3]})
    (ended,) = generator.generate(PROMPTS[:1], GREEDY)
    assert ended.finish_reason == "stop"
    assert ended.usage.completion_tokens == ids.index(ids[3]) + 1
    assert free.text.startswith(ended.text)
    assert generator._decode([ids[3]]) not in ended.text


def test_streams_never_hold_half_a_character() -> None:
    generator = tiny()
    encoded = list("三鹿🙂a".encode())
    script = [generator._tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in encoded[:-1]]

    stream = TextStream()
    pieces = [stream.feed(generator._decode(script[:n])) for n in range(1, len(script) + 1)]
    # 三 and 鹿 are three bytes each, the face is four.
    assert pieces == ["", "", "三", "", "", "鹿", "", "", "", "🙂"]


def test_every_streamed_piece_is_whole_and_they_join_to_the_text() -> None:
    generator = tiny(seed=3)
    for prompt in PROMPTS:
        *pieces, last = generator.stream(prompt, replace(GREEDY, max_tokens=40))
        assert isinstance(last, Generation)
        assert "".join(map(str, pieces)) == last.text
        assert not last.text.endswith("\ufffd")
        assert [last] == generator.generate([prompt], replace(GREEDY, max_tokens=40))


def test_prompt_and_max_tokens_beyond_the_context_are_an_error_with_numbers() -> None:
    generator = tiny()
    assert generator.context_tokens == 512
    with pytest.raises(PromptTooLongError, match="has 501 tokens; with max_tokens 24 that exceeds the 512"):
        generator.generate([Prompt("的" * 500)], GREEDY)
    with pytest.raises(PromptTooLongError):
        generator.stream(Prompt("的" * 500), GREEDY)


def test_a_model_that_computes_nan_is_named() -> None:
    generator = tiny()
    generator._model.lm_head.weight.data.fill_(float("nan"))
    with pytest.raises(GenerationError, match="NaN"):
        generator.generate(PROMPTS[:1], GREEDY)
    with pytest.raises(GenerationError, match="NaN"):
        list(generator.stream(PROMPTS[0], GREEDY))


def test_threads_that_share_a_model_get_the_same_texts_as_alone() -> None:
    generator = tiny()
    alone = generator.generate(PROMPTS, GREEDY)
    found: dict[int, Generation] = {}

    def work(i: int) -> None:
        *_, last = generator.stream(PROMPTS[i], GREEDY)
        assert isinstance(last, Generation)
        found[i] = last

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [found[i] for i in range(len(PROMPTS))] == alone


def test_a_waiting_stream_can_be_cancelled() -> None:
    generator = tiny()
    with generator._lock:
        *pieces, last = generator.stream(PROMPTS[0], GREEDY, lambda: True)
    assert pieces == []
    assert isinstance(last, Generation)
    assert (last.text, last.finish_reason) == ("", "cancelled")


def test_a_folder_is_loaded_with_its_chat_template(tmp_path: Path) -> None:
    generator = TransformersGenerator.open(str(save_tiny(tmp_path / "model", chat_template=CHATML)))
    assert generator.name == str(tmp_path / "model")
    assert next(generator._model.parameters()).dtype == torch.float32
    assert "<|im_start|>" in generator._encoder.render(PROMPTS[0])
    assert generator.generate(PROMPTS[:1], GREEDY)[0].text


def test_a_folder_can_be_loaded_as_bfloat16(tmp_path: Path) -> None:
    generator = TransformersGenerator.open(str(save_tiny(tmp_path / "model")), dtype="bfloat16")
    assert next(generator._model.parameters()).dtype == torch.bfloat16
    assert len(generator.generate(PROMPTS, GREEDY)) == len(PROMPTS)


@pytest.mark.parametrize(("model_type", "name"), [("chatglm", "ChatGLM"), ("baichuan", "Baichuan")])
def test_checkpoints_in_their_original_layout_are_refused_with_a_reason(
    tmp_path: Path, model_type: str, name: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, "auto_map": {}}), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"{name} in its original layout.*convert the folder"):
        TransformersGenerator.open(str(tmp_path))


def test_folders_that_hold_no_usable_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json"):
        TransformersGenerator.open(str(tmp_path))
    (tmp_path / "config.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(ConfigError, match="not a model's configuration"):
        TransformersGenerator.open(str(tmp_path))
    folder = save_tiny(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        TransformersGenerator.open(str(folder))


def test_pickled_weights_are_not_loaded(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="safetensors"):
        TransformersGenerator.open(str(folder))


def test_remote_code_is_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass C: pass\n", encoding="utf-8")
    config = {"model_type": "unheard-of", "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.C"}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        TransformersGenerator.open(str(folder))
    assert not marker.exists()


def test_wrong_options_are_named() -> None:
    with pytest.raises(ConfigError, match="dtype 'fp16' is not known: allowed are auto, float32"):
        TransformersGenerator.open("x", dtype="fp16")
    with pytest.raises(ConfigError, match=r"no model folder '\./nowhere/at/all'"):
        TransformersGenerator.open("./nowhere/at/all")
    with pytest.raises(ConfigError, match="batch_size is 0"):
        tiny(batch_size=0)
