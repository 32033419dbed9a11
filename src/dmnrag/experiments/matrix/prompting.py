"""The prompts of a cell, written from its evidence as it is kept: what the LLM reads is what the file says."""

from collections.abc import Sequence
from dataclasses import dataclass

from dmnrag.errors import PromptError
from dmnrag.experiments.records import Evidence
from dmnrag.prompts import Template, build_prompt
from dmnrag.protocols import Generator
from dmnrag.types import Document, Position, Prompt, Query


@dataclass(frozen=True, slots=True)
class Written:
    """A question's prompt, or why there is none."""

    query_id: str
    prompt: Prompt | None
    error: str | None = None


def write_prompts(
    rows: Sequence[Evidence],
    position: Position,
    template: Template,
    generator: Generator,
    max_tokens: int,
) -> list[Written]:
    """The prompt of each question, within the LLM's context. A question without a domain has none in its prompt."""
    context = generator.context_tokens
    budget = None if context is None else context - max_tokens
    written = []
    for row in rows:
        query = Query(row.query_id, row.question, row.domain)
        documents = [Document(d.doc_id, d.question, d.answers, d.domain) for d in row.documents]
        try:
            prompt = build_prompt(
                template,
                position if row.domain else "none",
                query,
                documents,
                count=generator.prompt_tokens,
                budget=budget,
            )
        except PromptError as error:
            written.append(Written(row.query_id, None, f"{type(error).__name__}: {error}"))
        else:
            written.append(Written(row.query_id, prompt))
    return written
