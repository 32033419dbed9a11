"""Baichuan2-7B-Chat as `LlamaForCausalLM`.

The one difference to Llama beside fused attention is NormHead: the rows of the output layer are normalised. That is
done once here, as the README of Baichuan2 does it ("migrating inference optimisations of Baichuan 1 to Baichuan 2").

Sources: configuration, modelling, tokenization and generation_utils of Baichuan2-7B-Chat (files of 2023-12).
"""

from typing import Any

from dmnrag._optional import require
from dmnrag.errors import ConfigError, DataError
from dmnrag.llm.convert.config_fields import ConfigFields
from dmnrag.llm.convert.fast_tokenizer import SPACE, byte_pair_backend
from dmnrag.llm.convert.recipe import Recipe, Source, Target, Weight, fused_attention
from dmnrag.llm.convert.sentencepiece_file import USER_DEFINED, PieceTable

TITLE = "Baichuan2-7B-Chat"
USER_ID, ASSISTANT_ID = 195, 196
USER, ASSISTANT = "<reserved_106>", "<reserved_107>"
"""The pieces with those ids: what begins a turn."""

_BREAK = "".join(f"|replace('{t}', '{t[0]} {t[1:]}')" for t in (USER, ASSISTANT, "<s>", "</s>", "<unk>"))
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    f"{{%- set content = message['content']{_BREAK} -%}}"
    "{%- if message['role'] == 'system' and loop.first -%}{{ content }}"
    f"{{%- elif message['role'] == 'user' -%}}{{{{ '{USER}' + content }}}}"
    f"{{%- elif message['role'] == 'assistant' -%}}{{{{ '{ASSISTANT}' + content }}}}"
    "{%- else -%}"
    "{{ raise_exception('Baichuan2 takes a system text first, then user and assistant; not ' + message['role']) }}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt and messages[-1]['role'] != 'assistant' -%}"
    f"{{{{ '{ASSISTANT}' }}}}"
    "{%- endif -%}"
)
"""`build_chat_input` of the original. A control token that a message spells gets a space, so that it stays text."""

_ROTARY_BASE = 10_000.0  # Hard-coded in the original.


def baichuan2_recipe(source: Source) -> Recipe:
    """The recipe for an original folder.

    Raises:
        ConfigError: a variant that cannot be converted; names what is different.
        DataError: a file that makes it the Chat model is missing.
    """
    config = _config(source.config)
    generation = _generation(source.generation)
    texts = source.pieces.texts
    if len(texts) != config.vocab_size or source.pieces.dummy_prefix or texts[USER_ID : ASSISTANT_ID + 1] != (
        USER, ASSISTANT,
    ):  # fmt: skip
        raise ConfigError(
            f"tokenizer.model with {len(texts)} pieces does not belong to {TITLE} with the vocab_size "
            f"{config.vocab_size} of config.json: take both from the same model"
        )
    return Recipe(
        title=TITLE,
        config=config,
        weights=original_weights(config),
        optional=frozenset(_rotary_key(n) for n in range(config.num_hidden_layers)),
        generation=generation,
        tokenizer=_tokenizer(source.pieces, config.max_position_embeddings),
    )


def _config(values: dict[str, Any]) -> Any:
    fields = ConfigFields(values, TITLE)
    if values.get("vocab_size") == 64_000 or "BaiChuanForCausalLM" in (values.get("architectures") or ()):
        raise ConfigError(f"this is Baichuan 1, whose output layer is another: only {TITLE} can be converted")
    if values.get("hidden_size") == 5120 or "max_position_embeddings" not in values:
        raise ConfigError(
            f"this is a Baichuan 13B, which has ALiBi instead of rotary positions: only {TITLE} can be converted"
        )
    fields.expect("quantization_config", (None,), meaning="a 4-bit or 8-bit checkpoint")
    fields.expect("hidden_act", ("silu",), absent=False)
    fields.expect("tie_word_embeddings", (False,))
    for name, wanted in (("pad_token_id", 0), ("bos_token_id", 1), ("eos_token_id", 2)):
        fields.expect(name, (wanted,), absent=False)
    # The loss of training, and what the original's chat() budgets with.
    fields.ignore("z_loss_weight", "model_max_length")
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    if hidden % heads:
        raise ConfigError(f"config.json: {heads} heads do not fit the hidden_size {hidden} of {TITLE}")
    config = require("transformers", "llm").LlamaConfig(
        vocab_size=fields.size("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.size("intermediate_size"),
        num_hidden_layers=fields.size("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=fields.size("max_position_embeddings"),
        rms_norm_eps=fields.number("rms_norm_eps"),
        rope_parameters={"rope_type": "default", "rope_theta": _ROTARY_BASE},
        attention_bias=False,
        mlp_bias=False,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        architectures=["LlamaForCausalLM"],
    )
    fields.finish()
    return config


def _generation(given: dict[str, Any] | None) -> dict[str, Any]:
    """The original's own defaults, role ids included: they tell Chat from Base."""
    if given is None:
        raise DataError(f"generation_config.json is missing: copy it from {TITLE}, its defaults and roles are in it")
    roles = given.get("user_token_id"), given.get("assistant_token_id")
    if roles != (USER_ID, ASSISTANT_ID):
        raise ConfigError(
            f"generation_config.json: user_token_id and assistant_token_id are {roles[0]} and {roles[1]}, those of "
            f"{TITLE} are {USER_ID} and {ASSISTANT_ID}: a Base model or another variant, which cannot be converted"
        )
    return {name: value for name, value in given.items() if name not in ("transformers_version", "_from_model_config")}


def _rotary_key(layer: int) -> str:
    return f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"


def original_weights(config: Any) -> dict[str, Weight]:
    """Where each original tensor goes, for the sizes of a stock configuration."""
    hidden, inner, vocab = config.hidden_size, config.intermediate_size, config.vocab_size
    head = hidden // config.num_attention_heads
    weights = {
        "model.embed_tokens.weight": _kept("model.embed_tokens.weight", vocab, hidden),
        "model.norm.weight": _kept("model.norm.weight", hidden),
        "lm_head.weight": Weight((vocab, hidden), (Target("lm_head.weight", unit_rows=True),)),
    }
    for n in range(config.num_hidden_layers):
        layer = f"model.layers.{n}"
        fused = Weight((3 * hidden, hidden), fused_attention(layer, (hidden, hidden, hidden)))
        weights |= {
            f"{layer}.self_attn.W_pack.weight": fused,
            _rotary_key(n): Weight((head // 2,), ()),
        }
        kept = {
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }
        names = {f"{layer}.{part}.weight": shape for part, shape in kept.items()}
        weights |= {name: _kept(name, *shape) for name, shape in names.items()}
    return weights


def _kept(name: str, *shape: int) -> Weight:
    return Weight(shape, (Target(name),))


def _tokenizer(pieces: PieceTable, max_length: int) -> Any:
    tokenizers = require("tokenizers", "llm")
    decoders, added = tokenizers.decoders, tokenizers.AddedToken
    backend = byte_pair_backend(pieces)
    backend.normalizer = tokenizers.normalizers.Replace(" ", SPACE)
    backend.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([added(text, special=True, normalized=False) for text in pieces.texts[:3]])
    # A piece with a space in it can only be found once the normaliser has rewritten the text's spaces.
    own = pieces.of_type(USER_DEFINED)
    backend.add_tokens([added(text, special=False, normalized=SPACE in text) for text in own])
    return require("transformers", "llm").PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<unk>",
        # The original pads on the right, which only training can use; batches of prompts need the left.
        padding_side="left", model_max_length=max_length, model_input_names=["input_ids", "attention_mask"],
        # Read by llama.cpp's converter.
        add_prefix_space=False, clean_up_tokenization_spaces=False, chat_template=CHAT_TEMPLATE,
    )  # fmt: skip
