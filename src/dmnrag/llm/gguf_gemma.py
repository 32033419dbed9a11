"""From a GGUF file of Gemma 3 (text) to a model folder that transformers loads in seconds.

transformers can read the file itself, but takes minutes and leaves a model it refuses to save. Here the `gguf`
library reads and de-quantises, and names are mapped one to one. Weights equal those of transformers' own reader
after rounding to bfloat16; token ids are equal.
"""

from pathlib import Path
from typing import Any

import numpy as np

from dmnrag._optional import require

_LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL, _USER_DEFINED = 3, 4
"""Token types of GGUF: control tokens, and tokens matched before the merges."""

_LOCAL_ROPE_BASE = 10_000.0
"""Of the sliding-window layers; the file holds only that of the global ones."""


def convert_gemma(gguf_file: Path, folder: Path, generation_defaults: dict[str, Any]) -> None:
    """Write config, weights (safetensors, bfloat16), tokenizer and generation defaults into `folder`."""
    reader = require("gguf", "builtin").GGUFReader(str(gguf_file))
    config = _config(reader)
    config.save_pretrained(folder)
    require("transformers", "llm").GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id,
        **generation_defaults,
    ).save_pretrained(folder)  # fmt: skip
    require("safetensors.torch", "llm").save_file(
        _weights(reader), folder / "model.safetensors", metadata={"format": "pt"}
    )
    _tokenizer(reader).save_pretrained(folder)


def _value(reader: Any, key: str) -> Any:
    return reader.fields[key].contents()


def _config(reader: Any) -> Any:
    def own(key: str) -> Any:
        return _value(reader, f"gemma3.{key}")

    full, local = own("rope.freq_base"), _LOCAL_ROPE_BASE
    return require("transformers", "llm").Gemma3TextConfig(
        vocab_size=len(reader.fields["tokenizer.ggml.tokens"].data),
        hidden_size=own("embedding_length"),
        intermediate_size=own("feed_forward_length"),
        num_hidden_layers=own("block_count"),
        num_attention_heads=own("attention.head_count"),
        num_key_value_heads=own("attention.head_count_kv"),
        head_dim=own("attention.key_length"),
        query_pre_attn_scalar=own("attention.key_length"),
        max_position_embeddings=own("context_length"),
        sliding_window=own("attention.sliding_window"),
        rms_norm_eps=own("attention.layer_norm_rms_epsilon"),
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": full},
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        },
        bos_token_id=_value(reader, "tokenizer.ggml.bos_token_id"),
        eos_token_id=_value(reader, "tokenizer.ggml.eos_token_id"),
        pad_token_id=_value(reader, "tokenizer.ggml.padding_token_id"),
        tie_word_embeddings=True,
        architectures=["Gemma3ForCausalLM"],
        dtype="bfloat16",
    )


def _weights(reader: Any) -> dict[str, Any]:
    torch = require("torch", "llm")
    gguf = require("gguf", "builtin")
    weights = {}
    for tensor in reader.tensors:
        values = np.asarray(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if "norm" in tensor.name:
            values = values - 1.0  # GGUF stores 1 + weight, transformers adds the 1 itself.
        # bfloat16 rounds by 2^-9, far below the steps of 4-bit weights, and halves the file.
        weights[_weight_name(tensor.name)] = torch.from_numpy(np.array(values)).to(torch.bfloat16)
    return weights


def _weight_name(name: str) -> str:
    top = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    if name in top:
        return top[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[part]}.{kind}"


def _tokenizer(reader: Any) -> Any:
    """A BPE tokenizer with byte fallback, as Gemma's: spaces become `▁`, user-defined pieces go first."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

    types = _value(reader, "tokenizer.ggml.token_type")
    texts = _value(reader, "tokenizer.ggml.tokens")
    pieces = [t.replace(" ", "▁") if kind == _USER_DEFINED else t for t, kind in zip(texts, types, strict=True)]
    ids = {piece: i for i, piece in enumerate(pieces)}
    bos, eos, pad, unk = (
        pieces[_value(reader, f"tokenizer.ggml.{name}_token_id")] for name in ("bos", "eos", "padding", "unknown")
    )
    merges = _merges(pieces, ids, types, _value(reader, "tokenizer.ggml.scores"))
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=ids, merges=merges, unk_token=unk, fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, ids[bos])])
    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        # Runs of spaces stay with the merges: the normaliser has changed them by then.
        added = [p for p, own in zip(pieces, types, strict=True) if own == kind and "▁" not in p]
        tokens = [tokenizers.AddedToken(piece, special=special, normalized=False) for piece in added]
        backend.add_special_tokens(tokens) if special else backend.add_tokens(tokens)
    return require("transformers", "llm").PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=bos, eos_token=eos, pad_token=pad, unk_token=unk, padding_side="left",
        model_max_length=_value(reader, "gemma3.context_length"),
    )  # fmt: skip


def _merges(pieces: list[str], ids: dict[str, int], types: list[int], scores: list[float]) -> list[tuple[str, str]]:
    """Every way to make a piece of two, best pieces first: sentencepiece's order of merging."""
    merges = []
    for i, piece in enumerate(pieces):
        rank = (types[i] != _USER_DEFINED, -scores[i], i)
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                merges.append((rank, ids[left], ids[right], left, right))
    merges.sort()
    return [(left, right) for *_, left, right in merges]
