"""Why a question is not answered now although nothing is wrong with it. The HTTP part gives each its status."""

from dmnrag.errors import DmnragError, QueryError


class QueueFull(DmnragError):
    """As many wait as may (429). `retry_after_s` is estimated from how long recent answers took."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotReady(DmnragError):
    """Index or LLM are loading or unusable, the turn did not come in time, or the service stops (503)."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class AnswerTimeout(DmnragError, TimeoutError):
    """Searching took too long, or the LLM wrote nothing in the time of an answer (504)."""


class QuestionTooLong(QueryError):
    """More characters than the operator allows."""
