"""An adapter in use: saved, loaded, merged; the same prompt as in training; refused where it does not belong."""

import json
import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from lora_tiny import CHATML, open_tiny, plan, quick, save_model
from safetensors.torch import load_file, save_file

from dmnrag.errors import ConfigError, IndexLockedError, MissingDependencyError
from dmnrag.index import Index
from dmnrag.llm import make_generator
from dmnrag.llm.adapters import AdapterRecord, attach_adapter, check_base, check_method, check_template, read_record
from dmnrag.llm.base_model import describe_base, files_of, open_local
from dmnrag.llm.merging import merge_adapter
from dmnrag.llm.transformers_lm import TransformersGenerator
from dmnrag.methods import find_method
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.prompts import load_template
from dmnrag.training.lora_examples import SetPlan, build_lora_set
from dmnrag.training.lora_finetune import FinetunePlan, finetune
from dmnrag.training.lora_rows import encode_rows
from dmnrag.types import GenerationSettings, Hit, Prompt, Query

NARROW = {"max_length": 120, "answer_tokens": 48}
"""Documents do not fit whole, so that the budget shows."""


def narrow_plan(llm: str) -> FinetunePlan:
    return plan(llm, training=quick(**NARROW, epochs=6, learning_rate=1e-2))


@pytest.fixture(scope="module")
def adapter(llm: str, index: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters") / "lora-x"
    finetune(index, narrow_plan(llm), folder)
    return folder


@pytest.fixture
def record(adapter: Path) -> AdapterRecord:
    found = read_record(adapter)
    assert found is not None
    return found


@pytest.fixture
def copied(adapter: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(adapter, tmp_path / "copy"))


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(torch.arange(3, 40)[None]).logits
    return found


def test_merged_equals_unmerged_and_differs_from_the_base(llm: str, adapter: Path, tmp_path: Path) -> None:
    merge_adapter(llm, adapter, tmp_path / "merged", device="cpu")
    unmerged = logits(attach_adapter(open_tiny(llm).model, adapter))
    merged = logits(open_local(str(tmp_path / "merged"), device="cpu").model)
    assert torch.allclose(merged, unmerged, atol=1e-4)
    assert float((unmerged - logits(open_tiny(llm).model)).abs().max()) > 0.1
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert not [path.name for path in (tmp_path / "merged").iterdir() if path.suffix == ".bin"]


def test_merging_takes_no_used_place_and_no_other_base(
    llm: str, adapter: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    with pytest.raises(ConfigError, match="needs a new folder"):
        merge_adapter(llm, adapter, tmp_path / "used")
    other = save_model(tmp_path_factory.mktemp("other") / "m", seed=1)
    with pytest.raises(ConfigError, match="has another weights"):
        merge_adapter(other, adapter, tmp_path / "merged", device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["used"]


def test_the_prompt_at_inference_is_that_of_training_to_the_token(llm: str, adapter: Path, index: Path) -> None:
    """From the adapter folder alone, as `ask --adapter` does it, against the set that it was trained on."""
    record = read_record(adapter)
    assert record is not None
    settings = AskSettings(generation=GenerationSettings(max_tokens=record.answer_tokens))
    generator = make_generator(llm, adapter=adapter, device="cpu")
    assert isinstance(generator, TransformersGenerator)
    n_cut = 0
    with Index.open(index) as opened:
        asked = Pipeline(opened, generator=generator, template=record.template)
        wanted = narrow_plan(llm)
        local = open_tiny(llm)
        base = TransformersGenerator(local.model, local.tokenizer, name=llm, context_tokens=wanted.training.max_length)
        trainer = Pipeline(opened, generator=base, template=load_template("paper"))
        method = find_method(record.method)
        made = build_lora_set(trainer, SetPlan(method, wanted.ask, 4), lambda *_: None)
        rows = encode_rows(made.train, base.counter, 2, wanted.training)
        for example, row in zip(made.train, rows, strict=True):
            (document,) = opened.documents([example.doc_id])
            query = Query("1", document.question, document.domain)
            hits = [Hit(e.doc_id, 1.0, e.number) for e in example.prompt.excerpts]
            prompt = asked.prompt(query, hits, method, settings)
            assert tuple(generator.counter.encode(prompt)) == row.ids[: -row.n_answer]
            assert len(row.ids) <= wanted.training.max_length
            n_cut += any(e.cut for e in prompt.excerpts) or len(prompt.excerpts) < 2
    assert n_cut > 0


def test_an_adapter_answers_and_names_itself(llm: str, adapter: Path) -> None:
    generator = make_generator(llm, adapter=adapter, device="cpu")
    assert generator.name == f"{llm}+lora-x"
    assert generator.context_tokens == NARROW["max_length"]
    asked = Prompt("高血压怎么办")
    settings = GenerationSettings(max_tokens=8, temperature=0)
    with_it, without = (g.generate([asked], settings)[0].text for g in (generator, make_generator(llm, device="cpu")))
    assert with_it != without


def test_another_method_is_refused_by_name(record: AdapterRecord) -> None:
    check_method(record, "Dmn-ques-front")
    with pytest.raises(ConfigError, match="trained with method Dmn-ques-front and is asked with no-Dmn"):
        check_method(record, "no-Dmn")


def test_another_template_is_refused_by_its_keys_and_a_copy_is_not(record: AdapterRecord) -> None:
    paper = load_template("paper")
    check_template(record, replace(paper, name="mine", description="the same under another name"))
    with pytest.raises(ConfigError, match="'paper' and is asked with 'mine', which differs in separator, stop"):
        check_template(record, replace(paper, name="mine", separator="\n", stop=("\n",)))


def test_another_base_model_is_refused_by_what_differs(
    llm: str, record: AdapterRecord, tmp_path: Path, adapter: Path
) -> None:
    moved = Path(shutil.copytree(llm, tmp_path / "moved"))
    check_base(record, describe_base(open_tiny(str(moved))))
    check_base(record, describe_base(open_local(llm, device="cpu", dtype="bfloat16")))
    cases = {
        "weights": save_model(tmp_path / "weights", seed=1),
        "tokenizer or chat template": save_model(tmp_path / "chat", chat_template=CHATML),
        "model_type": save_model(tmp_path / "type", kind="gpt2"),
    }
    for what, folder in cases.items():
        with pytest.raises(ConfigError, match=f"has another {what}"):
            make_generator(folder, adapter=adapter, device="cpu")


def test_shards_do_not_change_a_models_identity(llm: str, tmp_path: Path) -> None:
    local = open_tiny(llm)
    local.model.save_pretrained(tmp_path / "shards", max_shard_size="40KB")
    local.tokenizer.save_pretrained(tmp_path / "shards")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    found, wanted = (describe_base(open_tiny(folder)) for folder in (str(tmp_path / "shards"), llm))
    assert replace(found, name="") == replace(wanted, name="")


@pytest.mark.parametrize("spec", ["fake", "openai:m@http://localhost:1/v1"])
def test_an_adapter_needs_weights_at_hand(spec: str, adapter: Path) -> None:
    with pytest.raises(ConfigError, match="has no weights here"):
        make_generator(spec, adapter=adapter)


def test_four_bits_need_a_gpu_and_a_library(llm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="4 bits need a CUDA GPU and the device is 'cpu'"):
        open_local(llm, device="cpu", four_bit=True)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'dmnrag\[qlora\]'"):
        open_local(llm, device="cuda:0", four_bit=True)


def test_a_hub_name_is_found_in_the_hubs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--owner--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (tmp_path / "models--owner--model" / "refs").mkdir()
    (tmp_path / "models--owner--model" / "refs" / "main").write_text("abc")
    assert files_of("owner/model") == snapshot
    with pytest.raises(ConfigError, match="not in the cache"):
        files_of("owner/other")


def test_an_adapter_from_elsewhere_is_taken_by_its_shapes(llm: str, copied: Path) -> None:
    (copied / "dmnrag.json").unlink()
    assert read_record(copied) is None
    assert make_generator(llm, adapter=copied, device="cpu").context_tokens == 512


def test_a_pickle_is_never_read(copied: Path) -> None:
    (copied / "adapter_model.safetensors").rename(copied / "adapter_model.bin")
    with pytest.raises(ConfigError, match=r"has no adapter_model.safetensors"):
        read_record(copied)


def test_damaged_adapters_are_refused(llm: str, copied: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not an adapter folder"):
        read_record(tmp_path)
    weights = copied / "adapter_model.safetensors"
    tensors = load_file(weights)
    first, *others = tensors
    save_file({name: tensors[name] for name in others}, weights)
    with pytest.raises(ConfigError, match="1 tensors are missing and 0 are unknown"):
        attach_adapter(open_tiny(llm).model, copied)
    save_file(tensors | {first: torch.zeros(3, 3)}, weights)
    with pytest.raises(ConfigError, match="cannot be put onto the model"):
        attach_adapter(open_tiny(llm).model, copied)
    weights.write_bytes(weights.read_bytes()[:-7])
    with pytest.raises(ConfigError, match="cannot be put onto the model"):
        attach_adapter(open_tiny(llm).model, copied)
    (copied / "dmnrag.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be used"):
        read_record(copied)
    config = json.loads((copied / "adapter_config.json").read_text())
    (copied / "adapter_config.json").write_text(json.dumps(config | {"peft_type": "IA3"}))
    with pytest.raises(ConfigError, match="type 'IA3': only LORA"):
        read_record(copied)


def test_a_later_format_is_refused(record: AdapterRecord) -> None:
    values = record.to_dict()
    assert AdapterRecord.from_dict(json.loads(json.dumps(values))) == record
    with pytest.raises(ConfigError, match="format 2, and this release reads 1"):
        AdapterRecord.from_dict(values | {"format": 2})


def test_two_trainings_to_one_folder_do_not_meet(llm: str, index: Path, tmp_path: Path) -> None:
    from dmnrag._io import writer_lock

    work = tmp_path / ".train-lora-x"
    work.mkdir()
    (work / "plan.json").write_text("{}")
    with writer_lock(work), pytest.raises(IndexLockedError, match="is being written"):
        finetune(index, plan(llm), tmp_path / "lora-x")
    assert (work / "plan.json").is_file()


def test_a_pipeline_opens_with_an_adapter_and_answers_as_it_was_trained(llm: str, adapter: Path, index: Path) -> None:
    with pytest.raises(ConfigError, match="is put onto an LLM and none is named"):
        Pipeline.open(index, adapter=adapter)
    with pytest.raises(ConfigError, match="is asked with 'base', which differs in"):
        Pipeline.open(index, llm=llm, adapter=adapter, template="base")
    pipeline = Pipeline.open(index, llm=llm, adapter=adapter)
    settings = pipeline.default_settings
    assert (settings.retrieval.layer, settings.retrieval.k) == ("sparse", 2)
    assert settings.generation.max_tokens == NARROW["answer_tokens"]
    answer = pipeline.ask("嗓子疼能喝酒吗", "儿科")
    assert (answer.method, answer.llm) == ("Dmn-ques-front", f"{llm}+lora-x")
    assert answer.prompt.user.startswith("儿科嗓子疼能喝酒吗请回答该问题")
    assert answer.usage.completion_tokens <= NARROW["answer_tokens"]
    with pytest.raises(ConfigError, match="trained with method Dmn-ques-front and is asked with no-Dmn"):
        pipeline.ask("嗓子疼能喝酒吗", "儿科", method="no-dmn")
    with pytest.raises(ConfigError, match="is asked with 'base', which differs in"):
        pipeline.with_llm(pipeline.generator, load_template("base"), read_record(adapter))


def test_int8_rounds_the_sum_of_weights_and_update(llm: str, adapter: Path) -> None:
    if find_spec("openvino") is None:  # not imported: only `load_openvino` leaves its telemetry out
        pytest.skip("needs the extra int8")
    generator = make_generator(f"{llm}:int8", adapter=adapter)
    assert generator.name == f"{llm}:int8+lora-x"
    assert isinstance(generator, TransformersGenerator)
    exact = logits(attach_adapter(open_tiny(llm).model, adapter))
    error = float((logits(generator.model) - exact).norm() / exact.norm())
    base = float((logits(open_tiny(llm).model) - exact).norm() / exact.norm())
    assert error < 0.1 < base
