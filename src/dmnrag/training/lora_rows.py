"""From examples to the tokens a model is trained on: prompt, answer, end token; only the last two are learnt.

Batches are padded on the left, as generation pads them, so that the answers of a batch stand at its right edge and
the output layer need not be computed elsewhere. The order of an epoch is a function of seed and epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dmnrag._optional import require
from dmnrag.llm.encoding import PromptEncoder
from dmnrag.training.lora_examples import LoraExample
from dmnrag.training.lora_settings import LoraSettings

MASKED = -100
"""Label of a position that is not learnt."""


@dataclass(frozen=True, slots=True)
class Row:
    """One example in tokens."""

    ids: tuple[int, ...]
    n_answer: int
    """Tokens at the end that are learnt: the answer's and the end token."""
    cut: bool
    """The answer is longer than `answer_tokens`; its end, and the end token, are missing."""


class Batch(NamedTuple):
    """Tensors of (rows, longest row) and the width of the longest answer."""

    ids: Any
    mask: Any
    """1 for tokens, 0 for padding."""
    labels: Any
    """The token that stands at a position where it is learnt, else `MASKED`."""
    width: int


def encode_rows(
    examples: Sequence[LoraExample], encoder: PromptEncoder, end_id: int, settings: LoraSettings
) -> list[Row]:
    """The rows of the examples, in order. Prompts are encoded as generation encodes them.

    An answer is cut where generation would cut it, and then has no end token. A row may exceed `max_length` by
    nothing: prompts were built to leave room for `answer_tokens`.
    """
    rows = []
    for example in examples:
        prompt = encoder.encode(example.prompt)
        answer = [*encoder.encode_answer(example.answer), end_id]
        kept = answer[: settings.answer_tokens]
        rows.append(Row((*prompt, *kept), len(kept), cut=len(kept) < len(answer)))
    return rows


def collate(rows: Sequence[Row], pad_id: int) -> Batch:
    """A batch of rows."""
    torch = require("torch", "lora")
    width = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, MASKED)
    for i, row in enumerate(rows):
        ids[i, width - len(row.ids) :] = torch.tensor(row.ids)
        mask[i, width - len(row.ids) :] = 1
        labels[i, width - row.n_answer :] = torch.tensor(row.ids[len(row.ids) - row.n_answer :])
    return Batch(ids, mask, labels, max(row.n_answer for row in rows))


def n_steps_of_epoch(n_rows: int, settings: LoraSettings) -> int:
    """Steps that see every row once; the last one may be smaller."""
    return -(-n_rows // (settings.batch_size * settings.gradient_accumulation))


def epoch_steps(rows: Sequence[Row], settings: LoraSettings, epoch: int) -> list[list[list[int]]]:
    """Places of the rows: step by step, batch by batch. Neighbours in length share a batch of their step."""
    order = np.random.default_rng((settings.seed, epoch)).permutation(len(rows)).tolist()
    size = settings.batch_size * settings.gradient_accumulation
    steps = [order[start : start + size] for start in range(0, len(order), size)]
    return [by_length(rows, places, settings.batch_size) for places in steps]


def by_length(rows: Sequence[Row], places: Sequence[int], size: int) -> list[list[int]]:
    """Batches of at most `size` rows of like length, shortest first."""
    ordered = sorted(places, key=lambda place: (len(rows[place].ids), place))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]
