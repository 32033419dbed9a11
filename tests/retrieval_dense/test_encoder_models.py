"""sentence-transformers models as encoders and rerankers, with tiny random ones made on the spot."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models

from dmnrag.errors import ConfigError
from dmnrag.retrieval.dense import make_encoder, split_passage
from dmnrag.retrieval.dense.encoder import SentenceTransformerEncoder
from dmnrag.retrieval.rerank import make_reranker

TEXTS = ["高血压吃药", "头痛", "劳动合同怎么办。" * 4, "abc def", "", "头痛怎么办", "休息"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write_encoder(tmp_path_factory.mktemp("tiny"), {"query": "a: ", "document": "b: "})


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Any:
    return make_encoder(str(folder), device="cpu", batch_size=3, threads=1)


def test_encoder_tells_what_it_is(folder: Path, encoder: SentenceTransformerEncoder) -> None:
    assert (encoder.name, encoder.dimension, encoder.max_tokens) == (str(folder), 16, tiny_models.POSITIONS)


def test_vectors_do_not_depend_on_neighbours_or_order(encoder: SentenceTransformerEncoder) -> None:
    together = encoder.encode_passages(TEXTS * 5)
    alone = np.concatenate([encoder.encode_passages([text]) for text in TEXTS])
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, np.tile(alone, (5, 1)), atol=2e-6)
    np.testing.assert_allclose(encoder.encode_passages(TEXTS[::-1]), alone[::-1], atol=2e-6)


def test_queries_and_passages_get_the_models_prompts(encoder: SentenceTransformerEncoder) -> None:
    bare = encoder.model.encode(["a: 头痛", "b: 头痛"], prompt="")
    np.testing.assert_allclose(encoder.encode_queries(["头痛"]), bare[:1], atol=2e-6)
    np.testing.assert_allclose(encoder.encode_passages(["头痛"]), bare[1:], atol=2e-6)


def test_tokens_of_a_passage_count_prompt_and_special_tokens(encoder: SentenceTransformerEncoder) -> None:
    """[CLS] b : space 头 痛 [SEP] = 7; nothing is cut beyond the 40 the model reads."""
    assert encoder.passage_tokens(["头痛", "", "痛" * 100]) == [7, 5, 105]
    assert encoder.passage_tokens([]) == []


def test_long_passage_is_split_into_what_the_model_reads(encoder: SentenceTransformerEncoder) -> None:
    parts = split_passage("头痛怎么办。" * 20, encoder)
    assert "".join(parts) == "头痛怎么办。" * 20
    assert max(encoder.passage_tokens(parts)) <= encoder.max_tokens


def test_progress_tells_each_text_once(encoder: SentenceTransformerEncoder) -> None:
    told: list[int] = []
    encoder.encode_passages(["头痛"] * 50, told.append)
    assert sum(told) == 50
    assert len(told) > 1


def test_no_texts_give_no_vectors(encoder: SentenceTransformerEncoder) -> None:
    assert encoder.encode_queries([]).shape == (0, 16)


def test_fewer_tokens_can_be_read_but_not_more(folder: Path) -> None:
    short = make_encoder(str(folder), device="cpu", max_tokens=20)
    np.testing.assert_allclose(
        short.encode_passages(["痛" * 15 + "药" * 90]), short.encode_passages(["痛" * 15 + "药"]), atol=1e-6
    )
    with pytest.raises(ConfigError, match="at most 40"):
        make_encoder(str(folder), device="cpu", max_tokens=41)


def test_threads_are_given_back(folder: Path) -> None:
    import torch

    before = torch.get_num_threads()
    make_encoder(str(folder), device="cpu", threads=before + 1).encode_queries(["头痛"])
    assert torch.get_num_threads() == before


def test_plain_bert_folder_gets_mean_pooling(tmp_path: Path) -> None:
    plain = make_encoder(str(tiny_models.write_bert(tmp_path, "BertModel")), device="cpu")
    assert plain.encode_queries(["头痛"]).shape == (1, 16)


class Harmful:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def test_pickled_weights_are_not_loaded(folder: Path, tmp_path: Path) -> None:
    import torch

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "model.safetensors").unlink()
    torch.save({"weights": Harmful(tmp_path / "mark")}, copy / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="safetensors"):
        make_encoder(str(copy), device="cpu")
    assert not (tmp_path / "mark").exists()


def test_models_own_code_is_not_run(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "own_code.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'mark')!r})\nclass Pooling: ...\n")
    modules = json.loads((copy / "modules.json").read_text())
    modules[1]["type"] = "own_code.Pooling"
    (copy / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ConfigError, match="own_code"):
        make_encoder(str(copy), device="cpu")
    assert not (tmp_path / "mark").exists()


def test_truncated_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    content = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(ConfigError, match="cannot be loaded"):
        make_encoder(str(copy), device="cpu")


def test_missing_folder_is_said_to_be_missing() -> None:
    with pytest.raises(ConfigError, match=r"no folder '\./models/mine'.*builtin"):
        make_encoder("./models/mine")


def test_name_without_a_hub_fails_and_names_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Port 9 of this machine answers nothing."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"BAAI/bge-small-zh-v1\.5.*127\.0\.0\.1.*builtin"):
        make_encoder("BAAI/bge-small-zh-v1.5")


def test_name_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="possible model name"):
        make_encoder("not a name!")


def test_reranker_scores_are_the_models_logits(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    folder = tiny_models.write_bert(tmp_path, "BertForSequenceClassification", num_labels=1)
    reranker = make_reranker(str(folder), device="cpu", batch_size=2)
    passages = ["头痛吃药", "休息", "劳动合同怎么办"]
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    expected = []
    for passage in passages:
        tokens = tiny_models.make_tokenizer()("头痛怎么办", passage, return_tensors="pt")
        with torch.inference_mode():
            expected.append(float(model(**tokens).logits))
    assert reranker.score("头痛怎么办", passages) == pytest.approx(expected, abs=1e-5)
    assert reranker.score("头痛怎么办", []) == []
    assert reranker.name == str(folder)


def test_classifier_of_several_classes_is_no_reranker(tmp_path: Path) -> None:
    folder = tiny_models.write_bert(tmp_path, "BertForSequenceClassification", num_labels=3)
    with pytest.raises(ConfigError, match="3 scores"):
        make_reranker(str(folder), device="cpu")


def test_missing_reranker_names_the_way_out() -> None:
    with pytest.raises(ConfigError, match="without a reranker"):
        make_reranker("./none")
    with pytest.raises(ConfigError, match="batch_size"):
        make_reranker("fake", batch_size=0)


def test_fake_reranker_counts_shared_characters() -> None:
    """头痛 has the grams 头, 痛, 头痛: all three in the first, one in the second, none in the third."""
    assert make_reranker("fake").score("头痛", ["头痛吃药", "痛", "休息"]) == pytest.approx([1, 1 / 3, 0])
