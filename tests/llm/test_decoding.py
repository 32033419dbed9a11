import random

import pytest
import torch
from transformers import GenerationConfig

from dmnrag.errors import GenerationError
from dmnrag.llm.decoding import Decoding, TokenChooser, random_stream, resolve_decoding
from dmnrag.types import GenerationSettings

IDS = torch.tensor([[0, 0, 5], [4, 5, 6]])
MASK = torch.tensor([[0, 0, 1], [1, 1, 1]])
GREEDY = Decoding(0.0, 0, 1.0, 1.0)


def chosen(decoding: Decoding, scores: list[float], n: int = 4000) -> list[float]:
    """Relative frequency of each token over n draws."""
    rows = torch.tensor([scores]).repeat(n, 1)
    chooser = TokenChooser(decoding, torch.ones(n, 1), [random.Random(i) for i in range(n)])
    picked = chooser(torch.zeros(n, 1, dtype=torch.long), rows).argmax(-1)
    return [float((picked == token).float().mean()) for token in range(len(scores))]


def test_none_is_filled_from_the_model_and_values_of_the_caller_win() -> None:
    own = GenerationConfig(do_sample=True, temperature=0.3, top_k=5, top_p=0.85, repetition_penalty=1.05)
    assert resolve_decoding(GenerationSettings(), own) == Decoding(0.3, 5, 0.85, 1.05)
    assert resolve_decoding(GenerationSettings(temperature=0, top_k=9, top_p=1, repetition_penalty=1), own) == Decoding(
        0.0, 9, 1.0, 1.0
    )


def test_a_model_without_defaults_is_greedy_and_samples_like_transformers_when_asked() -> None:
    assert resolve_decoding(GenerationSettings(), GenerationConfig()).temperature == 0.0
    assert resolve_decoding(GenerationSettings(temperature=1), GenerationConfig()) == Decoding(1.0, 50, 1.0, 1.0)


def test_draws_follow_the_distribution() -> None:
    # softmax of ln 1, ln 2, ln 5 is 1/8, 2/8, 5/8; standard error of 4000 draws is below .008.
    frequencies = chosen(Decoding(1.0, 0, 1.0, 1.0), [0.0, 0.6931, 1.6094])
    assert frequencies == pytest.approx([0.125, 0.25, 0.625], abs=0.03)


def test_temperature_sharpens() -> None:
    # Squares of 1, 2, 5 over their sum 30.
    frequencies = chosen(Decoding(0.5, 0, 1.0, 1.0), [0.0, 0.6931, 1.6094])
    assert frequencies == pytest.approx([1 / 30, 4 / 30, 25 / 30], abs=0.03)


def test_top_k_and_top_p_leave_only_the_likeliest() -> None:
    # 2 and 5 of 7 remain.
    assert chosen(Decoding(1.0, 2, 1.0, 1.0), [0.0, 0.6931, 1.6094]) == pytest.approx([0, 2 / 7, 5 / 7], abs=0.03)
    # .625 alone reaches .6.
    assert chosen(Decoding(1.0, 0, 0.6, 1.0), [0.0, 0.6931, 1.6094], 100) == [0.0, 0.0, 1.0]


def test_the_penalty_acts_on_tokens_of_the_row_and_never_on_padding() -> None:
    scores = torch.full((2, 8), 2.0)
    penalised = TokenChooser(Decoding(0.0, 0, 1.0, 2.0), MASK, [])(IDS, scores)
    # A positive score is divided by the penalty: token 5 in the first row, 4 to 6 in the second.
    assert penalised[0].tolist() == [2, 2, 2, 2, 2, 1, 2, 2]
    assert penalised[1].tolist() == [2, 2, 2, 2, 1, 1, 1, 2]


def test_greedy_changes_nothing_without_a_penalty() -> None:
    scores = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(TokenChooser(GREEDY, MASK, [])(IDS, scores), scores)


def test_nan_is_an_error() -> None:
    with pytest.raises(GenerationError, match="NaN"):
        TokenChooser(GREEDY, MASK, [])(IDS, torch.full((2, 8), torch.nan))


def test_a_stream_of_random_numbers_belongs_to_seed_and_prompt() -> None:
    assert random_stream(1, [1, 2]).random() == random_stream(1, [1, 2]).random()
    assert random_stream(1, [1, 2]).random() != random_stream(1, [1, 3]).random()
    assert random_stream(1, [1, 2]).random() != random_stream(2, [1, 2]).random()
    assert random_stream(None, [1]).random() != random_stream(None, [1]).random()
