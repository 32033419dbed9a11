"""What a service with a store keeps: answers as they were shown, votes on them, and their deletion.

The store waits for the disk, so routes that use it themselves are plain functions: FastAPI runs them in threads.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from dmnrag.service.asking import Parts
from dmnrag.service.http_errors import ServiceError, error_docs
from dmnrag.service.keys import Key
from dmnrag.service.schemas import DeletedBody, FeedbackBody, FeedbackRequest, StoredBody, stored_body

_Id = Annotated[str, Path(description="Of `/v1/answer`.", max_length=64)]


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["what is kept"])

    @routes.get(
        "/v1/answers/{answer_id}",
        summary="Show an answer again",
        responses=error_docs(400, 401, 404, 429, 500),
    )
    async def stored(request: Request, answer_id: _Id) -> StoredBody:
        """The answer with its sources as they were when it was given, whatever became of the index since.

        A service without a store remembers the latest answers until it stops.
        """
        key: Key | None = request.state.key
        found = await parts.engine.stored(answer_id, request.state.owner)
        if found is None or not found.visible_to(None if key is None else key.domains):
            raise ServiceError(404, "answer_unknown", "no such answer is kept for you: it may have been deleted")
        return stored_body(found)

    @routes.delete(
        "/v1/answers/{answer_id}",
        summary="Delete an answer",
        responses=error_docs(400, 401, 429, 500),
    )
    async def delete_answer(request: Request, answer_id: _Id) -> DeletedBody:
        """Question, answer, sources and feedback; `deleted` is 0 where there is no such answer of this key."""
        return DeletedBody(deleted=await parts.engine.forget(request.state.owner, answer_id))

    @routes.delete(
        "/v1/me",
        summary="Delete everything of this key",
        responses=error_docs(401, 403, 429, 500),
    )
    async def delete_me(request: Request) -> DeletedBody:
        """All questions that were asked with this API key, with their answers and feedback.

        Refused by a service without keys, which does not know whose a question is: delete answers by their id there.
        """
        if not parts.with_keys:
            raise ServiceError(403, "keys_needed", "without API keys nobody knows whose a question is: delete by id")
        return DeletedBody(deleted=await parts.engine.forget(request.state.owner))

    @routes.post(
        "/v1/feedback",
        summary="Say whether an answer was good",
        responses=error_docs(400, 401, 404, 409, 413, 429, 500),
    )
    def feedback(request: Request, body: FeedbackRequest) -> FeedbackBody:
        """A vote with a comment; a second one takes the place of the first. On the disk when this returns."""
        parts.store.add_feedback(body.answer_id, request.state.owner, body.good, body.comment)
        return FeedbackBody()

    return routes
