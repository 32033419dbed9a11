"""Both of the paper's architectures end to end: convert, fine-tune, load, merge, equal."""

import json
from pathlib import Path

import pytest
import torch
from lora_tiny import plan, quick

from dmnrag.llm import make_generator
from dmnrag.llm.adapters import attach_adapter, read_record
from dmnrag.llm.base_model import open_local
from dmnrag.llm.convert import convert_checkpoint
from dmnrag.llm.merging import merge_adapter
from dmnrag.training.lora_finetune import finetune
from dmnrag.types import GenerationSettings, Prompt

LAYERS = {
    "chatglm2": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "down_proj"],
    "baichuan2": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}


@pytest.mark.parametrize("name", list(LAYERS))
def test_a_converted_model_is_fine_tuned_loaded_and_merged(
    name: str, shared: Path, index: Path, tmp_path: Path
) -> None:
    llm = str(tmp_path / name)
    convert_checkpoint(shared / "golden" / name, Path(llm))
    # Their tiny tokenizers spell most of the corpus in bytes, which does not fit the 256 positions of the originals.
    for file, key in (("config.json", "max_position_embeddings"), ("tokenizer_config.json", "model_max_length")):
        path = Path(llm) / file
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {key: 1024}), encoding="utf-8")
    settings = quick(max_length=1024, answer_tokens=192, learning_rate=1e-2, epochs=3)
    report = finetune(index, plan(llm, training=settings), tmp_path / "lora")
    assert list(report.result.target_modules) == LAYERS[name]
    assert report.result.losses.untrained is not None
    assert report.result.losses.best is not None
    assert report.result.losses.best < report.result.losses.untrained

    record = read_record(tmp_path / "lora")
    assert record is not None
    assert record.base.model_type == {"chatglm2": "glm", "baichuan2": "llama"}[name]
    base = open_local(llm, device="cpu")
    ids = torch.tensor([base.tokenizer("高血压怎么办，多喝水")["input_ids"]])
    with torch.inference_mode():
        before = base.model(ids).logits
        unmerged = attach_adapter(base.model, tmp_path / "lora")(ids).logits
    merge_adapter(llm, tmp_path / "lora", tmp_path / "merged", device="cpu")
    merged = open_local(str(tmp_path / "merged"), device="cpu")
    with torch.inference_mode():
        after = merged.model(ids).logits
    assert torch.allclose(after, unmerged, atol=1e-3)
    assert float((unmerged - before).abs().max()) > 0.1
    texts = [
        generator.generate([Prompt("高血压怎么办")], GenerationSettings(max_tokens=12, temperature=0))[0].text
        for generator in (
            make_generator(llm, adapter=tmp_path / "lora", device="cpu"),
            make_generator(str(tmp_path / "merged"), device="cpu"),
        )
    ]
    assert texts[0] == texts[1]
