"""What the doctor of fine-tuning refuses and warns of, each case by its cure."""

from typing import Any

import pytest
from lora_tiny import CHATML, make_tokenizer

from dmnrag.data.split import Leakage
from dmnrag.errors import DataError
from dmnrag.llm.encoding import PromptEncoder
from dmnrag.training.doctor import TrainingError
from dmnrag.training.lora_card import LeftOut, make_lora_card
from dmnrag.training.lora_doctor import (
    check_card,
    check_curve,
    check_dev,
    check_prompts,
    check_rows,
    check_split,
    loss_watch,
)
from dmnrag.training.lora_examples import LoraExample
from dmnrag.training.lora_rows import Row
from dmnrag.training.negatives_pool import Pool
from dmnrag.types import Document, Excerpt, Prompt

DOCUMENTS = [
    Document("a", "高血压怎么办", ("高血压的人要少吃盐，每天量血压，按时吃药，不要喝酒。",)),
    Document("b", "请问高血压怎么办", ("高血压的人要少吃盐，每天量血压，按时吃药，不要喝酒了。",)),
    Document("c", "发烧怎么办", ("发烧要多喝水，注意休息。", "体温高就去医院。")),
    Document("d", "头疼怎么办", ("头疼的原因很多，先量血压。",)),
]


def example(doc_id: str, *shown: str, cut: bool = False) -> LoraExample:
    by_id = {document.doc_id: document for document in DOCUMENTS}
    excerpts = tuple(Excerpt(n, other, by_id[other].answers[0], cut) for n, other in enumerate(shown, start=1))
    return LoraExample(doc_id, Prompt("q", excerpts=excerpts), by_id[doc_id].answers[0])


def card(*examples: LoraExample, n_cut_at_stop: int = 0, left_out: LeftOut | None = None) -> dict[str, Any]:
    return make_lora_card(Pool(DOCUMENTS), examples, (), left_out or LeftOut(), n_cut_at_stop)


def test_a_sound_set_gives_no_warning() -> None:
    found = card(example("a", "c", "d"), example("c", "a", "d"))
    assert check_card(found) == []
    assert found["documents_shown"] == 2.0
    assert found["several_answers"] == 1


def test_the_own_document_and_a_repost_are_refused() -> None:
    for other in ("a", "b"):
        with pytest.raises(DataError, match="1 prompts show the question's own document or a re-post"):
            check_card(card(example("a", other), example("c", "d")))


def test_the_gold_among_the_documents_is_warned_of_by_its_share() -> None:
    leaking = LoraExample(
        "d", Prompt("q", excerpts=(Excerpt(1, "c", "见：发烧要多喝水 注意休息"),)), "发烧要多喝水，注意休息。"
    )
    found = card(leaking, example("a", "c"), example("c", "a"), example("d", "a"))
    assert found["gold_among_documents"] == 0.25
    (warning,) = check_card(found)
    assert "stands in the documents of 25.0% of the prompts" in warning


def test_few_questions_are_refused_with_the_reasons() -> None:
    left_out = LeftOut()
    assert not left_out.keep("c", "the answer is empty")
    assert not left_out.keep("c", "the answer is empty")
    with pytest.raises(DataError, match=r"1 training questions: at least 2 are needed \(1: the answer is empty\)"):
        check_card(card(example("a", "c"), left_out=left_out))


def test_prompts_without_documents_cut_documents_and_cut_answers_are_warned_of() -> None:
    found = card(example("a"), example("c", "d", cut=True), n_cut_at_stop=1)
    warnings = check_card(found)
    assert [w.split(":")[0] for w in warnings] == [
        "50.0% of the prompts show no document",
        "documents were cut in 50.0% of the prompts",
        "1 of 2 answers hold a stop string of the template and end there, as generated ones would",
    ]


def test_a_split_that_leaks_is_refused() -> None:
    check_split(Leakage((), ()), "i")
    with pytest.raises(DataError, match=r"holds 2 documents with a question or an answer of its test split \(x, y\)"):
        check_split(Leakage(("x",), ("y",)), "i")


def test_masked_labels_and_cut_answers() -> None:
    whole, cut, empty = Row((1, 9, 8, 2), 3, cut=False), Row((1, 9, 8, 8), 3, cut=True), Row((1, 2), 1, cut=False)
    assert check_rows([whole] * 20 + [cut]) == []  # 4.8 %
    assert check_rows([whole] * 9 + [cut])[0].startswith("10.0% of the answers are cut before their end: raise answer")
    with pytest.raises(DataError, match=r"66\.7% of the answers are cut"):
        check_rows([whole, cut, cut])
    with pytest.raises(DataError, match="all labels are masked"):
        check_rows([empty, empty])
    assert check_rows([empty, whole]) == []


def test_another_prompt_at_inference_is_refused_at_its_first_difference() -> None:
    encoder = PromptEncoder(make_tokenizer())
    check_prompts([Prompt("高血压")], [Prompt("高血压")], encoder)
    with pytest.raises(TrainingError, match="4 and 4 tokens, different from token 2 on"):
        check_prompts([Prompt("高血压")], [Prompt("高烧压")], encoder)
    with pytest.raises(TrainingError, match="4 and 5 tokens, different from token 4 on"):
        check_prompts([Prompt("高血压")], [Prompt("高血压吗")], encoder)
    chat = PromptEncoder(make_tokenizer(CHATML))
    with pytest.raises(TrainingError, match="differs"):
        check_prompts([Prompt("高", system="你")], [Prompt("高")], chat)


def test_losses_that_are_no_number_or_stay_zero_stop_the_run() -> None:
    for loss in (float("nan"), float("inf")):
        with pytest.raises(TrainingError, match="lower the learning rate"):
            loss_watch().check(loss, 3)
    watch = loss_watch()
    for step in range(4):
        watch.check(0.0, step)
    watch.check(0.5, 4)
    for step in range(5, 9):
        watch.check(0.0, step)
    with pytest.raises(TrainingError, match="the loss is 0 for 5 steps up to step 9"):
        watch.check(0.0, 9)


def test_a_flat_curve_and_a_dev_slice_without_gain() -> None:
    assert check_curve([2.0, 2, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4]) == []
    assert check_curve([2.0] * 8)[0].startswith("the loss did not fall (2.000 at first, 2.000 at the end)")
    assert check_dev(2.0, 1.5, 1.6) == []
    (no_gain,) = check_dev(2.0, 2.1, 2.4)
    assert "not better than the base model (dev loss 2.100 against 2.000)" in no_gain
    (not_read,) = check_dev(2.0, 1.5, 1.501)
    assert "hardly reads the documents" in not_read
    assert check_dev(2.0, 1.5, None) == []
