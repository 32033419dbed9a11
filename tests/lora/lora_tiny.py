"""A random two-layer Llama with a character tokenizer, and a small index of questions with re-posts."""

from pathlib import Path
from typing import Any

from dmnrag.index import IndexSettings, build_index
from dmnrag.llm.base_model import LocalModel, open_local
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.training.lora_finetune import FinetunePlan
from dmnrag.training.lora_settings import LoraSettings
from dmnrag.types import Document, Example, Query

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

ILLNESSES = (
    "高血压", "糖尿病", "感冒发烧", "胃溃疡", "偏头痛", "失眠多梦", "过敏鼻炎", "腰间盘突出", "慢性咽炎", "湿疹瘙痒",
    "贫血头晕", "痛风关节",
)  # fmt: skip
DOMAINS = (("内科", "心血管内科"), ("儿科",))
TREATMENTS = ("按时服药多喝水", "清淡饮食少吃盐", "注意休息别熬夜", "尽快去医院检查")


def documents() -> list[Document]:
    """24 questions, each with its own answer; d24 posts d0 again, d25 has the answer of d1; d26 and d27 share a
    stock answer, too short to make them re-posts."""
    rows = [
        Document(
            f"d{n}",
            f"{illness}{('怎么办', '能喝酒吗')[part]}",
            (f"{illness}的人{TREATMENTS[(n + part) % 4]}，{('慢慢会好', '最好不要喝酒')[part]}，第{n}号医生说。",),
            DOMAINS[n % 2],
        )
        for part in (0, 1)
        for n, illness in enumerate(ILLNESSES, start=12 * part)
    ]
    rows.append(Document("d24", "请问高血压怎么办", (rows[0].answers[0].replace("说", "讲"),), rows[0].domain))
    rows.append(Document("d25", "血糖高了要注意什么呢", rows[1].answers, rows[1].domain))
    rows.append(Document("d26", "头发掉得多怎么办", (STOCK,), DOMAINS[0]))
    rows.append(Document("d27", "头皮屑多又掉头发怎么办", (STOCK,), DOMAINS[0]))
    return rows


STOCK = "去皮肤科看看。"

EXAMPLE = Example(Query("t1", "嗓子疼能喝酒吗", ("儿科",)), ("嗓子疼的时候别喝酒，多喝热水。",), (), "t1")


def make_index(folder: Path) -> Path:
    """An index with one layer and one held-out question."""
    build_index(folder, documents(), IndexSettings(), examples=[EXAMPLE])
    return folder


def make_tokenizer(chat_template: str | None = None) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    from dmnrag.prompts import load_template

    template = load_template("paper")
    texts = [d.question + d.answers[0] + "".join(d.domain) for d in documents()]
    known = dict.fromkeys("".join((*texts, template.front, "abcdefghijklmnopqrstuvwxyz参考资料领域答回问题：\n")))
    names = [*SPECIAL, *known]
    backend = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def save_model(folder: Path, *, kind: str = "llama", seed: int = 0, chat_template: str | None = None) -> str:
    """The folder of a random model; the weights are a function of the seed."""
    import torch
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

    tokenizer = make_tokenizer(chat_template)
    ids = {"vocab_size": len(tokenizer), "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config: Any = LlamaConfig(
        **ids, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=512, initializer_range=0.5,
    )  # fmt: skip
    if kind == "gpt2":
        config = GPT2Config(**ids, n_embd=32, n_layer=2, n_head=4, n_positions=512, attn_pdrop=0, resid_pdrop=0)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def open_tiny(folder: str) -> LocalModel:
    return open_local(folder, device="cpu", dtype="float32")


QUICK: dict[str, Any] = {
    "rank": 4, "alpha": 8.0, "epochs": 2, "batch_size": 3, "gradient_accumulation": 2, "learning_rate": 5e-3,
    "max_length": 224, "answer_tokens": 48, "dev_questions": 4, "evaluate_steps": 2,
    "checkpoint_steps": 1, "patience": 0,
}  # fmt: skip


def quick(**changes: Any) -> LoraSettings:
    return LoraSettings(**(QUICK | changes))


def plan(llm: str, **changes: Any) -> FinetunePlan:
    from dmnrag.prompts import load_template

    values: dict[str, Any] = {
        "llm": llm, "template": load_template("paper"), "retrieval": RetrievalSettings(k=2, layer="sparse"),
        "training": quick(), "device": "cpu",
    }  # fmt: skip
    return FinetunePlan(**(values | changes))
