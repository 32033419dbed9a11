"""What a client may ask for, refused or brought within the operator's limits before anything is done for it."""

from dataclasses import replace

from dmnrag.errors import ConfigError, QueryError
from dmnrag.methods import find_method
from dmnrag.pipeline import check_question
from dmnrag.service.events import Asked
from dmnrag.service.faults import QuestionTooLong
from dmnrag.service.settings import ServeSettings
from dmnrag.types import GenerationSettings, Query


def checked(asked: Asked, settings: ServeSettings) -> Asked:
    """The question as it is worked on: without white space around it, max_tokens as they will be.

    An answer longer than the operator allows is not refused: clients of other services ask for thousands of tokens as a
    matter of course, and get as many as there are.

    Raises:
        QueryError: no word in the question, too long, or a k, method or temperature that cannot be.
    """
    question = asked.question.strip()
    check_question(Query("1", question))
    if len(question) > settings.trust.max_question_characters:
        raise QuestionTooLong(
            f"the question has {len(question):,} characters: at most "
            f"{settings.trust.max_question_characters:,} are allowed, shorten it"
        )
    k = settings.answer.k if asked.k is None else asked.k
    if not 1 <= k <= max(settings.answer.max_k, settings.answer.k):
        raise QueryError(f"k is {k}: allowed are whole numbers from 1 to {settings.answer.max_k}")
    longest = settings.answer.max_tokens
    max_tokens = longest if asked.max_tokens is None else min(asked.max_tokens, longest)
    temperature = settings.answer.temperature if asked.temperature is None else asked.temperature
    try:
        method = None if asked.method is None else find_method(asked.method).name
        GenerationSettings(max_tokens=max_tokens, temperature=temperature)
    except ConfigError as error:
        raise QueryError(str(error)) from error
    return replace(asked, question=question, method=method, max_tokens=max_tokens, temperature=temperature)
