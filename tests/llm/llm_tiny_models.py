"""Tiny random models and a character tokenizer with byte fallback, built in a moment."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    PreTrainedTokenizerFast,
)

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<think>")
CHARACTERS = (
    "abcdefghijklmnopqrstuvwxyz 的一是了我不人在他有这个上们来到时大地为子"
    "中你说生国年着就那和要她出也得里后自以会。，？：\n"
)

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WITHOUT_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
)
DROPS_SYSTEM = "{% for m in messages if m['role'] == 'user' %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def make_tokenizer(chat_template: str | None = None, *, bos: bool = True) -> Any:
    pieces = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *CHARACTERS]
    ids = {piece: i for i, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab=ids, merges=[], unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Sequence([])
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    # The last one steers a model without being called special, as `<think>` of real models.
    backend.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL[:-1]])
    backend.add_tokens([AddedToken(SPECIAL[-1], special=False, normalized=False)])
    if bos:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", ids["<s>"])])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def make_model(kind: str, *, vocab_size: int, seed: int = 0) -> Any:
    """A random model whose weights are large enough for lively texts."""
    common = {"vocab_size": vocab_size, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    sizes = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.5,
    }  # fmt: skip
    if kind == "llama":
        config: Any = LlamaConfig(**common, **sizes)
    elif kind == "gpt2":  # Absolute positions, and the end token as padding.
        config = GPT2Config(
            **{**common, "pad_token_id": 2},
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=512,
            initializer_range=0.3,
            tie_word_embeddings=False,
        )
    else:
        # A window shorter than the prompts, as in the built-in model.
        config = Gemma3TextConfig(
            **common,
            **sizes,
            head_dim=8,
            query_pre_attn_scalar=8,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
            tie_word_embeddings=False,  # Tied random embeddings only repeat the last token.
        )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
    # Never the highest score for special and byte tokens: the texts are of whole characters and do not end early.
    model.lm_head.weight.data[: len(SPECIAL) + 256] = 0.0
    return model


def save_tiny(folder: Path, kind: str = "llama", chat_template: str | None = None) -> Path:
    tokenizer = make_tokenizer(chat_template)
    make_model(kind, vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
