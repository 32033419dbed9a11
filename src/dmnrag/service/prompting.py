"""From documents to the prompt and to the sources that clients see: defused, masked, cut to the LLM's context.

What clients see of a source is the document as the index has it, and its excerpt exactly as it stands in the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from dmnrag.grounding import defuse
from dmnrag.llm.adapters import AdapterRecord
from dmnrag.prompts import Template, build_prompt
from dmnrag.protocols import Generator
from dmnrag.service.events import Source
from dmnrag.service.lookup import Looked
from dmnrag.service.masking import mask_documents, mask_query, should_mask
from dmnrag.service.validity import validity
from dmnrag.types import Excerpt, Prompt


@dataclass(frozen=True, slots=True)
class Llm:
    """An LLM with what belongs to it."""

    generator: Generator
    template: Template
    adapter: AdapterRecord | None = None


def make_prompt(looked: Looked, llm: Llm, max_tokens: int, mask: str) -> Prompt:
    """The prompt for a question, `mask` one of `settings.MASKING`. May ask the LLM's server how long its context is.

    Raises:
        PromptTooLongError: the question alone does not fit.
    """
    query, documents = looked.query, [defuse(document, llm.template.fence) for document in looked.documents]
    if should_mask(mask, llm.generator.name):
        query, documents = mask_query(query), mask_documents(documents)
    context = llm.generator.context_tokens
    return build_prompt(
        llm.template,
        looked.method.position,
        query,
        documents,
        count=llm.generator.prompt_tokens,
        budget=None if context is None else context - max_tokens,
    )


def sources_of(
    looked: Looked, excerpts: Sequence[Excerpt], valid_until_column: str | None, today: date
) -> tuple[Source, ...]:
    """What was found, numbered as the prompt numbers it; a source that is not in the prompt has an empty excerpt."""
    shown = {excerpt.number: excerpt for excerpt in excerpts}
    sources = []
    for number, (hit, document) in enumerate(zip(looked.hits, looked.documents, strict=True), start=1):
        excerpt = shown.get(number)
        valid_until, outdated = validity(document, valid_until_column, today)
        sources.append(
            Source(
                number=number,
                doc_id=document.doc_id,
                domain=document.domain,
                score=hit.score,
                question=document.question,
                answers=document.answers,
                metadata=dict(document.metadata),
                excerpt="" if excerpt is None else excerpt.text,
                cut=excerpt is not None and excerpt.cut,
                valid_until=valid_until,
                outdated=outdated,
            )
        )
    return tuple(sources)
