"""Whether the documents say what an answer says: the share of its clauses that they support.

A clause is supported where enough of its character bigrams stand in one of the documents. How much is enough is
calibrated on `clause_pairs.jsonl`, clauses marked by hand (its first line says by whom): the threshold that
separates supported from unsupported ones best. Overlap sees words, not meaning: a clause that turns a document's
words into their opposite counts as supported. So it finds what was made up, and it proves nothing right.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise

from dmnrag.data.samples import SAMPLES, load_sample
from dmnrag.text import normalise

_CLAUSE_END = re.compile(r"[，。；：！？,;:!?\s]+")
_MIN_CHARACTERS = 4
"""Shorter pieces ("您好", "首先") state nothing that could be supported."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The threshold and how well it does on the marked clauses."""

    threshold: float
    n: int
    accuracy: float
    """Leave-one-out: each clause is judged by a threshold that was chosen without it."""


def clauses(text: str) -> list[str]:
    """Pieces between marks that are long enough to state something; letters and digits only."""
    pieces = (_letters(piece) for piece in _CLAUSE_END.split(normalise(text)))
    return [piece for piece in pieces if len(piece) >= _MIN_CHARACTERS]


def overlap(clause: str, documents: Sequence[str]) -> float:
    """The largest share of the clause's character bigrams that one document holds, from 0 to 1."""
    return overlap_with(clause, [_bigram_set(document) for document in documents])


def overlap_with(clause: str, held: Sequence[frozenset[str]]) -> float:
    """`overlap` with documents whose bigrams are known."""
    grams = _bigrams(clause)
    if not grams:
        return 0.0
    return max((sum(gram in each for gram in grams) / len(grams) for each in held), default=0.0)


def supported_share(answer: str, documents: Sequence[str], threshold: float | None = None) -> float | None:
    """Share of the answer's clauses that a document supports; None where the answer has no clause.

    Without documents nothing is supported: 0.
    """
    found = clauses(answer)
    if not found:
        return None
    bound = calibration().threshold if threshold is None else threshold
    return sum(overlap(clause, documents) >= bound for clause in found) / len(found)


@cache
def calibration() -> Calibration:
    """From the marked clauses that are shipped."""
    texts = {d.doc_id: " ".join(d.answers) for name in SAMPLES for d in load_sample(name)[0]}
    lines = (resources.files(__package__) / "clause_pairs.jsonl").read_text(encoding="utf-8").splitlines()
    pairs = [json.loads(line) for line in lines[1:]]
    return calibrate([(overlap(p["clause"], [texts[p["doc_id"]]]), p["supported"]) for p in pairs])


def calibrate(marked: Sequence[tuple[float, bool]]) -> Calibration:
    """The threshold of the highest balanced accuracy over (overlap, supported) pairs of both kinds."""
    right = 0
    for i, (value, supported) in enumerate(marked):
        right += (value >= _best_threshold([*marked[:i], *marked[i + 1 :]])) == supported
    return Calibration(_best_threshold(marked), len(marked), right / len(marked))


def _best_threshold(marked: Sequence[tuple[float, bool]]) -> float:
    """Between two neighbouring overlaps; of several equally good ones the lowest."""
    values = sorted({value for value, _ in marked})
    return max(((low + high) / 2 for low, high in pairwise(values)), key=lambda t: (_balanced_accuracy(marked, t), -t))


def _balanced_accuracy(marked: Sequence[tuple[float, bool]], threshold: float) -> float:
    supported = [value >= threshold for value, mark in marked if mark]
    others = [value < threshold for value, mark in marked if not mark]
    return (sum(supported) / len(supported) + sum(others) / len(others)) / 2


def _letters(text: str) -> str:
    return "".join(character for character in text if character.isalnum())


def _bigrams(text: str) -> list[str]:
    letters = _letters(normalise(text))
    return [a + b for a, b in pairwise(letters)]


def bigram_set(text: str) -> frozenset[str]:
    """The character bigrams of a document."""
    return frozenset(_bigrams(text))


_bigram_set = lru_cache(maxsize=10_000)(bigram_set)  # the same documents stand behind many answers of a study
