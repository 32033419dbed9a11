"""ChatGLM2-6B as `GlmForCausalLM`.

The original's numbers are reproduced exactly in float32. In float16 and bfloat16 the stock class is the more exact
one: the original computes the angles of its rotary positions in the model's own type.

Sources: configuration, modelling and tokenization of ChatGLM2-6B (revision of 2023-09-08) and its README.
"""

import re
from typing import Any

from dmnrag._optional import require
from dmnrag.errors import ConfigError
from dmnrag.llm.convert.config_fields import ConfigFields
from dmnrag.llm.convert.fast_tokenizer import SPACE, byte_pair_backend
from dmnrag.llm.convert.recipe import Recipe, Source, Target, Weight, fused_attention
from dmnrag.llm.convert.sentencepiece_file import USER_DEFINED, PieceTable

TITLE = "ChatGLM2-6B"
SPECIAL = ("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop")
"""In the order of their ids, which follow those of the vocabulary."""

CHAT_TEMPLATE = (
    "{%- set count = namespace(round=0) -%}"
    "[gMASK]sop"
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'user' -%}"
    "{%- set count.round = count.round + 1 -%}"
    "{{ ('' if loop.first else '\\n\\n') + '[Round ' ~ count.round ~ ']\\n\\n问：' + message['content'] }}"
    "{%- elif message['role'] == 'assistant' and not loop.first -%}"
    "{{ '\\n\\n答：' + message['content'] }}"
    "{%- else -%}"
    "{{ raise_exception('ChatGLM2 takes user and assistant in turn and has no ' + message['role'] + ' here') }}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '\\n\\n答：' }}{%- endif -%}"
)
"""`build_prompt` of the original behind the two tokens that its tokenizer puts in front of every text."""

MAX_LENGTH = 8192
"""Of prompt and answer together in the original's `chat()`: the length it was trained on."""

_ROTARY_BASE = 10_000.0  # Hard-coded in the original, as is the half of each head that is rotated.
_MARK = "\ufdd0"
"""A code point that Unicode reserves for use inside programs; texts never hold it."""


def chatglm2_recipe(source: Source) -> Recipe:
    """The recipe for an original folder.

    Raises:
        ConfigError: a variant that cannot be converted; names what is different.
    """
    _refuse_relatives(source)
    config = _config(source.config)
    if len(source.pieces.texts) + len(SPECIAL) > config.vocab_size or source.pieces.of_type(USER_DEFINED):
        raise ConfigError(
            f"tokenizer.model has {len(source.pieces.texts)} pieces, which do not fit the padded_vocab_size "
            f"{config.vocab_size} of config.json: take both from the same {TITLE}"
        )
    length = min(MAX_LENGTH, config.max_position_embeddings)
    return Recipe(
        title=TITLE,
        config=config,
        weights=original_weights(config),
        optional=frozenset({"transformer.rotary_pos_emb.inv_freq"}),
        # The arguments of chat(); 50 is what transformers fills in for a top_k that is not given.
        generation={
            "do_sample": True,
            "temperature": 0.8,
            "top_p": 0.8,
            "top_k": 50,
            "max_length": length,
            "eos_token_id": config.eos_token_id,
            "pad_token_id": config.pad_token_id,
        },
        tokenizer=_tokenizer(source.pieces, length),
    )


def _refuse_relatives(source: Source) -> None:
    """Models that share the model_type and nearly all fields."""
    values = source.config
    name = str(values.get("_name_or_path", ""))
    published = re.fullmatch(r"(?:THUDM|zai-org)/(.+)", name)
    if "position_encoding_2d" in values:
        other = "ChatGLM-6B, the first of its line"
    elif "<|user|>" in source.tokenizer_code or "chatglm3" in name.lower():
        other = "ChatGLM3-6B, whose prompts are others"
    elif published and published[1] != "chatglm2-6b":
        other = published[1]
    else:
        return
    raise ConfigError(f"this is {other}: only {TITLE} and models fine-tuned from it can be converted")


def _config(values: dict[str, Any]) -> Any:
    fields = ConfigFields(values, TITLE)
    fields.expect("quantization_bit", (0, None), meaning="an int4 or int8 checkpoint")
    fields.expect("quantization_config", (None,), meaning="a quantised checkpoint")
    fields.expect("pre_seq_len", (None,), meaning="a P-tuning prefix")
    fields.expect("prefix_projection", (False,), meaning="a P-tuning prefix")
    fields.expect("rope_ratio", (1, 1.0), meaning="the 32k variant")
    for name in ("rmsnorm", "post_layer_norm", "multi_query_attention", "add_qkv_bias", "original_rope"):
        fields.expect(name, (True,), absent=False)
    for name in ("apply_residual_connection_post_layernorm", "add_bias_linear", "fp32_residual_connection"):
        fields.expect(name, (False,), absent=False)
    fields.expect("tie_word_embeddings", (False,))
    for name in ("hidden_dropout", "attention_dropout"):
        fields.expect(name, (0, 0.0))
    fields.expect("eos_token_id", (2,), absent=False)
    fields.expect("pad_token_id", (0,), absent=False)
    fields.expect("bos_token_id", (None, 1))
    fields.expect("vocab_size", (values.get("padded_vocab_size"),))
    # These choose between ways to compute the same attention, or belong to classifiers.
    fields.ignore("apply_query_key_layer_scaling", "attention_softmax_in_fp32", "bias_dropout_fusion")
    fields.ignore("classifier_dropout", "num_labels")
    hidden, heads, head = fields.size("hidden_size"), fields.size("num_attention_heads"), fields.size("kv_channels")
    groups = fields.size("multi_query_group_num")
    if heads * head != hidden or heads % groups:
        raise ConfigError(
            f"config.json: {heads} heads of {head} in {groups} groups do not fit the hidden_size {hidden} of {TITLE}"
        )
    config = require("transformers", "llm").GlmConfig(
        vocab_size=fields.size("padded_vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.size("ffn_hidden_size"),
        num_hidden_layers=fields.size("num_layers"),
        num_attention_heads=heads,
        num_key_value_heads=groups,
        head_dim=head,
        max_position_embeddings=fields.size("seq_length"),
        rms_norm_eps=fields.number("layernorm_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": _ROTARY_BASE, "partial_rotary_factor": 0.5},
        attention_bias=True,
        attention_dropout=0.0,
        tie_word_embeddings=False,
        eos_token_id=2,
        pad_token_id=0,
        bos_token_id=None,
        architectures=["GlmForCausalLM"],
    )
    fields.finish()
    return config


def original_weights(config: Any) -> dict[str, Weight]:
    """Where each original tensor goes, for the sizes of a stock configuration."""
    hidden, inner, vocab = config.hidden_size, config.intermediate_size, config.vocab_size
    rows = (hidden, *[config.num_key_value_heads * config.head_dim] * 2)
    weights = {
        "transformer.embedding.word_embeddings.weight": _plain((vocab, hidden), "model.embed_tokens.weight"),
        "transformer.encoder.final_layernorm.weight": _plain((hidden,), "model.norm.weight"),
        "transformer.output_layer.weight": _plain((vocab, hidden), "lm_head.weight"),
        "transformer.rotary_pos_emb.inv_freq": Weight((config.head_dim // 4,), ()),
    }
    for n in range(config.num_hidden_layers):
        old, new = f"transformer.encoder.layers.{n}", f"model.layers.{n}"
        attention = f"{old}.self_attention"
        weights |= {
            f"{old}.input_layernorm.weight": _plain((hidden,), f"{new}.input_layernorm.weight"),
            f"{old}.post_attention_layernorm.weight": _plain((hidden,), f"{new}.post_attention_layernorm.weight"),
            f"{attention}.query_key_value.weight": Weight((sum(rows), hidden), fused_attention(new, rows)),
            f"{attention}.query_key_value.bias": Weight((sum(rows),), fused_attention(new, rows, "bias")),
            f"{attention}.dense.weight": _plain((hidden, hidden), f"{new}.self_attn.o_proj.weight"),
            f"{old}.mlp.dense_h_to_4h.weight": _plain((2 * inner, hidden), f"{new}.mlp.gate_up_proj.weight"),
            f"{old}.mlp.dense_4h_to_h.weight": _plain((hidden, inner), f"{new}.mlp.down_proj.weight"),
        }
    return weights


def _plain(shape: tuple[int, ...], name: str) -> Weight:
    return Weight(shape, (Target(name),))


def _tokenizer(pieces: PieceTable, max_length: int) -> Any:
    tokenizers = require("tokenizers", "llm")
    decoders, normalizers, added = tokenizers.decoders, tokenizers.normalizers, tokenizers.AddedToken
    replace, regex = normalizers.Replace, tokenizers.Regex
    backend = byte_pair_backend(pieces)
    # Special tokens are never read from text (split_special_tokens below), so that `sop` in "philosophy" and
    # `[gMASK]` of a user stay text. But the two in front of the prompt of a chat template have to be, by any server
    # that knows nothing of them. So these two are marked where they begin a prompt of the template, and found by
    # the mark. Without a mark of its own a token would be found everywhere; its own text alone has to become it.
    begin, end = _MARK, _MARK + SPACE
    backend.normalizer = normalizers.Sequence([
        replace(_MARK, "\ufffd"),
        normalizers.Prepend(SPACE),
        replace(" ", SPACE),
        replace(
            regex(rf"\A{SPACE}\[gMASK\]sop(?=\[Round{SPACE}[0-9]+\]\n\n问：)"),
            f"{begin}[gMASK]{begin}{begin}sop{end}",
        ),
        replace(regex(rf"\A{SPACE}\[gMASK\]\z"), f"{begin}[gMASK]{begin}"),
        replace(regex(rf"\A{SPACE}sop\z"), f"{begin}sop{begin}"),
    ])  # fmt: skip
    backend.decoder = decoders.Sequence([
        # The original shows no special token, whether it is asked to or not. Some releases decode to the marked form.
        decoders.Replace(regex(rf"\A{_MARK}?(?:\[gMASK\]|sop){_MARK}?\z"), ""),
        decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    backend.add_special_tokens([added(text, special=True, normalized=False) for text in pieces.texts[:3]])
    for token in SPECIAL:
        marked = token in ("[gMASK]", "sop")
        backend.add_tokens([added(token, special=not marked, normalized=marked)])
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[gMASK] sop $A",
        pair="[gMASK] sop $A $B </s>",
        special_tokens=[(token, backend.token_to_id(token)) for token in ("[gMASK]", "sop", "</s>")],
    )
    return require("transformers", "llm").PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", eos_token="</s>", pad_token="<unk>",
        padding_side="left", truncation_side="right", model_max_length=max_length, split_special_tokens=True,
        model_input_names=["input_ids", "attention_mask"], clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )  # fmt: skip
