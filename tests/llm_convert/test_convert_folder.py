"""What a conversion takes, what it refuses and with which words, and what it leaves behind."""

import json
import pickle
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from convert_checkpoints import MODELS, Golden, change_config, change_weights, copy_of, save_as
from safetensors.torch import load_file

from dmnrag._io import writer_lock
from dmnrag.errors import ConfigError, DataError, IndexLockedError
from dmnrag.llm import make_generator
from dmnrag.llm.convert import convert_checkpoint


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def copy(shared: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a golden checkpoint that may be changed."""
    return lambda name: copy_of(shared / "golden" / name, tmp_path / "in" / name)


@pytest.mark.parametrize("layout", ["bin", "bin-shards", "safetensors-shards"])
def test_every_layout_of_weights_gives_the_same_model(golden: Golden, tmp_path: Path, layout: str) -> None:
    source = save_as(golden.source, tmp_path / "in", layout)
    done = convert_checkpoint(source, tmp_path / "out")
    wanted, found = load_file(golden.folder / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)
    assert done.n_bytes == sum(tensor.nbytes for tensor in wanted.values())


def test_a_large_model_is_written_in_shards_that_load(golden: Golden, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    steps: list[tuple[str, int, int]] = []
    out = tmp_path / "out"
    done = convert_checkpoint(golden.source, out, shard_bytes=300_000, progress=lambda *step: steps.append(step))
    shards = sorted(out.glob("*.safetensors"))
    assert [path.name for path in shards] == [f"model-0000{i}-of-0000{len(shards)}.safetensors" for i in (1, 2, 3, 4)]
    assert all(path.stat().st_size < 305_000 for path in shards)
    model = AutoModelForCausalLM.from_pretrained(out, dtype="auto").state_dict()
    wanted = golden.model.state_dict()
    assert all(torch.equal(model[key], wanted[key]) for key in wanted)
    assert (steps[0], steps[-1]) == (
        ("weights (bytes)", 0, done.n_bytes),
        ("weights (bytes)", done.n_bytes, done.n_bytes),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_type_of_the_checkpoint_is_kept_and_the_head_normalised_in_it(
    copy: Callable[[str], Path], tmp_path: Path, dtype: torch.dtype
) -> None:
    source = copy("baichuan2")
    change_weights(source, lambda tensors: tensors.update({key: tensors[key].to(dtype) for key in tensors}))
    convert_checkpoint(source, tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert {tensor.dtype for tensor in found.values()} == {dtype}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")
    original = load_file(source / "model.safetensors")["lm_head.weight"]
    assert torch.equal(found["lm_head.weight"], torch.nn.functional.normalize(original))


def test_the_folder_is_stock_and_readable_by_others(golden: Golden) -> None:
    from transformers import GlmForCausalLM, LlamaForCausalLM

    stock = {"chatglm2": GlmForCausalLM, "baichuan2": LlamaForCausalLM}[golden.name]
    assert type(golden.model) is stock
    config = json.loads((golden.folder / "config.json").read_text())
    assert config["architectures"] == [stock.__name__]
    assert "auto_map" not in config
    settings = json.loads((golden.folder / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in golden.folder.iterdir()}
    assert len(modes) == 1


def test_code_in_the_folder_is_never_run(copy: Callable[[str], Path], tmp_path: Path) -> None:
    source = copy("chatglm2")
    for name in ("configuration_chatglm.py", "modeling_chatglm.py", "tokenization_chatglm.py"):
        (source / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    convert_checkpoint(source, tmp_path / "out")
    assert not (tmp_path / "ran").exists()
    assert not list((tmp_path / "out").glob("*.py"))


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("ran",)


def test_pickles_that_hold_more_than_tensors_are_refused(
    copy: Callable[[str], Path], tmp_path: Path, capsys: Any
) -> None:
    source = copy("chatglm2")
    (source / "model.safetensors").unlink()
    torch.save({"x": _Evil()}, source / "pytorch_model.bin")
    with pytest.raises(DataError, match="holds more than tensors"):
        convert_checkpoint(source, tmp_path / "out")
    torch.save([torch.zeros(1)], source / "pytorch_model.bin")
    with pytest.raises(DataError, match="not a dictionary of tensors"):
        convert_checkpoint(source, tmp_path / "out")
    (source / "pytorch_model.bin").write_bytes(pickle.dumps(_Evil()))
    with pytest.raises(DataError, match=r"format before torch 1\.6"):
        convert_checkpoint(source, tmp_path / "out")
    assert "ran" not in capsys.readouterr().out


REFUSED = [
    ("chatglm2", {"quantization_bit": 4}, r"quantization_bit is 4 \(an int4 or int8 checkpoint\)"),
    ("chatglm2", {"rope_ratio": 50}, r"rope_ratio is 50 \(the 32k variant\)"),
    ("chatglm2", {"pre_seq_len": 128}, r"pre_seq_len is 128 \(a P-tuning prefix\)"),
    ("chatglm2", {"rmsnorm": False}, "rmsnorm is False"),
    ("chatglm2", {"multi_query_attention": False}, "multi_query_attention is False"),
    ("chatglm2", {"hidden_dropout": 0.1}, "hidden_dropout is 0.1"),
    ("chatglm2", {"original_rope": ...}, "lacks original_rope"),
    ("chatglm2", {"kv_channels": 32}, "4 heads of 32"),
    ("chatglm2", {"num_layers": "3"}, "num_layers is '3'"),
    ("chatglm2", {"layernorm_epsilon": 0}, "layernorm_epsilon is 0"),
    ("chatglm2", {"brand_new": 1}, "brand_new = 1: ChatGLM2-6B has no such field"),
    ("chatglm2", {"position_encoding_2d": True}, "ChatGLM-6B, the first"),
    ("chatglm2", {"_name_or_path": "THUDM/chatglm3-6b"}, "ChatGLM3"),
    ("chatglm2", {"_name_or_path": "THUDM/codegeex2-6b"}, "codegeex2-6b"),
    ("chatglm2", {"padded_vocab_size": 600}, "600 pieces, which do not fit"),
    ("baichuan2", {"hidden_size": 5120}, "13B, which has ALiBi"),
    ("baichuan2", {"max_position_embeddings": ...}, "13B, which has ALiBi"),
    ("baichuan2", {"vocab_size": 64000}, "Baichuan 1"),
    ("baichuan2", {"architectures": ["BaiChuanForCausalLM"]}, "Baichuan 1"),
    ("baichuan2", {"quantization_config": {"bits": 4}}, r"quantization_config is .*4-bit or 8-bit"),
    ("baichuan2", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("baichuan2", {"rope_scaling": {"factor": 2}}, "rope_scaling"),
    ("baichuan2", {"vocab_size": 801}, "800 pieces does not belong"),
    ("baichuan2", {"model_type": "llama"}, "model_type 'llama'"),
]


@pytest.mark.parametrize(("name", "change", "message"), REFUSED)
def test_other_variants_are_refused_by_name(
    copy: Callable[[str], Path], tmp_path: Path, name: str, change: dict[str, Any], message: str
) -> None:
    source = copy(name)
    change_config(source, **change)
    with pytest.raises(ConfigError, match=message):
        convert_checkpoint(source, tmp_path / "out")
    assert left_behind(tmp_path) == ["in"]


def test_chatglm3_is_known_by_its_own_tokenizer_code(copy: Callable[[str], Path], tmp_path: Path) -> None:
    source = copy("chatglm2")
    (source / "tokenization_chatglm.py").write_text('roles = ["<|system|>", "<|user|>"]', encoding="utf-8")
    with pytest.raises(ConfigError, match="ChatGLM3"):
        convert_checkpoint(source, tmp_path / "out")


def test_a_base_model_of_baichuan2_is_told_from_the_chat_model(copy: Callable[[str], Path], tmp_path: Path) -> None:
    source = copy("baichuan2")
    change_config(source, "generation_config.json", user_token_id=..., assistant_token_id=...)
    with pytest.raises(ConfigError, match=r"user_token_id and assistant_token_id are None and None.*a Base model"):
        convert_checkpoint(source, tmp_path / "out")
    (source / "generation_config.json").unlink()
    with pytest.raises(DataError, match=r"generation_config\.json is missing"):
        convert_checkpoint(source, tmp_path / "out")


FIRST = {"chatglm2": "transformer.encoder.layers.1.mlp.dense_4h_to_h.weight", "baichuan2": "model.norm.weight"}


@pytest.mark.parametrize("name", MODELS)
def test_missing_unknown_and_other_tensors_are_named(copy: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    source, key = copy(name), FIRST[name]
    whole = load_file(source / "model.safetensors")
    changes: list[tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = [
        (lambda tensors: tensors.pop(key), f"lacks {key}"),
        (
            lambda tensors: tensors.update({"transformer.prefix_encoder.x": torch.zeros(2)}),
            r"holds transformer\.prefix",
        ),
        (lambda tensors: tensors.update({key: torch.zeros(3, 2)}), rf"{key} is \[3, 2\] in model\.safetensors"),
        (lambda tensors: tensors.update({key: whole[key].to(torch.int8)}), f"{key} is torch.int8: quantised"),
    ]
    for change, message in changes:
        change_weights(source, lambda tensors, change=change: (tensors.update(whole), change(tensors)))
        with pytest.raises(DataError, match=message):
            convert_checkpoint(source, tmp_path / "out")
        change_weights(source, lambda tensors: [tensors.clear(), tensors.update(whole)])
    assert left_behind(tmp_path) == ["in"]


def test_computed_buffers_may_be_missing(copy: Callable[[str], Path], tmp_path: Path) -> None:
    source = copy("chatglm2")
    change_weights(source, lambda tensors: [tensors.pop("transformer.rotary_pos_emb.inv_freq")])
    convert_checkpoint(source, tmp_path / "out")


@pytest.mark.parametrize("layout", ["bin", "bin-shards", "safetensors-shards"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.6, 0.99])
def test_a_truncated_shard_is_named(golden: Golden, tmp_path: Path, layout: str, share: float) -> None:
    source = save_as(golden.source, tmp_path / "in", layout)
    shard = sorted([*source.glob("*.bin"), *source.glob("*.safetensors")])[-1]
    content = shard.read_bytes()
    shard.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(DataError, match=rf"{shard.name} is .*cut short"):
        convert_checkpoint(source, tmp_path / "out")
    assert left_behind(tmp_path) == ["in"]


def test_missing_and_double_shards_and_pointers_are_named(golden: Golden, tmp_path: Path) -> None:
    source = save_as(golden.source, tmp_path / "in", "bin-shards")
    second = source / "pytorch_model-00002-of-00003.bin"
    content = second.read_bytes()
    second.unlink()
    with pytest.raises(DataError, match=r"lacks pytorch_model-00002-of-00003\.bin"):
        convert_checkpoint(source, tmp_path / "out")
    second.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n")
    with pytest.raises(DataError, match="Git LFS pointer"):
        convert_checkpoint(source, tmp_path / "out")
    shutil.copyfile(source / "pytorch_model-00001-of-00003.bin", second)
    with pytest.raises(DataError, match="and again in pytorch_model-00002"):
        convert_checkpoint(source, tmp_path / "out")
    second.write_bytes(content)
    (source / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "../x.bin"}}', encoding="utf-8")
    with pytest.raises(DataError, match="names no files beside it"):
        convert_checkpoint(source, tmp_path / "out")


def test_missing_and_damaged_small_files_are_named(copy: Callable[[str], Path], tmp_path: Path) -> None:
    source = copy("chatglm2")
    vocabulary = (source / "tokenizer.model").read_bytes()
    for content, message in (
        (None, r"has no tokenizer\.model"),
        (b"", "damaged"),
        (vocabulary[: len(vocabulary) // 2], "damaged"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS pointer"),
    ):
        (source / "tokenizer.model").unlink(missing_ok=True)
        if content is not None:
            (source / "tokenizer.model").write_bytes(content)
        with pytest.raises(DataError, match=message):
            convert_checkpoint(source, tmp_path / "out")
    (source / "tokenizer.model").write_bytes(vocabulary)
    (source / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"has no weights: needed is one of model\.safetensors, pytorch_model\.bin"):
        convert_checkpoint(source, tmp_path / "out")
    (source / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"config\.json is damaged"):
        convert_checkpoint(source, tmp_path / "out")
    (source / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"not an original model folder: it has no config\.json"):
        convert_checkpoint(source, tmp_path / "out")
    assert left_behind(tmp_path) == ["in"]


def test_a_vocabulary_of_another_kind_is_refused(copy: Callable[[str], Path], tmp_path: Path) -> None:
    source = copy("chatglm2")
    shutil.copyfile(copy("baichuan2") / "tokenizer.model", source / "tokenizer.model")
    with pytest.raises(ConfigError, match="800 pieces, which do not fit"):
        convert_checkpoint(source, tmp_path / "out")


def test_only_a_conversion_is_replaced_and_only_on_request(golden: Golden, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine", encoding="utf-8")
    for replace in (False, True):
        with pytest.raises(ConfigError, match="is not a conversion, so it is never replaced"):
            convert_checkpoint(golden.source, out, replace=replace)
    (out / "mine.txt").unlink()
    convert_checkpoint(golden.source, out)  # An empty folder is as good as none.
    with pytest.raises(ConfigError, match="or replace that conversion with --replace"):
        convert_checkpoint(golden.source, out)
    (out / "note.txt").write_text("of the former", encoding="utf-8")
    convert_checkpoint(golden.source, out, replace=True)
    assert not (out / "note.txt").exists()
    assert left_behind(tmp_path) == ["out"]
    with pytest.raises(ConfigError, match="is not a conversion"):
        convert_checkpoint(golden.source, golden.source, replace=True)


def test_a_failed_replacement_keeps_the_former_conversion(copy: Callable[[str], Path], tmp_path: Path) -> None:
    source, out = copy("baichuan2"), tmp_path / "out"
    convert_checkpoint(source, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    change_weights(source, lambda tensors: [tensors.pop("model.norm.weight")])
    with pytest.raises(DataError, match="lacks"):
        convert_checkpoint(source, out, replace=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_two_conversions_to_one_place_do_not_mix(golden: Golden, tmp_path: Path) -> None:
    work = tmp_path / ".out.converting"
    work.mkdir()
    with writer_lock(work), pytest.raises(IndexLockedError):
        convert_checkpoint(golden.source, tmp_path / "out")
    assert left_behind(tmp_path) == [".out.converting"]


def test_a_full_disk_is_seen_before_anything_is_written(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10**6}))
    with pytest.raises(DataError, match=r"0\.0 GB free and 0\.1 GB are needed"):
        convert_checkpoint(golden.source, tmp_path / "out")
    assert left_behind(tmp_path) == []


def test_an_original_folder_named_as_llm_says_how_to_convert_it(golden: Golden) -> None:
    with pytest.raises(ConfigError, match=f"dmnrag convert-llm {golden.source} OUT"):
        make_generator(str(golden.source))
