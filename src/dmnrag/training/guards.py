"""Guards: what keeps right answers out of the negatives, by surface and by meaning.

Each guard looks at one question and one candidate and gives the value it found where it removes the candidate. The
order is that of their cost; the first one that fires is credited. To add one: a function `(Asked, Candidate) ->
float | None`, its setting in `GuardSettings`, and its line in `Guards`.

Why the meaning is compared with the gold answer: a right answer in other words is near to it, whatever its own
question was. How near is near depends on encoder and corpus, so it is measured in standard deviations over what a
random answer reaches for the same gold.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dmnrag.errors import ConfigError
from dmnrag.metrics import rouge
from dmnrag.protocols import Encoder
from dmnrag.text import tokenize_characters
from dmnrag.training.negatives_pool import Pool, contains
from dmnrag.training.negatives_settings import GuardSettings

_COMPARED_WITH = 1000
"""Random answers that say how near an answer usually is; the mean is then off by 3 % of a standard deviation."""

_ROWS_AT_ONCE = 4096

_TOKENS_KEPT = 1 << 14


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the score that the ranking at hand gives to its own document, where that is in the list."""

    position: int
    own_score: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document that might give a negative, with its score in the ranking, where it comes from one."""

    position: int
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a candidate is no negative."""

    guard: str
    value: float
    """What the guard found: an index, a score or standard deviations."""
    promoted: bool = False
    """It is to be a further positive."""


Guard = Callable[[Asked, Candidate], float | None]


class Meaning:
    """How near answers are to each other in an encoder's space."""

    def __init__(self, pool: Pool, encoder: Encoder, seed: int, progress: Callable[[int], None] | None = None) -> None:
        """Encode every distinct answer of the pool once, as far as the encoder reads.

        Raises:
            ConfigError: the encoder gives numbers that are not finite.
        """
        texts = {answer for document in pool.documents for answer in document.answers}
        numbers = {text: number for number, text in enumerate(sorted(texts))}
        vectors = encoder.encode_passages(list(numbers), progress)
        if not np.isfinite(vectors).all():
            raise ConfigError(
                f"the encoder {encoder.name!r} gives vectors with numbers that are not finite: use another one"
            )
        self._vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        self._rows = [[numbers[answer] for answer in document.answers] for document in pool.documents]
        self._mean, self._deviation = self._usual(seed)

    def nearness(self, question: int, candidate: int) -> float:
        """Of a candidate's gold to the answers of a question, the nearest counts: standard deviations."""
        rows = self._rows[question]
        cosines = self._vectors[rows] @ self._vectors[self._rows[candidate][0]]
        return float(((cosines - self._mean[rows]) / self._deviation[rows]).max())

    def _usual(self, seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Mean and standard deviation (n_answers,) of the cosine to random other answers."""
        n_answers = len(self._vectors)
        chosen = np.random.default_rng(seed).permutation(n_answers)[:_COMPARED_WITH]
        mean, deviation = np.zeros(n_answers), np.ones(n_answers)
        for start in range(0, n_answers, _ROWS_AT_ONCE):
            rows = np.arange(start, min(start + _ROWS_AT_ONCE, n_answers))
            cosines = (self._vectors[rows] @ self._vectors[chosen].T).astype(np.float64)
            others = rows[:, None] != chosen[None, :]
            n_others = np.maximum(others.sum(axis=1), 1)
            mean[rows] = (cosines * others).sum(axis=1) / n_others
            squares = ((cosines - mean[rows, None]) ** 2 * others).sum(axis=1) / n_others
            # Where all others are alike there is nothing to tell near from far; rounding must not become infinite.
            deviation[rows] = np.maximum(np.sqrt(squares), 1e-6)
        return mean, deviation


class Guards:
    """The guards that are on, one after the other."""

    def __init__(self, pool: Pool, settings: GuardSettings, meaning: Meaning | None) -> None:
        """`meaning` None leaves that guard out, whatever the settings say."""
        self._pool = pool
        self._settings = settings
        self._meaning = meaning
        self._tokens = lru_cache(maxsize=_TOKENS_KEPT)(tokenize_characters)
        guards: tuple[tuple[str, object, Guard], ...] = (
            ("margin", settings.margin, self._above_margin),
            ("reposts", settings.reposts or None, self._repost),
            ("question", settings.question, self._same_question),
            ("answer", settings.answer, self._same_answer),
            ("meaning", None if meaning is None else settings.meaning, self._same_meaning),
            ("rouge", settings.rouge, self._same_words),
        )
        self._guards = [(name, guard) for name, setting, guard in guards if setting is not None]

    @property
    def names(self) -> list[str]:
        """Of the guards that are on."""
        return [name for name, _ in self._guards]

    def check(self, asked: Asked, candidate: Candidate) -> Verdict | None:
        """The verdict of the first guard that removes the candidate; None where it may be a negative."""
        for name, guard in self._guards:
            value = guard(asked, candidate)
            if value is not None:
                promote = self._settings.promote
                return Verdict(name, value, name == "meaning" and promote is not None and value >= promote)
        return None

    def _above_margin(self, asked: Asked, candidate: Candidate) -> float | None:
        if asked.own_score is None or candidate.score is None or self._settings.margin is None:
            return None
        # Written so that a score below 0, as inner products can be, is lowered too by a margin below 1.
        limit = asked.own_score - (1 - self._settings.margin) * abs(asked.own_score)
        return candidate.score if candidate.score > limit else None

    def _repost(self, asked: Asked, candidate: Candidate) -> float | None:
        return 1.0 if self._pool.is_repost(asked.position, candidate.position) else None

    def _same_question(self, asked: Asked, candidate: Candidate) -> float | None:
        questions = self._pool.questions
        return _reached(
            self._pool.jaccard(questions[asked.position], questions[candidate.position]), self._settings.question
        )

    def _same_answer(self, asked: Asked, candidate: Candidate) -> float | None:
        """Equal to, holding or held by, or near to any right answer: 1 for the first three."""
        form = self._pool.answers[candidate.position][0]
        owners = (asked.position, *self._pool.reposts(asked.position))
        golds = [gold for owner in owners for gold in self._pool.answers[owner]]
        if any(contains(form, gold) or contains(gold, form) for gold in golds):
            return 1.0
        return _reached(max(self._pool.jaccard(form, gold) for gold in golds), self._settings.answer)

    def _same_meaning(self, asked: Asked, candidate: Candidate) -> float | None:
        assert self._meaning is not None  # the guard is on only then
        return _reached(self._meaning.nearness(asked.position, candidate.position), self._settings.meaning)

    def _same_words(self, asked: Asked, candidate: Candidate) -> float | None:
        documents = self._pool.documents
        tokens = self._tokens(documents[candidate.position].answers[0])
        golds: Sequence[str] = documents[asked.position].answers
        return _reached(max(rouge(tokens, self._tokens(gold)).rouge_l for gold in golds), self._settings.rouge)


def _reached(value: float, least: float | None) -> float | None:
    return value if least is not None and value >= least else None
