"""What a training set of the retriever is built with. Kept in its data card, so that it can be built again.

Figures in the docstrings: 4,893 training rows of a medical forum (one question, one answer, 11 departments) and
1,234 legal rows, first layer joint, 384-dimensional multilingual-e5-small; pairs were read by a person.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from dmnrag._settings import FLAG, Rule, check_settings, number, one_of, or_none, refuse_unknown, whole
from dmnrag.errors import ConfigError

FirstLayer = Literal["joint", "plain", "none"]
PassageKind = Literal["answer", "question-part+answer"]


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """What keeps a right answer from becoming a negative. None or False turns a guard off."""

    reposts: bool = True
    """The golds of the question's re-posts (`dmnrag.data.reposts`) are never negatives."""
    question: float | None = 0.5
    """Least Jaccard index of character bigrams from which another question counts as the same. Beyond re-posts this
    removes 0.4 % of ranks 1 to 3 and nothing below rank 10."""
    answer: float | None = 0.5
    """Least Jaccard index from which an answer nearly equals a gold of the question or of one of its re-posts; one
    that contains a gold, or is contained in it, is dropped too."""
    meaning: float | None = 4.0
    """Least nearness to the gold answer in the encoder's space, in standard deviations above the nearness of a
    random answer: cosines of most encoders lie so close together that no fixed cosine serves two corpora. Of
    medical pairs from 4 on, 7 of 10 read were right or nearly so, between 3 and 4, 4 of 10. In the more diverse legal
    corpus 4 is reached by close topics alone (0 of 8 right; from 5.5 on, 2 of 8). In the tail that costs nothing
    (0.04 % removed); among the highest ranks it takes 39 %, so mine those of a diverse corpus with 6 or so."""
    rouge: float | None = 0.7
    """Least ROUGE-L (F1, characters) against the gold answer. All ten medical pairs read between 0.5 and this only
    share a closing phrase."""
    promote: float | None = None
    """A candidate from this value of `meaning` on is not dropped but becomes a further positive. Off: even the
    highest values hold copied paragraphs that answer another question."""
    margin: float | None = None
    """Drop candidates whose score is above this share of the score that the same ranking gives to the question's
    own document (Moreira et al. 2024, NV-Retriever, use .95). For rankings that do not read the question in its
    own document, such as a trained retriever's; where that document is not in the list, nothing is dropped."""

    def __post_init__(self) -> None:
        check_settings(self, _GUARD_RULES, "training set")
        if self.promote is not None and (self.meaning is None or self.promote < self.meaning):
            raise ConfigError(
                f"guard promote is {self.promote!r} with meaning at {self.meaning!r}: it promotes what `meaning` "
                "would drop, so give a meaning at most as high"
            )

    @classmethod
    def off(cls) -> "GuardSettings":
        """No guard, to measure what they are worth."""
        return cls(reposts=False, question=None, answer=None, meaning=None, rouge=None)


@dataclass(frozen=True, slots=True)
class TrainingSetSettings:
    """Settings of one training set: positives : negatives : hard negatives = 1 : 2 : 2 unless said otherwise."""

    first_layer: FirstLayer = "joint"
    """Which ranking hard negatives come from: with the domain, without it, or no hard negatives (round 0 of
    iterative mining)."""
    negatives: int = 2
    """Golds of other questions, drawn at random, for each positive (RocketQA)."""
    hard_negatives: int = 2
    """Hard negatives for each positive."""
    max_positives: int = 2
    """The gold and further right answers: the document's own, then those to the same question in other words."""
    first_rank: int = 51
    """Where the tail of the ranked list begins, counted without the question's own document. From here on `meaning`
    suspects 0.2 % of the candidates (4 % at ranks 1 to 3), and 85 % still are of the question's domain."""
    last_rank: int = 200
    """Where it ends. A shorter list is cut in the same proportion."""
    candidates: int = 30
    """Documents looked at for each question and kind: drawn at random from the tail, or the first ones of a trained
    retriever's ranking. What the guards leave of them beyond the wanted number is not used."""
    passage: PassageKind = "answer"
    """`answer`: passages are answers. `question-part+answer`, for an index whose passages hold question and answer:
    the question's sentences are parted, one part asks and the other stands in the passage, so that the model learns
    to match question with question and cannot do so by finding the very same text (as in the inverse cloze task,
    Lee et al. 2019). Questions of one sentence keep the answer alone."""
    domain_in_passage: bool | None = None
    """The domain stands in front of passages. None: where `first_layer` is joint."""
    seed: int = 0
    """Of everything drawn. Each question draws by itself, so the order of questions changes nothing."""
    guards: GuardSettings = field(default_factory=GuardSettings)
    """What keeps right answers out."""

    def __post_init__(self) -> None:
        check_settings(self, _RULES, "training set")
        if self.first_rank > self.last_rank:
            raise ConfigError(f"first_rank {self.first_rank} is above last_rank {self.last_rank}: the tail is empty")

    @property
    def domain_in_front(self) -> bool:
        """Whether passages begin with their domain."""
        return self.first_layer == "joint" if self.domain_in_passage is None else self.domain_in_passage

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainingSetSettings":
        """The settings that `to_dict` described; what is left out keeps its default.

        Raises:
            ConfigError: an unknown name or an unusable value.
        """
        refuse_unknown(values, cls, "a training set")
        guards = values.get("guards", {})
        refuse_unknown(guards, GuardSettings, "a training set's guards")
        return cls(**{**values, "guards": GuardSettings(**guards)})


_SHARE = or_none(number(0, 1, above=True))
_POSITIVE = or_none(number(0, above=True))

_GUARD_RULES: dict[str, Rule] = {
    "reposts": FLAG,
    "question": _SHARE,
    "answer": _SHARE,
    "meaning": _POSITIVE,
    "rouge": _SHARE,
    "promote": _POSITIVE,
    "margin": _POSITIVE,
}
_RULES: dict[str, Rule] = {
    "first_layer": one_of(get_args(FirstLayer)),
    "negatives": whole(0),
    "hard_negatives": whole(0),
    "max_positives": whole(1),
    "first_rank": whole(1),
    "last_rank": whole(1),
    "candidates": whole(1),
    "passage": one_of(get_args(PassageKind)),
    "domain_in_passage": or_none(FLAG),
    "seed": whole(0),
    "guards": (lambda value: isinstance(value, GuardSettings), "GuardSettings"),
}
