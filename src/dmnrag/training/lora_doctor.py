"""What goes wrong in fine-tuning, with the cure: refused where nothing good can come of it, else warned of.

Knows cards, rows and figures; nothing of models.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dmnrag.data.split import Leakage
from dmnrag.errors import DataError
from dmnrag.llm.encoding import PromptEncoder
from dmnrag.training.doctor import LossWatch, TrainingError, check_losses
from dmnrag.training.lora_rows import Row
from dmnrag.types import Prompt

FEWEST = 2
"""Training questions; one alone is learnt by heart."""

MANY_CUT, MOST_CUT = 0.05, 0.5
"""Share of answers without their end: worth a word; more answers that never end than answers that do."""

MANY_GOLDS = 0.02
"""Share of prompts whose documents say the answer. The split leaves none of these among test questions."""

MANY_DOCUMENTS_CUT = 0.2
MANY_WITHOUT_DOCUMENTS = 0.1

NO_READING = 0.005
"""Other documents change the loss by less than this share: the model does not read them."""


def check_card(card: Mapping[str, Any]) -> list[str]:
    """Refuse a training set that teaches copying, or none at all; returns warnings.

    Raises:
        DataError: fewer than two questions, or a question's own document or a re-post among those it is shown.
    """
    if card["questions"] < FEWEST:
        reasons = "; ".join(f"{left['n']:,}: {reason}" for reason, left in card["left_out"].items())
        raise DataError(
            f"{card['questions']} training questions: at least {FEWEST} are needed ({reasons or 'the index is small'})"
        )
    if card["own_documents"]:
        raise DataError(
            f"{card['own_documents']:,} prompts show the question's own document or a re-post of it: the model would "
            "learn to copy. Build the set from the index with `dmnrag finetune`, which leaves them out"
        )
    n = card["questions"] + card["dev_questions"]
    warnings = [f"{left['n']:,} questions left out: {reason}" for reason, left in card["left_out"].items()]
    if card["gold_among_documents"] > MANY_GOLDS:
        warnings.append(
            f"the right answer stands in the documents of {card['gold_among_documents']:.1%} of the prompts, and in "
            "none of a test question: the model learns to copy it. Join stock answers or remove the doubles from the "
            "data"
        )
    if card["without_documents"] > MANY_WITHOUT_DOCUMENTS:
        warnings.append(
            f"{card['without_documents']:.1%} of the prompts show no document: lower answer_tokens, raise max_length, "
            "or look whether the questions are found at all (dmnrag search)"
        )
    if card["documents_cut"] > MANY_DOCUMENTS_CUT:
        warnings.append(
            f"documents were cut in {card['documents_cut']:.1%} of the prompts: raise max_length, or take fewer (-k)"
        )
    if card["answers_cut_at_stop"] > MANY_CUT * n:
        warnings.append(
            f"{card['answers_cut_at_stop']:,} of {n:,} answers hold a stop string of the template and end there, as "
            "generated ones would: use a template with other stop strings to teach them whole"
        )
    return warnings


def check_split(leakage: Leakage, folder: str) -> None:
    """Refuse an index that holds a question or an answer of its test split.

    Raises:
        DataError: says how many.
    """
    if leakage.doc_ids:
        shown = ", ".join(sorted(leakage.doc_ids)[:5])
        raise DataError(
            f"{folder} holds {len(leakage.doc_ids):,} documents with a question or an answer of its test split "
            f"({shown}): figures on that split would mean nothing. Remove them (dmnrag remove)"
        )


def check_rows(rows: Sequence[Row]) -> list[str]:
    """Refuse rows of which nothing can be learnt; returns warnings.

    Raises:
        DataError: every label is masked, or most answers are cut.
    """
    if all(row.n_answer <= 1 for row in rows):  # the end token alone
        raise DataError(
            "all labels are masked: no answer has a token. Look at the answer column of the data, and whether the "
            "model knows the answers' language"
        )
    cut = sum(row.cut for row in rows) / len(rows)
    cure = "raise answer_tokens (and max_length), or train on shorter answers"
    if cut > MOST_CUT:
        raise DataError(f"{cut:.1%} of the answers are cut before their end: the model would never end one; {cure}")
    return [f"{cut:.1%} of the answers are cut before their end: {cure}"] if cut > MANY_CUT else []


def check_prompts(trained: Sequence[Prompt], inference: Sequence[Prompt], encoder: PromptEncoder) -> None:
    """Refuse an adapter that would be asked otherwise than it was trained.

    Args:
        trained: the prompts of the training set.
        inference: what `ask --adapter` makes of the same questions and documents.
        encoder: of the model with the adapter.

    Raises:
        TrainingError: shows the first difference in tokens.
    """
    for ours, theirs in zip(trained, inference, strict=True):
        before, now = encoder.encode(ours), encoder.encode(theirs)
        if before == now:
            continue
        at = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now)))
        raise TrainingError(
            f"the prompt at training differs from that at inference: {len(before)} and {len(now)} tokens, "
            f"different from token {at} on. Template, index or chat template changed meanwhile: train again"
        )


def loss_watch() -> LossWatch:
    """For the loss of each step, as in training a retriever."""
    return LossWatch(
        "base model",
        "the labels are masked, or the answers stand in the prompts or are all the same. Look at the training set",
    )


def check_curve(losses: Sequence[float]) -> list[str]:
    """Warn of a training loss that did not fall."""
    return check_losses(losses, "raise learning_rate, rank or epochs")


def check_dev(untrained: float, best: float, shuffled: float | None) -> list[str]:
    """Warn of an adapter that is no gain on the dev slice, or does not read its documents.

    Args:
        untrained: loss of the base model.
        best: loss of the adapter.
        shuffled: loss of the adapter with the documents of other questions.
    """
    warnings = []
    if best >= untrained:
        warnings.append(
            f"the adapter is not better than the base model (dev loss {best:.3f} against {untrained:.3f}): lower the "
            "learning rate, or give more questions"
        )
    if shuffled is not None and shuffled < best * (1 + NO_READING):
        warnings.append(
            f"the model hardly reads the documents: with those of other questions the dev loss is {shuffled:.3f} and "
            f"with its own {best:.3f}. Retrieve better ones, or take a larger model"
        )
    return warnings
