"""Random BERT models of a few thousand weights, written as folders: what loads them cannot tell."""

from pathlib import Path
from typing import Any

CHARACTERS = "高血压头痛怎么办劳动合同吃药休息abcdefgh :。"
POSITIONS = 40


def make_tokenizer() -> Any:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *dict.fromkeys(CHARACTERS)]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=POSITIONS,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


def write_bert(folder: Path, model_class: str, **config: Any) -> Path:
    """A BERT of the given class with fixed random weights, and its tokenizer."""
    import torch
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    settings = transformers.BertConfig(
        vocab_size=60, max_position_embeddings=POSITIONS, initializer_range=0.5, **(sizes | config)
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, model_class)(settings)
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def write_encoder(folder: Path, prompts: dict[str, str], **config: Any) -> Path:
    """A sentence-transformers folder with mean pooling; `config` is of the BERT in it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    write_bert(folder / "bert", "BertModel", **config)
    transformer = Transformer(str(folder / "bert"))
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")]
    model = SentenceTransformer(modules=modules, prompts=prompts, device="cpu")
    model.save(str(folder / "model"), create_model_card=False)
    return folder / "model"
