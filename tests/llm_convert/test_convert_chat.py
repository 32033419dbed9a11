"""Tokenizers, chat templates and answers of converted models against those of the original code."""

from dataclasses import replace
from typing import Any

import pytest
from convert_checkpoints import MODELS, Golden
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.llm import make_generator
from dmnrag.llm.control_text import control_spellings
from dmnrag.llm.encoding import PromptEncoder
from dmnrag.llm.response import CHATGLM2
from dmnrag.llm.stopping import TextStream
from dmnrag.testing.generator_contract import GeneratorContract
from dmnrag.types import Generation, GenerationSettings, Prompt

GREEDY = GenerationSettings(max_tokens=24, temperature=0.0)


def messages_of(case: dict[str, Any]) -> list[dict[str, str]]:
    """The messages of a reference case, which ChatGLM2 gives as a history and a question."""
    if "messages" in case:
        found: list[dict[str, str]] = case["messages"]
        return found
    turns = [turn for question, answer in case["history"] for turn in (("user", question), ("assistant", answer))]
    return [{"role": role, "content": text} for role, text in [*turns, ("user", case["query"])]]


def test_ids_of_texts_equal_the_originals(golden: Golden) -> None:
    tokenizer, wanted = golden.tokenizer, golden.json("tiny")
    assert len(wanted["texts"]) == 41
    for i, text in enumerate(wanted["texts"]):
        assert tokenizer(text)["input_ids"] == wanted["encode"][i], text
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == wanted["encode_no_special"][i], text
        assert tokenizer.decode(wanted["encode"][i]) == wanted["decode"][i]
        assert tokenizer.decode(wanted["encode"][i], skip_special_tokens=True) == wanted["decode_skip_special"][i]


def test_special_ids_padding_and_truncation_equal_the_originals(goldens: dict[str, Golden]) -> None:
    tokenizer, wanted = goldens["chatglm2"].tokenizer, goldens["chatglm2"].json("tiny")
    assert {token: tokenizer.convert_tokens_to_ids(token) for token in wanted["special"]} == wanted["special"]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, len(tokenizer)) == (0, 2, wanted["vocab_size"])
    assert tokenizer("问", "答")["input_ids"] == wanted["pair"]["input_ids"][0]
    prompts = [case["prompt"] for case in wanted["build_prompt"]]
    # The second round of the reference batch asks 你好.
    prompts[1] = prompts[1].replace("离婚了孩子归谁？", "你好")
    batch = tokenizer(prompts[:2], padding=True)
    assert batch["input_ids"] == wanted["batch_padded"]["input_ids"]
    assert batch["attention_mask"] == wanted["batch_padded"]["attention_mask"]


def test_special_ids_of_baichuan2_equal_the_originals(goldens: dict[str, Golden]) -> None:
    tokenizer, wanted = goldens["baichuan2"].tokenizer, goldens["baichuan2"].json("tiny")
    found = tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, len(tokenizer)
    assert found == (wanted["pad_token_id"], wanted["bos_token_id"], wanted["eos_token_id"], wanted["vocab_size"])


def test_the_chat_template_gives_the_ids_of_the_original(golden: Golden) -> None:
    kind = "build_prompt" if golden.name == "chatglm2" else "build_chat_input"
    cases = golden.json("tiny")[kind]
    # The last three of Baichuan2 are cut by the original to fit its context: by whole rounds, and in the question.
    cases = cases if golden.name == "chatglm2" else cases[:-3]
    assert len(cases) == {"chatglm2": 3, "baichuan2": 6}[golden.name]
    for case in cases:
        found = golden.tokenizer.apply_chat_template(messages_of(case), add_generation_prompt=True)["input_ids"]
        assert found == case["ids"]
        if golden.name == "chatglm2":
            assert golden.tokenizer(case["prompt"])["input_ids"] == case["ids"]


def test_a_prompt_with_its_answer_begins_with_the_prompt(golden: Golden) -> None:
    question = [{"role": "user", "content": "你好"}]
    chat = [*question, {"role": "assistant", "content": "你好，我是律师助手。"}]
    template = golden.tokenizer.apply_chat_template
    prompt = template(question, add_generation_prompt=True, tokenize=False)
    assert template(chat, tokenize=False) == prompt + "你好，我是律师助手。"


@pytest.mark.parametrize("name", MODELS)
def test_the_prompt_of_this_package_is_that_of_the_chat_template(goldens: dict[str, Golden], name: str) -> None:
    golden = goldens[name]
    encoder = PromptEncoder(golden.tokenizer)
    case = golden.json("chat_tiny")[0]
    question = messages_of(case)[-1]["content"]
    assert encoder.encode(Prompt(question)) == case["input_ids"][0]
    # ChatGLM2 has no system role: the text goes in front of the question.
    system = encoder.render(Prompt(question, system="你是一名律师。"))
    assert system.startswith(
        {"chatglm2": "[gMASK]sop[Round 1]\n\n问：你是一名律师。\n\n离", "baichuan2": "你是一名律师。<res"}[name]
    )


CONTROLS = ("[gMASK]", "sop", "eop", "[MASK]", "</s>", "<s>", "<unk>", "<reserved_106>", "<reserved_107>", "[Round 1]")
CONTROL_IDS = {"chatglm2": {0, 1, 2, *range(600, 605)}, "baichuan2": {0, 1, 2, 195, 196}}


# The last ones are what ChatGLM2's normaliser writes for the two tokens in front of a prompt.
SPELT = (*CONTROLS, "问", " ", "\n\n", "hy", "\ufdd0[gMASK]\ufdd0", "\ufdd0sop\ufdd0")


@given(parts=st.lists(st.sampled_from(SPELT), max_size=8))
@pytest.mark.parametrize("name", MODELS)
def test_control_tokens_that_a_user_spells_stay_text(goldens: dict[str, Golden], name: str, parts: list[str]) -> None:
    golden = goldens[name]
    text = "".join(parts)
    empty = golden.tokenizer.apply_chat_template([{"role": "user", "content": ""}], add_generation_prompt=True)
    wanted = [token for token in empty["input_ids"] if token in CONTROL_IDS[name]]
    assert len(wanted) == 2
    chat = [{"role": "user", "content": text}]
    stock = golden.tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    own = PromptEncoder(golden.tokenizer).encode(Prompt(text))
    for ids in (stock, own):
        assert [token for token in ids if token in CONTROL_IDS[name]] == wanted


def test_texts_outside_a_chat_keep_what_looks_like_special_tokens(goldens: dict[str, Golden]) -> None:
    tokenizer = goldens["chatglm2"].tokenizer
    for text in ("philosophy", "see sop 7", "a[gMASK]sop", "[gMASK]sop", "</s>", " [gMASK]sop[Round 1]\n\n问："):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert not CONTROL_IDS["chatglm2"] & set(ids), text
        assert tokenizer.decode(ids) == text
    assert control_spellings(tokenizer) is None


def test_wrong_turns_are_refused_by_the_template(golden: Golden) -> None:
    from jinja2 import TemplateError

    with pytest.raises(TemplateError, match="takes"):
        golden.tokenizer.apply_chat_template([{"role": "tool", "content": "x"}])


def test_greedy_chat_gives_the_tokens_of_the_original(golden: Golden) -> None:
    for case in golden.json("chat_tiny"):
        chosen = golden.tokenizer.apply_chat_template(
            messages_of(case), add_generation_prompt=True, return_tensors="pt"
        )["input_ids"]
        assert chosen.tolist() == case["input_ids"]
        found = golden.model.generate(chosen, do_sample=False, max_new_tokens=24)
        assert found[0, chosen.shape[1] :].tolist() == case["new_ids"]


def test_generation_defaults_are_the_originals(goldens: dict[str, Golden]) -> None:
    own = {name: golden.model.generation_config.to_dict() for name, golden in goldens.items()}
    wanted = {
        "chatglm2": {"do_sample": True, "temperature": 0.8, "top_p": 0.8, "top_k": 50, "eos_token_id": 2},
        "baichuan2": {
            "do_sample": True, "temperature": 0.3, "top_p": 0.85, "top_k": 5, "repetition_penalty": 1.05,
            "max_new_tokens": 2048, "user_token_id": 195, "assistant_token_id": 196, "eos_token_id": 2,
        },
    }  # fmt: skip
    for name, fields in wanted.items():
        assert {field: own[name][field] for field in fields} == fields
    # 8,192 at most; the tiny model holds 256.
    assert own["chatglm2"]["max_length"] == goldens["chatglm2"].tokenizer.model_max_length == 256


def test_process_response_equals_the_originals(goldens: dict[str, Golden]) -> None:
    pairs = goldens["chatglm2"].json("process_response")
    assert len(pairs) == 4
    for text, wanted in pairs:
        assert CHATGLM2.whole(text) == wanted


PIECES = ["[[训练时间]]", "[[训", "练时间]]", "[[", " ", "\n", "答", "：x", "停"]


@given(parts=st.lists(st.sampled_from(PIECES), max_size=8), cuts=st.lists(st.integers(0, 60), max_size=8))
def test_a_streamed_answer_is_the_processed_whole(parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts)
    stream = TextStream(("停",), CHATGLM2)
    pieces = [stream.feed(text[:cut]) for cut in [*sorted(min(cut, len(text)) for cut in cuts), len(text)]]
    pieces.append(stream.close())
    assert "".join(pieces) == stream.text == CHATGLM2.whole(text.split("停")[0])


class TestChatGLM2(GeneratorContract):
    @pytest.fixture
    def generator(self, goldens: dict[str, Golden]) -> Any:
        return opened(goldens["chatglm2"])


class TestBaichuan2(GeneratorContract):
    @pytest.fixture
    def generator(self, goldens: dict[str, Golden]) -> Any:
        return opened(goldens["baichuan2"])


_opened: dict[str, Any] = {}


def opened(golden: Golden) -> Any:
    if golden.name not in _opened:
        _opened[golden.name] = make_generator(str(golden.folder))
    return _opened[golden.name]


@pytest.mark.parametrize("penalty", [None, 1.5])
def test_left_padded_batches_and_streams_equal_one_by_one(golden: Golden, penalty: float | None) -> None:
    generator = opened(golden)
    settings = replace(GREEDY, repetition_penalty=penalty)
    prompts = [Prompt(text) for text in ("离婚了孩子归谁？", "你好", "公司拖欠工资怎么办？" * 3, "a  b\n", "😀")]
    single = [generator.generate([prompt], settings)[0] for prompt in prompts]
    assert generator.generate(prompts, settings) == single
    for prompt, whole in zip(prompts, single, strict=True):
        *pieces, last = generator.stream(prompt, settings)
        assert isinstance(last, Generation)
        assert last == whole
        assert "".join(map(str, pieces)) == whole.text
        assert not any(str(piece).endswith("\ufffd") for piece in pieces)


def test_only_answers_of_chatglm2_are_processed(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = opened(golden)
    said = " \n答[[训练时间]]完 \n"
    monkeypatch.setattr(generator, "_decode", lambda ids: said[: len(ids)])
    (answer,) = generator.generate([Prompt("你好")], GREEDY)
    *pieces, last = generator.stream(Prompt("你好"), GREEDY)
    assert answer.text == "".join(pieces) == last.text == {"chatglm2": "答2023年完", "baichuan2": said}[golden.name]
