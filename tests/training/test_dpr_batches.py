import numpy as np
import pytest
from dpr_tiny import context, instance, random_instances
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.data.exchange import DprContext, DprInstance
from dmnrag.training.dpr_batches import Batch, compile_rows, epoch_batches, n_batches
from dmnrag.training.settings import DprSettings


def batches(instances: list[DprInstance], epoch: int = 0, **settings: object) -> list[Batch]:
    chosen = DprSettings(**settings)  # type: ignore[arg-type]
    return list(epoch_batches(compile_rows(instances, chosen), chosen, epoch))


def texts_of(instances: list[DprInstance], batch: Batch) -> list[str]:
    passages = compile_rows(instances, DprSettings()).passages
    return [passages[number] for number in batch.passages]


def test_every_gold_of_a_batch_is_a_candidate_for_every_row() -> None:
    instances = [instance("a?", ["a"]), instance("b?", ["b"])]
    [batch] = batches(instances)
    assert sorted(texts_of(instances, batch)) == ["a", "b"]
    assert not batch.masked.any()
    rows = compile_rows(instances, DprSettings()).rows
    golds = {row.question: row.positives[0] for row in rows}
    assert [batch.passages[target] for target in batch.targets] == [golds[q] for q in batch.questions]


def test_a_gold_of_another_row_with_the_same_text_stands_there_once_and_is_the_target_of_both() -> None:
    instances = [instance("a?", ["same"]), instance("b?", ["same"]), instance("c?", ["c"])]
    [batch] = batches(instances)
    assert len(batch.passages) == 2
    assert not batch.masked.any()


def test_another_rows_gold_that_is_a_further_positive_of_this_question_is_masked() -> None:
    instances = [instance("a?", ["a", "b"]), instance("b?", ["b"])]
    [batch] = batches(instances)
    texts = texts_of(instances, batch)
    asked = [compile_rows(instances, DprSettings()).questions[q] for q in batch.questions]
    masked = {(asked[i], texts[j]) for i, j in np.argwhere(batch.masked)}
    assert masked == {("a?", "b")}


def test_golds_of_the_same_question_in_another_row_are_masked_both_ways() -> None:
    # The same question up to punctuation, asked twice with different answers.
    instances = [instance("头痛?", ["a"]), instance("头痛？！", ["b"])]
    [batch] = batches(instances)
    assert batch.masked.sum() == 2


def test_a_mined_negative_that_says_what_a_positive_says_is_masked() -> None:
    instances = [instance("a?", ["多喝水。"], [], ["多喝水"]), instance("b?", ["b"], [], ["c"])]
    [batch] = batches(instances)
    texts = texts_of(instances, batch)
    assert [texts[j] for _, j in np.argwhere(batch.masked)] == ["多喝水"]


def test_titles_are_read_but_do_not_make_a_right_answer_wrong() -> None:
    gold = DprInstance("a?", ("x",), (context("x", "内科"),))
    other = DprInstance("b?", ("x",), (context("x", "外科"),))
    [batch] = batches([gold, other])
    assert sorted(texts_of([gold, other], batch)) == ["内科\nx", "外科\nx"]
    assert batch.masked.sum() == 2  # each row's other version


def test_passages_of_documents_that_the_instance_lists_as_right_are_masked() -> None:
    repost = {"query_id": "d1", "right_ids": ["d2"]}
    asked = DprInstance("a?", ("a",), (DprContext("", "a", "d1"),), extra=repost)
    again = DprInstance("b?", ("b",), (DprContext("", "b", "d2"), DprContext("", "b2", "d2#2")))
    other = DprInstance("c?", ("c",), (DprContext("", "c", "d3"),), hard_negative_ctxs=(DprContext("", "x", "d1#2"),))
    compiled = compile_rows([asked, again, other], DprSettings())
    by_text = {text: compiled.keys[number] for number, text in enumerate(compiled.passages)}
    assert compiled.rows[0].right == {by_text[text] for text in ("a", "b", "b2", "x")}
    assert compiled.rows[2].right == {by_text["c"]}
    [batch] = batches([asked, again, other])
    masked = {
        (compiled.questions[batch.questions[i]], compiled.passages[batch.passages[j]])
        for i, j in np.argwhere(batch.masked)
    }
    assert masked == {("a?", "b"), ("a?", "x")}  # another row's gold, and what was mined for another row


def test_mined_negatives_take_turns_over_the_epochs() -> None:
    rows = [instance("a?", ["a"], ["n1", "n2"], ["h1", "h2", "h3"]), instance("b?", ["b"])]
    found = []
    for epoch in range(3):
        [batch] = batches(rows, epoch, negatives=1, hard_negatives=2)
        found.append(set(texts_of(rows, batch)) - {"a", "b"})
    assert found == [{"n1", "h1", "h2"}, {"n2", "h3", "h1"}, {"n1", "h2", "h3"}]


def test_none_wanted_leaves_the_golds_alone() -> None:
    [batch] = batches([instance("a?", ["a"], ["n"], ["h"]), instance("b?", ["b"])], negatives=0, hard_negatives=0)
    assert len(batch.passages) == 2


def test_the_domain_stands_in_front_of_the_question_when_asked_for() -> None:
    row = DprInstance("怎么办", ("a",), (context("a"),), domain=("内科", "心血管"))
    assert compile_rows([row], DprSettings(domain_in_question=True)).questions == ["内科,心血管怎么办"]
    assert compile_rows([row], DprSettings()).questions == ["怎么办"]


@given(st.integers(2, 40), st.integers(2, 9), st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_has_every_question_once_in_batches_of_like_size(n: int, size: int, seed: int, epoch: int) -> None:
    settings = DprSettings(batch_size=size, seed=seed)
    rows = compile_rows(random_instances(n), settings)
    found = list(epoch_batches(rows, settings, epoch))
    assert len(found) == n_batches(rows, settings)
    assert sorted(np.concatenate([batch.questions for batch in found])) == list(range(n))
    sizes = [len(batch.questions) for batch in found]
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    for batch in found:
        assert len(set(batch.passages)) == len(batch.passages)
        assert not batch.masked[np.arange(len(batch.targets)), batch.targets].any()


def test_the_order_depends_on_seed_and_epoch_only() -> None:
    rows = random_instances(30)

    def order(epoch: int, seed: int) -> list[int]:
        return [int(q) for batch in batches(rows, epoch, seed=seed, batch_size=4) for q in batch.questions]

    assert order(1, 7) == order(1, 7)
    assert order(0, 7) != order(1, 7)
    assert order(0, 7) != order(0, 8)


@pytest.mark.parametrize("name", ["epochs", "batch_size", "learning_rate", "query_tokens", "scale"])
def test_unusable_settings_are_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1: allowed are"):
        DprSettings(**{name: -1})


def test_settings_survive_json_and_unknown_names_are_refused() -> None:
    settings = DprSettings(epochs=3, scale=20.0)
    assert DprSettings.from_dict(settings.to_dict()) == settings
    with pytest.raises(ValueError, match="no setting batchsize"):
        DprSettings.from_dict({"batchsize": 3})
