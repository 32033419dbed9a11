"""How the next token is chosen: penalty, temperature, top_k, top_p, and a random stream per prompt.

A prompt draws from its own stream, seeded by the caller's seed and the prompt, never from the global one. So a
sampled batch equals the same prompts one by one, and different prompts do not share their luck.
"""

import hashlib
import random
import secrets
from dataclasses import dataclass
from typing import Any

from dmnrag.errors import GenerationError
from dmnrag.types import GenerationSettings

# What transformers' generate() fills in for a model that samples and names no top_k.
_UNSET_TOP_K = 50


@dataclass(frozen=True, slots=True)
class Decoding:
    """Every parameter with a value. `temperature` 0 is greedy."""

    temperature: float
    top_k: int
    """0 is off."""
    top_p: float
    repetition_penalty: float
    """Over the tokens of prompt and answer, as transformers and vLLM count it; 1 is off."""


def resolve_decoding(settings: GenerationSettings, model_defaults: Any) -> Decoding:
    """The caller's settings, and the model's own `generation_config` where they say None.

    A model that does not sample by default is greedy as long as no temperature is given.
    """

    def own(name: str, neutral: float) -> float:
        value = getattr(model_defaults, name, None)
        return neutral if value is None else float(value)

    samples = bool(getattr(model_defaults, "do_sample", False))
    temperature = settings.temperature
    if temperature is None:
        temperature = own("temperature", 1.0) if samples else 0.0
    penalty = settings.repetition_penalty
    return Decoding(
        temperature=float(temperature),
        top_k=int(own("top_k", _UNSET_TOP_K)) if settings.top_k is None else settings.top_k,
        top_p=own("top_p", 1.0) if settings.top_p is None else float(settings.top_p),
        repetition_penalty=own("repetition_penalty", 1.0) if penalty is None else float(penalty),
    )


def random_stream(seed: int | None, prompt_ids: list[int]) -> random.Random:
    """The random numbers of one prompt; new ones each time without a seed."""
    if seed is None:
        return random.Random(secrets.randbits(64))
    key = f"{seed}:{','.join(map(str, prompt_ids))}".encode()
    return random.Random(int.from_bytes(hashlib.sha256(key).digest()[:8], "big"))


class TokenChooser:
    """A logits processor for transformers' generate(): leaves each row one possible token, the chosen one."""

    def __init__(self, decoding: Decoding, prompt_mask: Any, streams: list[random.Random]) -> None:
        """`prompt_mask` (rows, prompt length): 1 for tokens, 0 for padding. One stream per row."""
        from transformers.generation import logits_process as hf

        self._decoding = decoding
        self._mask = prompt_mask.bool()
        self._streams = streams
        self._penalty = None
        if decoding.repetition_penalty != 1.0:
            self._penalty = hf.RepetitionPenaltyLogitsProcessor(decoding.repetition_penalty)
        self._warpers: list[Any] = []
        if decoding.temperature not in (0.0, 1.0):
            self._warpers.append(hf.TemperatureLogitsWarper(decoding.temperature))
        if decoding.top_k:
            self._warpers.append(hf.TopKLogitsWarper(decoding.top_k))
        if decoding.top_p < 1.0:
            self._warpers.append(hf.TopPLogitsWarper(decoding.top_p))

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """`input_ids` (rows, length so far), `scores` (rows, vocabulary)."""
        if scores.isnan().any():
            raise GenerationError("the model computed NaN: load it as bfloat16 or float32 (dtype)")
        if self._penalty is not None:
            scores = self._penalty(self._without_padding(input_ids), scores)
        if self._decoding.temperature == 0.0:
            return scores
        for warp in self._warpers:
            scores = warp(input_ids, scores)
        return self._sample(scores)

    def _without_padding(self, input_ids: Any) -> Any:
        """Padding replaced by a token of the row: the pad token, often the end token, must not be penalised."""
        width = self._mask.shape[1]
        ids = input_ids.clone()
        ids[:, :width] = ids[:, :width].where(self._mask, ids[:, width - 1 : width])
        return ids

    def _sample(self, scores: Any) -> Any:
        import torch

        # Inverse of the distribution function in float64: rounding differences between batch sizes
        # move a border by 1e-7 at most, so they hardly ever change the token.
        cumulative = scores.softmax(-1, dtype=torch.float64).cumsum(-1)
        draws = torch.tensor([[s.random()] for s in self._streams], dtype=torch.float64, device=scores.device)
        chosen = torch.searchsorted(cumulative, draws * cumulative[:, -1:], right=True)
        chosen = chosen.clamp(max=scores.shape[-1] - 1)
        return torch.full_like(scores, -torch.inf).scatter(-1, chosen, 0.0)
