"""The retriever's training set: ratio, window, what never stands in it, and that it repeats."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from training_set_corpus import NO_GUARDS, SynonymEncoder, changed, documents, open_index, settings, text

from dmnrag.data.comparable import comparable
from dmnrag.data.exchange import DprInstance, read_dpr_json, write_dpr_json
from dmnrag.errors import ConfigError, DataError, IndexFolderError
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.training import mining
from dmnrag.training.card import card_text
from dmnrag.training.mining import first_layer, rankings, tail_places
from dmnrag.training.training_set import GuardSettings, TrainingSet, TrainingSetSettings, build_training_set
from dmnrag.types import JOINT, PLAIN, Document, Hit, Query

CORPUS = documents()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return open_index(tmp_path_factory.mktemp("corpus") / "index", CORPUS)


def passages(instance: DprInstance) -> list[str]:
    lists = (instance.positive_ctxs, instance.negative_ctxs, instance.hard_negative_ctxs)
    return [context.text for contexts in lists for context in contexts]


def ids(instance: DprInstance, kind: str) -> list[str]:
    return [context.passage_id for context in getattr(instance, kind)]


def test_each_positive_has_two_negatives_and_two_hard_negatives(index: Index) -> None:
    built = build_training_set(index, CORPUS, settings())
    assert [len(i.positive_ctxs) for i in built.instances] == [1] * 60
    assert [len(i.negative_ctxs) for i in built.instances] == [2] * 60
    assert [len(i.hard_negative_ctxs) for i in built.instances] == [2] * 60
    assert built.card["ratio"] == [1.0, 2.0, 2.0]
    assert [i.extra["query_id"] for i in built.instances] == [d.doc_id for d in CORPUS]


def test_the_ratio_counts_the_positives_that_are_used(tmp_path: Path) -> None:
    further = (text("answer 7", 40), text("further", 40), text("one more", 40))
    corpus = changed(CORPUS, d007=further)
    built = build_training_set(
        open_index(tmp_path / "i", corpus), corpus, settings(max_positives=3, negatives=1, hard_negatives=3)
    )
    seventh = built.instances[7]
    assert ids(seventh, "positive_ctxs") == ["d007", "d007#2", "d007#3"]
    assert [c.text for c in seventh.positive_ctxs] == [f"外科\n{answer}" for answer in further]
    # 3 positives: 3 * 1 negatives and 3 * 3 hard ones
    assert (len(seventh.negative_ctxs), len(seventh.hard_negative_ctxs)) == (3, 9)


@pytest.mark.parametrize("layer", ["joint", "plain"])
def test_hard_negatives_come_from_the_tail_without_the_own_document(index: Index, layer: str) -> None:
    built = build_training_set(index, CORPUS, settings(first_layer=layer))
    queries = [Query(d.doc_id, d.question, d.domain) for d in CORPUS]
    use = JOINT if layer == "joint" else PLAIN
    for instance, hits in zip(built.instances, index.sparse.search(queries, 60, use=use), strict=True):
        others = [hit.doc_id for hit in hits if hit.doc_id != instance.extra["query_id"]]
        for context in instance.hard_negative_ctxs:
            rank = context.extra["rank"]
            assert 11 <= rank <= 40
            assert others[rank - 1] == context.passage_id


def test_joint_mining_stays_nearer_to_the_domain_than_plain(index: Index) -> None:
    joint = build_training_set(index, CORPUS, settings(first_rank=1, last_rank=15)).card["same_domain"]
    plain = build_training_set(index, CORPUS, settings(first_layer="plain", first_rank=1, last_rank=15))
    # 20 documents of each domain: the first 15 others of a joint ranking can all be of the question's own
    assert joint["hard_negatives"] > 0.9
    assert plain.card["same_domain"]["hard_negatives"] < 0.6


def test_the_tail_of_a_short_list_is_cut_in_proportion() -> None:
    assert tail_places(300, 51, 200) == range(50, 200)
    assert tail_places(200, 51, 200) == range(50, 200)
    assert tail_places(100, 51, 200) == range(25, 100)  # 50 / 200 of 100
    assert tail_places(3, 51, 200) == range(0, 3)
    assert tail_places(0, 51, 200) == range(0)


def test_without_a_first_layer_there_are_no_hard_negatives(index: Index) -> None:
    built = build_training_set(index, CORPUS, settings(first_layer="none"))
    assert built.card["ratio"] == [1.0, 2.0, 0.0]
    assert built.card["left_short"] == {"negatives": {}, "hard_negatives": {}}


def test_a_trained_ranking_gives_its_highest_wrong_results_and_keeps_the_rest(index: Index) -> None:
    def rank(queries: Sequence[Query], k: int) -> list[list[Hit]]:
        return [[Hit(d.doc_id, -float(n), n) for n, d in enumerate(CORPUS[:k], start=1)] for _ in queries]

    before = build_training_set(index, CORPUS, settings(first_layer="none"))
    after = build_training_set(index, CORPUS, settings(first_layer="none"), rank=rank)
    for former, instance in zip(before.instances, after.instances, strict=True):
        own = instance.extra["query_id"]
        taken = {own, *ids(instance, "negative_ctxs")}
        assert ids(instance, "hard_negative_ctxs") == [d.doc_id for d in CORPUS if d.doc_id not in taken][:2]
        assert replace(instance, hard_negative_ctxs=()) == former
    assert after.card["mined_from"] == "own ranking"


def test_passages_have_the_domain_in_front_for_joint_alone(index: Index) -> None:
    [joint], [plain], [asked_for] = (
        build_training_set(index, CORPUS[:1], chosen, passages=CORPUS).instances
        for chosen in (settings(), settings(first_layer="plain"), settings(first_layer="plain", domain_in_passage=True))
    )
    assert joint.positive_ctxs[0].text == f"内科\n{CORPUS[0].answers[0]}" == asked_for.positive_ctxs[0].text
    assert plain.positive_ctxs[0].text == CORPUS[0].answers[0]
    assert all(c.title == "" for c in (*joint.positive_ctxs, *joint.hard_negative_ctxs))


def test_only_the_questions_and_the_passages_named_can_be_negatives(index: Index) -> None:
    """A dev slice that is left out stays out, and ranks are counted without it."""
    dev, train = CORPUS[:20], CORPUS[20:]
    built = build_training_set(index, train, settings())
    used = {c.passage_id for i in built.instances for c in (*i.negative_ctxs, *i.hard_negative_ctxs)}
    assert used <= {d.doc_id for d in train}
    assert {d.doc_id for d in dev} & {
        c.passage_id
        for i in build_training_set(index, train, settings(), passages=dev).instances
        for c in i.negative_ctxs
    }


def test_the_same_seed_gives_the_same_set_in_any_order_of_questions(index: Index) -> None:
    first = build_training_set(index, CORPUS, settings())
    assert build_training_set(index, CORPUS, settings()) == first
    backwards = build_training_set(index, CORPUS[:30][::-1], settings(), passages=CORPUS[30:])
    forwards = build_training_set(index, CORPUS[:30], settings(), passages=CORPUS[30:])
    assert backwards.instances[::-1] == forwards.instances
    assert build_training_set(index, CORPUS, settings(seed=1)).instances != first.instances


def test_the_number_of_workers_changes_nothing(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    one = build_training_set(index, CORPUS, settings())
    monkeypatch.setattr(mining, "QUERIES_AT_ONCE", 25)
    assert build_training_set(index, CORPUS, settings()) == one
    assert build_training_set(index, CORPUS, settings(), workers=2) == one


def test_workers_refuse_an_index_that_changed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_index(tmp_path / "i", CORPUS)
    build_index(tmp_path / "i", CORPUS[:10], IndexSettings())
    monkeypatch.setattr(mining, "QUERIES_AT_ONCE", 1)
    queries = [Query(d.doc_id, d.question) for d in CORPUS[:2]]
    with pytest.raises(IndexFolderError, match="changed"):
        list(rankings(first_layer(opened, joint=True), queries, 5, workers=2))


def test_a_question_part_asks_and_the_other_part_stands_in_the_passage(tmp_path: Path) -> None:
    parts = [f"{text('left', 10)}？", f"{text('right', 10)}。"]
    corpus = changed(CORPUS, d000="".join(parts), d001=f"你好！{text('alone', 10)}？", d002=f"{parts[0]}啊{parts[0]}")
    built = build_training_set(
        open_index(tmp_path / "i", corpus), corpus, settings(passage="question-part+answer", first_layer="plain")
    )
    first, greeting, repeated = built.instances[:3]
    assert first.question in parts
    [kept] = [part for part in parts if part != first.question]
    assert first.positive_ctxs[0].text == f"{kept}\n{corpus[0].answers[0]}"
    # A greeting is no question, and a part that holds the other one would be found by string match.
    assert (greeting.question, greeting.positive_ctxs[0].text) == (corpus[1].question, corpus[1].answers[0])
    assert (repeated.question, repeated.positive_ctxs[0].text) == (corpus[2].question, corpus[2].answers[0])
    used = {c.passage_id: c.text for i in built.instances for c in (*i.negative_ctxs, *i.hard_negative_ctxs)}
    assert used.get("d000", first.positive_ctxs[0].text) == first.positive_ctxs[0].text


def test_an_answer_that_quotes_its_question_leaves_the_question_out(tmp_path: Path) -> None:
    corpus = changed(CORPUS, d005=(f"您问：{CORPUS[5].question}？{text('answer 5', 30)}",))
    built = build_training_set(open_index(tmp_path / "i", corpus), corpus, settings())
    assert "d005" not in {i.extra["query_id"] for i in built.instances}
    assert built.card["left_out"] == {"the answer quotes the question": {"n": 1, "doc_ids": ["d005"]}}


def test_questions_left_short_are_counted_with_the_reason(tmp_path: Path) -> None:
    few = CORPUS[:4]
    built = build_training_set(open_index(tmp_path / "i", few), few, settings())
    # 3 other documents: 2 random ones, 1 is left for the tail
    assert [(len(i.negative_ctxs), len(i.hard_negative_ctxs)) for i in built.instances] == [(2, 1)] * 4
    short = built.card["left_short"]["hard_negatives"]
    assert short == {"too few documents": {"n": 4, "doc_ids": [d.doc_id for d in few]}}
    assert "4 questions with too few hard negatives: too few documents" in card_text(built.card)


def test_the_set_is_written_and_read_as_dpr_json(index: Index, tmp_path: Path) -> None:
    built = build_training_set(index, CORPUS, settings())
    write_dpr_json(tmp_path / "set.json", built.instances)
    assert list(read_dpr_json(tmp_path / "set.json")) == built.instances
    assert TrainingSetSettings.from_dict(json.loads(json.dumps(built.card))["settings"]) == settings()


def test_progress_is_told(index: Index) -> None:
    told: list[tuple[str, int, int]] = []
    build_training_set(index, CORPUS, settings(), encoder=SynonymEncoder(), on_progress=lambda *step: told.append(step))
    assert ("answers encoded", 60, 60) in told
    assert told[-1] == ("training questions", 60, 60)


def test_wrong_use_is_refused(index: Index) -> None:
    with pytest.raises(DataError, match="no training question"):
        build_training_set(index, [], settings())
    with pytest.raises(DataError, match="given twice"):
        build_training_set(index, [CORPUS[0], CORPUS[0]], settings())
    with pytest.raises(DataError, match="no document elsewhere"):
        build_training_set(index, [Document("elsewhere", "问", ("答",))], settings())
    with pytest.raises(ConfigError, match="workers is 0"):
        build_training_set(index, CORPUS, settings(), workers=0)
    with pytest.raises(ConfigError, match="needs an encoder"):
        build_training_set(index, CORPUS, settings(guards=GuardSettings(promote=5.0)))


TEXTS = st.text(alphabet="高血压糖尿病怎么办吃药。？", min_size=1, max_size=14)


@given(
    rows=st.lists(
        st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=3), st.sampled_from([(), ("内科",), ("外科",)])),
        min_size=1,
        max_size=8,
    ),
    guarded=st.booleans(),
    passage=st.sampled_from(["answer", "question-part+answer"]),
    n_negatives=st.integers(0, 3),
)
@hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_whatever_the_corpus_no_negative_is_right_and_no_passage_holds_its_question(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, list[str], tuple[str, ...]]],
    guarded: bool,
    passage: str,
    n_negatives: int,
) -> None:
    corpus = [Document(str(i), q, tuple(a), domain) for i, (q, a, domain) in enumerate(rows)]
    chosen = settings(
        guards=GuardSettings() if guarded else NO_GUARDS, negatives=n_negatives, passage=passage, last_rank=11
    )
    with open_index(tmp_path_factory.mktemp("p") / "i", corpus) as index:
        built: TrainingSet = build_training_set(index, corpus, chosen, encoder=SynonymEncoder())
    by_id = {d.doc_id: d for d in corpus}
    for instance in built.instances:
        wrong = (*instance.negative_ctxs, *instance.hard_negative_ctxs)
        right = {comparable(a) for a in by_id[instance.extra["query_id"]].answers}
        right |= {comparable(by_id[c.passage_id.split("#")[0]].answers[0]) for c in instance.positive_ctxs[1:]}
        golds = [comparable(by_id[c.passage_id].answers[0]) for c in wrong]
        assert not right & set(golds)
        assert len(set(golds)) == len(golds)
        asked = comparable(instance.question)
        assert all(len(asked) < 8 or asked not in comparable(p) for p in passages(instance))
        assert len(instance.negative_ctxs) <= n_negatives * len(instance.positive_ctxs)
        assert instance.extra["query_id"] not in {c.passage_id for c in wrong}
