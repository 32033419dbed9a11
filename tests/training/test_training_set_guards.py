"""Each guard catches a planted right answer, and lets it through when it is off."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from training_set_corpus import NO_GUARDS, SynonymEncoder, changed, documents, open_index, settings, text

from dmnrag.errors import ConfigError
from dmnrag.retrieval.dense.memo import MemoEncoder
from dmnrag.training.guards import Asked, Candidate, Guards, Meaning
from dmnrag.training.negatives_pool import Pool
from dmnrag.training.training_set import GuardSettings, TrainingSet, TrainingSetSettings, build_training_set
from dmnrag.types import Document, Hit, Query

CORPUS = documents(40)
GOLD = CORPUS[0].answers[0]
PLANTED = CORPUS[1].doc_id


def build(tmp_path: Path, corpus: Sequence[Document], guards: GuardSettings, **more: object) -> TrainingSet:
    """The planted document stands first in every ranking and is among the random candidates of every question."""

    def rank(queries: Sequence[Query], k: int) -> list[list[Hit]]:
        order = [corpus[1], *corpus]
        return [[Hit(d.doc_id, 100.0 - n, n) for n, d in enumerate(dict.fromkeys(d.doc_id for d in order), 1)
                 for d in [by_id[d]]][:k] for _ in queries]  # fmt: skip

    by_id = {d.doc_id: d for d in corpus}
    chosen = settings(first_layer="plain", guards=guards, candidates=40, max_positives=more.pop("max_positives", 1))
    with open_index(tmp_path / str(len(list(tmp_path.iterdir()))), corpus) as index:
        return build_training_set(index, corpus, chosen, rank=rank, **more)  # type: ignore[arg-type]


def hard_of_first(built: TrainingSet) -> list[str]:
    return [c.passage_id for c in built.instances[0].hard_negative_ctxs]


def near(gold: str, n_kept: int) -> str:
    """Shares the first `n_kept` characters with the gold, as long as it."""
    return gold[:n_kept] + text("the rest", len(gold) - n_kept)


PLANTS: dict[str, tuple[str | tuple[str, ...], GuardSettings]] = {
    "reposts": (CORPUS[0].question + "呢", GuardSettings(question=None, answer=None, meaning=None, rouge=None)),
    # 13 bigrams of the question; the first 10 characters keep 9 of them: 9 / (13 + 13 - 9) = .53
    "question": (
        CORPUS[0].question[:10] + text("other", 4),
        GuardSettings(reposts=False, answer=None, meaning=None, rouge=None),
    ),
    # 39 bigrams; 28 characters keep 27 of them: 27 / (39 + 39 - 27) = .53
    "answer": ((near(GOLD, 28),), GuardSettings(reposts=False, question=None, meaning=None, rouge=None)),
    # 30 of 40 characters in order: F1 = 60 / 80 = .75
    "rouge": ((near(GOLD, 30),), GuardSettings(reposts=False, question=None, meaning=None, answer=None)),
}


@pytest.mark.parametrize("guard", PLANTS)
def test_each_guard_catches_what_it_is_for_and_reports_it(tmp_path: Path, guard: str) -> None:
    planted, alone = PLANTS[guard]
    corpus = changed(CORPUS, **{PLANTED: planted})
    assert PLANTED in hard_of_first(build(tmp_path, corpus, NO_GUARDS))
    built = build(tmp_path, corpus, alone)
    assert PLANTED not in hard_of_first(built)
    assert PLANTED not in {c.passage_id for c in built.instances[0].negative_ctxs}
    assert len(built.instances[0].hard_negative_ctxs) == 2
    removed = built.card["removed"][guard]
    assert removed["hard_negatives"] >= 1
    assert removed["samples"][0]["value"] >= 0.5


@pytest.mark.parametrize("planted", [f"首先，{GOLD}祝您健康", GOLD[5:30], f" {GOLD}。"])
def test_an_answer_that_holds_a_gold_or_is_held_by_it_is_no_negative(tmp_path: Path, planted: str) -> None:
    alone = GuardSettings(reposts=False, question=None, meaning=None, rouge=None)
    built = build(tmp_path, changed(CORPUS, **{PLANTED: (planted,)}), alone)
    assert PLANTED not in hard_of_first(built)
    assert built.card["removed"]["answer"]["hard_negatives"] >= 1


def test_a_word_that_a_gold_happens_to_hold_is_a_negative(tmp_path: Path) -> None:
    built = build(tmp_path, changed(CORPUS, **{PLANTED: (GOLD[3:9],)}), GuardSettings())
    assert PLANTED in hard_of_first(built)


def test_the_gold_of_a_repost_guards_too(tmp_path: Path) -> None:
    """d002 posts the first question again; the planted answer is near to its gold, not to the first one's."""
    corpus = changed(CORPUS, d002=CORPUS[0].question + "呢")
    corpus = changed(corpus, **{PLANTED: (near(corpus[2].answers[0], 34),)})
    built = build(tmp_path, corpus, GuardSettings(reposts=False, question=None, meaning=None, rouge=None))
    assert PLANTED not in hard_of_first(built)
    assert built.instances[0].extra["right_ids"] == [PLANTED, "d002"]  # near answers make re-posts too


def test_a_right_answer_in_other_words_is_caught_by_an_encoder_that_knows_the_synonym(tmp_path: Path) -> None:
    corpus = changed(CORPUS, d000=("心肌梗死要马上叫救护车",), **{PLANTED: ("心梗发作时快打急救电话",)})
    in_other_words = {"心梗发作时快打急救电话": "心肌梗死要马上叫救护车"}
    encoder = SynonymEncoder(lambda t: in_other_words.get(t, t))
    assert PLANTED in hard_of_first(build(tmp_path, corpus, GuardSettings(), encoder=SynonymEncoder()))
    assert PLANTED in hard_of_first(build(tmp_path, corpus, GuardSettings(meaning=None), encoder=encoder))
    assert PLANTED in hard_of_first(build(tmp_path, corpus, GuardSettings()))  # without an encoder it cannot act
    built = build(tmp_path, corpus, GuardSettings(), encoder=encoder)
    assert PLANTED not in hard_of_first(built)
    assert PLANTED not in {c.passage_id for c in built.instances[0].negative_ctxs}
    sample = built.card["removed"]["meaning"]["samples"][0]
    assert {sample["gold"], sample["removed"]} == {"心肌梗死要马上叫救护车", "心梗发作时快打急救电话"}
    assert built.card["encoder"] == "synonyms"


def test_what_means_the_same_can_become_a_further_positive(tmp_path: Path) -> None:
    planted = text("planted", 40)
    encoder = SynonymEncoder(lambda t: GOLD if t == planted else t)
    corpus = changed(CORPUS, **{PLANTED: (planted,)})
    built = build(tmp_path, corpus, GuardSettings(promote=4.0), encoder=encoder, max_positives=2)
    first = built.instances[0]
    assert [c.passage_id for c in first.positive_ctxs] == ["d000", PLANTED]
    assert (len(first.negative_ctxs), len(first.hard_negative_ctxs)) == (4, 4)
    assert built.card["promoted"] == 2  # each of the two for the other one's question
    no_room = build(tmp_path, corpus, GuardSettings(promote=4.0), encoder=encoder)
    assert (len(no_room.instances[0].positive_ctxs), no_room.card["promoted"]) == (1, 0)


def test_the_margin_drops_what_scores_near_the_own_document(tmp_path: Path) -> None:
    # Scores: d001 99, d000 98, d002 97, ... ; d000's limit is 98 * .95 = 93.1: d001 to d006 lie above it.
    built = build(tmp_path, CORPUS, GuardSettings(margin=0.95))
    assert all(c.score is not None and c.score <= 93.1 for c in built.instances[0].hard_negative_ctxs)
    assert built.card["removed"]["margin"]["hard_negatives"] >= 4


def test_a_margin_below_one_lowers_negative_scores_too() -> None:
    guards = Guards(Pool(CORPUS), GuardSettings(margin=0.9), None)
    # -10 - .1 * 10 = -11
    assert guards.check(Asked(0, own_score=-10.0), Candidate(1, -10.5)) is not None
    assert guards.check(Asked(0, own_score=-10.0), Candidate(1, -11.5)) is None
    assert guards.check(Asked(0, own_score=None), Candidate(1, 5.0)) is None


def test_golds_of_reposts_are_never_negatives_and_different_ones_are_positives(tmp_path: Path) -> None:
    again = CORPUS[0].question  # the very same question with another answer
    corpus = changed(CORPUS, **{PLANTED: again})
    with open_index(tmp_path / "i", corpus) as index:
        built = build_training_set(index, corpus, settings(first_rank=1))
    first = built.instances[0]
    assert [c.passage_id for c in first.positive_ctxs] == ["d000", PLANTED]
    assert first.extra["right_ids"] == [PLANTED]
    for instance in built.instances[:2]:
        wrong = {c.passage_id for c in (*instance.negative_ctxs, *instance.hard_negative_ctxs)}
        assert not wrong & {"d000", PLANTED}


def test_without_guards_random_negatives_still_are_no_positive(tmp_path: Path) -> None:
    """All answers but four are the gold's text: only those four can be drawn."""
    answers = {d.doc_id: (GOLD,) for d in CORPUS[5:]}
    corpus = changed(CORPUS, **answers)
    with open_index(tmp_path / "i", corpus) as index:
        built = build_training_set(
            index, corpus, settings(guards=NO_GUARDS, candidates=40, first_rank=1, last_rank=40, max_positives=1)
        )
    first = built.instances[0]
    drawn = [c.passage_id for c in (*first.negative_ctxs, *first.hard_negative_ctxs)]
    assert sorted(drawn) == ["d001", "d002", "d003", "d004"]
    assert built.card["removed"]["equal text"]["negatives"] > 0


def test_each_distinct_answer_is_encoded_once_over_all_rounds(tmp_path: Path) -> None:
    encoder = SynonymEncoder()
    corpus = changed(CORPUS, d003=CORPUS[4].answers)
    memo = MemoEncoder(encoder)
    for _ in range(2):
        build(tmp_path, corpus, GuardSettings(), encoder=memo)
    assert sorted(encoder.encoded) == sorted({a for d in corpus for a in d.answers})


def test_meaning_counts_standard_deviations_over_random_other_answers() -> None:
    """Cosines of the first answer to the others: .6, 0, 0; mean .2, deviation sqrt((.16 + .04 + .04) / 3) = .2828."""
    vectors = {"甲": [5, 0, 0, 0], "乙": [0.6, 0.8, 0, 0], "丙": [0, 0, 1, 0], "丁": [0, 0, 0, 2]}
    pool = Pool([Document(a, f"问{a}", (a,)) for a in vectors])
    meaning = Meaning(pool, _Table(vectors), seed=0)
    assert meaning.nearness(0, 1) == pytest.approx((0.6 - 0.2) / 0.28284, rel=1e-4)
    assert meaning.nearness(0, 2) == pytest.approx(-0.2 / 0.28284, rel=1e-4)


def test_an_encoder_that_overflows_is_refused() -> None:
    pool = Pool([Document("a", "问", ("甲",)), Document("b", "问题", ("乙",))])
    with pytest.raises(ConfigError, match="not finite"):
        Meaning(pool, _Table({"甲": [float("nan")] * 4, "乙": [1, 0, 0, 0]}), seed=0)


class _Table(SynonymEncoder):
    """Vectors as given."""

    def __init__(self, vectors: dict[str, list[float]]) -> None:
        super().__init__()
        self._vectors = vectors

    def encode_passages(self, texts: Sequence[str], progress: Callable[[int], None] | None = None):  # type: ignore[no-untyped-def]
        import numpy as np

        return np.array([self._vectors[t] for t in texts], np.float32)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"first_layer": "sparse"}, "first_layer"),
        ({"negatives": -1}, "negatives"),
        ({"max_positives": 0}, "max_positives"),
        ({"first_rank": 300}, "first_rank 300 is above last_rank 200"),
        ({"passage": "question"}, "passage"),
        ({"domain_in_passage": 1}, "domain_in_passage"),
        ({"guards": {"rouge": 1.5}}, "rouge"),
        ({"guards": {"meaning": float("nan")}}, "meaning"),
        ({"guards": {"promote": 3.0}}, "promote"),
        ({"guards": {"surface": 0.5}}, "surface"),
        ({"ratio": 2}, "ratio"),
    ],
)
def test_settings_that_cannot_be_used_are_named(values: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        TrainingSetSettings.from_dict(values)


def test_settings_come_back_from_their_dict() -> None:
    chosen = TrainingSetSettings(first_layer="plain", seed=3, guards=GuardSettings(rouge=None, promote=6.0))
    assert TrainingSetSettings.from_dict(chosen.to_dict()) == chosen
    assert TrainingSetSettings.from_dict({}) == TrainingSetSettings()
