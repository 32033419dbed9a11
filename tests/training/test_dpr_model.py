from collections.abc import Iterator
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
import torch
from dpr_tiny import random_instances, write_encoder

from dmnrag.errors import ConfigError
from dmnrag.retrieval.dense import make_encoder
from dmnrag.training.dpr_batches import compile_rows, epoch_batches
from dmnrag.training.dpr_loss import masked_ranking_loss
from dmnrag.training.dpr_model import DprModel
from dmnrag.training.dpr_processes import Processes
from dmnrag.training.dpr_step import GradientStep, uses_bf16
from dmnrag.training.dpr_texts import Texts, encode, prepare_texts
from dmnrag.training.settings import DprSettings


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_encoder(tmp_path_factory.mktemp("encoder")))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(former)


def texts_for(model: DprModel, settings: DprSettings, folder: Path) -> Texts:
    rows = compile_rows(random_instances(12), settings)
    return prepare_texts(model, rows.questions, rows.passages, folder / "frozen.npy", settings, lambda *_: None)


def gradients(encoder: str, folder: Path, **values: object) -> dict[str, torch.Tensor]:
    settings = DprSettings(**{"mini_batch": 5, **values})  # type: ignore[arg-type]
    model = DprModel(encoder, settings, "cpu")
    texts = texts_for(model, settings, folder)
    model.dropout(settings.dropout)
    batch = next(epoch_batches(compile_rows(random_instances(12), settings), settings, 0))
    GradientStep(model, texts, settings, Processes())(batch, 0)
    return {name: weight.grad for name, weight in model.trained.items()}


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float = 2e-4) -> None:
    assert found.keys() == expected.keys()
    # Some gradients are 0 but for rounding (a bias of the keys shifts all scores alike), so one measure for all.
    scale = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=tolerance * scale, msg=name)


def test_loss_of_two_rows_by_hand() -> None:
    questions = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    passages = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    masked = torch.tensor([[False, True, False], [False, False, False]])
    # Scores at scale 2: row 0 (2, 0, 1) with the second left out, row 1 (0, 2, 1); targets 0 and 1.
    first = -log(exp(2) / (exp(2) + exp(1)))
    second = -log(exp(2) / (exp(0) + exp(2) + exp(1)))
    loss = masked_ranking_loss(questions, passages, torch.tensor([0, 1]), masked, 2.0)
    assert float(loss) == pytest.approx((first + second) / 2)


def test_a_masked_passage_gets_no_gradient_from_that_row() -> None:
    passages = torch.eye(3, requires_grad=True)
    masked = torch.tensor([[False, True, False]])
    masked_ranking_loss(torch.tensor([[1.0, 2.0, 3.0]]), passages, torch.tensor([0]), masked, 1.0).backward()
    assert passages.grad is not None
    assert passages.grad[1].abs().sum() == 0
    assert passages.grad[2].abs().sum() > 0


def test_the_lower_half_and_the_embeddings_are_frozen_by_default(encoder: str) -> None:
    model = DprModel(encoder, DprSettings(), "cpu")
    assert {name.split("layer.")[1][0] for name in model.trained} == {"1"}
    assert not any("pooler" in name or "embeddings" in name for name in model.trained)
    assert model.unit_vectors


@pytest.mark.parametrize(("freeze_words", "expected"), [(True, False), (False, True)])
def test_word_embeddings_stay_frozen_unless_freed(encoder: str, freeze_words: bool, expected: bool) -> None:
    model = DprModel(encoder, DprSettings(frozen_share=0, freeze_words=freeze_words), "cpu")
    assert any("word_embeddings" in name for name in model.trained) is expected
    assert any("position_embeddings" in name for name in model.trained)
    assert not any("pooler" in name for name in model.trained)


def test_freezing_everything_is_refused(encoder: str) -> None:
    with pytest.raises(ConfigError, match=r"nothing of .* is left to train: lower frozen_share"):
        DprModel(encoder, DprSettings(frozen_share=1.0), "cpu")


def test_the_fake_encoder_cannot_be_trained() -> None:
    with pytest.raises(ConfigError, match="no weights to train"):
        DprModel("fake", DprSettings(), "cpu")


@pytest.mark.parametrize("settings", [DprSettings(), DprSettings(frozen_gb=0), DprSettings(frozen_share=0)])
def test_vectors_in_training_are_those_of_the_encoder(encoder: str, settings: DprSettings, tmp_path: Path) -> None:
    model = DprModel(encoder, settings, "cpu")
    texts = texts_for(model, settings, tmp_path)
    assert (tmp_path / "frozen.npy").exists() == (settings == DprSettings())
    rows = compile_rows(random_instances(12), settings)
    plain = make_encoder(encoder, device="cpu")
    found = encode(texts, "query", np.arange(len(rows.questions)), 5)
    np.testing.assert_allclose(found, plain.encode_queries(rows.questions), atol=2e-5)
    found = encode(texts, "document", np.arange(len(rows.passages)), 5)
    np.testing.assert_allclose(found, plain.encode_passages(rows.passages), atol=2e-5)


def test_long_texts_are_cut_to_the_tokens_of_their_role(encoder: str) -> None:
    model = DprModel(encoder, DprSettings(query_tokens=16, passage_tokens=20), "cpu")
    assert [len(model.towers[role].tokens(["高" * 90])[0]) for role in ("query", "document")] == [16, 20]


def test_gradient_caching_gives_the_same_gradients(encoder: str, tmp_path: Path) -> None:
    assert_close(gradients(encoder, tmp_path, gradient_cache=True), gradients(encoder, tmp_path))


def test_gradient_caching_draws_the_same_dropout_twice(encoder: str, tmp_path: Path) -> None:
    with_dropout = gradients(encoder, tmp_path, dropout=True)
    assert_close(gradients(encoder, tmp_path, dropout=True, gradient_cache=True), with_dropout)
    plain = gradients(encoder, tmp_path)
    assert any(not torch.allclose(with_dropout[name], plain[name], rtol=1e-2) for name in plain)


def test_kept_outputs_of_frozen_layers_give_the_same_gradients(encoder: str, tmp_path: Path) -> None:
    (tmp_path / "off").mkdir()
    assert_close(gradients(encoder, tmp_path), gradients(encoder, tmp_path / "off", frozen_gb=0))
    assert not (tmp_path / "off" / "frozen.npy").exists()


def test_mini_batches_do_not_change_the_gradients(encoder: str, tmp_path: Path) -> None:
    assert_close(gradients(encoder, tmp_path, mini_batch=1), gradients(encoder, tmp_path, mini_batch=64))


def test_gradients_are_those_of_one_plain_pass(encoder: str, tmp_path: Path) -> None:
    """The oracle: sentence-transformers' own forward of all texts, autograd through the loss."""
    from sentence_transformers import SentenceTransformer

    settings = DprSettings(scale=20.0)
    model = SentenceTransformer(encoder, device="cpu").eval()
    rows = compile_rows(random_instances(12), settings)
    batch = next(epoch_batches(rows, settings, 0))
    vectors = []
    for prompt, texts in (
        ("query", [rows.questions[i] for i in batch.questions]),
        ("document", [rows.passages[i] for i in batch.passages]),
    ):
        features = model.tokenizer([model.prompts[prompt] + text for text in texts], padding=True, return_tensors="pt")
        vectors.append(model({key: features[key] for key in ("input_ids", "attention_mask")})["sentence_embedding"])
    scores = vectors[0] @ vectors[1].T * 20.0
    scores = scores.masked_fill(torch.from_numpy(batch.masked), float("-inf"))
    torch.nn.functional.cross_entropy(scores, torch.from_numpy(batch.targets)).backward()
    found = gradients(encoder, tmp_path, scale=20.0)
    expected = {name: weight.grad for name, weight in model.named_parameters() if name in found}
    assert_close(found, expected)


def test_bf16_computes_about_the_same_and_keeps_weights_in_fp32(encoder: str, tmp_path: Path) -> None:
    low, high = gradients(encoder, tmp_path, precision="bf16"), gradients(encoder, tmp_path)
    assert_close(low, high, tolerance=0.3)
    assert any(not torch.equal(low[name], high[name]) for name in high)
    assert {gradient.dtype for gradient in low.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("precision", "device", "expected"), [("auto", "cpu", False), ("bf16", "cpu", True), ("fp32", "cuda", False)]
)
def test_precision_is_bf16_where_asked_for(precision: str, device: str, expected: bool) -> None:
    settings = DprSettings(precision=precision)  # type: ignore[arg-type]
    assert uses_bf16(settings, torch.device(device)) is expected


def test_two_encoders_are_saved_as_one_model_that_asks_and_answers_differently(encoder: str, tmp_path: Path) -> None:
    model = DprModel(encoder, DprSettings(two_encoders=True), "cpu")
    query, document = (model.towers[role].network for role in ("query", "document"))
    assert query.get_input_embeddings().weight is document.get_input_embeddings().weight
    assert len(model.trained) == 2 * len(DprModel(encoder, DprSettings(), "cpu").trained)
    with torch.no_grad():
        query.encoder.layer[1].output.dense.weight[0] += 1.0
    model.save(tmp_path / "two")
    loaded, former = make_encoder(str(tmp_path / "two"), device="cpu"), make_encoder(encoder, device="cpu")
    np.testing.assert_allclose(loaded.encode_passages(["高血压"]), former.encode_passages(["高血压"]), atol=1e-5)
    assert np.abs(loaded.encode_queries(["高血压"]) - former.encode_queries(["高血压"])).max() > 1e-3
    assert loaded.passage_tokens(["高血压"]) == former.passage_tokens(["高血压"])
    again = DprModel(str(tmp_path / "two"), DprSettings(), "cpu")
    assert again.towers["query"].network is not again.towers["document"].network
