"""A random two-layer BERT as a sentence-transformers folder, and small training sets for it."""

import random
from collections.abc import Sequence
from pathlib import Path

from dmnrag.data.exchange import DprContext, DprInstance

LETTERS = "高血压头痛怎么办劳动合同吃药休息abcdefgh"
PROMPTS = {"query": "ab: ", "document": "cd: "}


def write_encoder(folder: Path, *, normalise: bool = True, layers: int = 2) -> Path:
    """The encoder's folder; the weights are the same each time."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=layers, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=40, initializer_range=0.5,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder / "bert")
    _tokenizer().save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert")), Pooling(16, pooling_mode="mean"), *([Normalize()] * normalise)]
    model = SentenceTransformer(modules=modules, prompts=PROMPTS, device="cpu")
    model.save(str(folder / "model"), create_model_card=False)
    return folder / "model"


def _tokenizer():  # type: ignore[no-untyped-def]
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *dict.fromkeys(LETTERS + ": ")]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=40, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]",
    )  # fmt: skip


def context(text: str, title: str = "") -> DprContext:
    return DprContext(title, text, text)


def instance(
    question: str, positives: Sequence[str], negatives: Sequence[str] = (), hard: Sequence[str] = ()
) -> DprInstance:
    lists = (tuple(map(context, texts)) for texts in (positives, negatives, hard))
    return DprInstance(question, tuple(positives), *lists)


def random_instances(n: int, seed: int = 0) -> list[DprInstance]:
    """Questions and answers of random letters, with two negatives and two hard negatives each."""
    source = random.Random(seed)
    texts = ["".join(source.choices(LETTERS, k=source.randint(5, 20))) for _ in range(2 * n)]
    questions, answers = texts[:n], texts[n:]
    return [
        instance(
            questions[i],
            [answers[i]],
            [answers[(i + 1) % n], answers[(i + 2) % n]],
            [answers[(i + 3) % n], answers[(i + 4) % n]],
        )
        for i in range(n)
    ]
