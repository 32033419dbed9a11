"""Fill a template within a token budget.

The question and the domain are never cut; a space breaks marks of the fence in them, as in documents. Documents
leave from the last; the first that does not fit whole is cut at a sentence end. Tokens are counted by the caller's
`count`, on the whole prompt, because tokens of parts do not add up; binary search keeps the calls few. Knows no model
and no retriever.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dmnrag.errors import PromptError, PromptTooLongError
from dmnrag.prompts.template import Template
from dmnrag.types import Document, Excerpt, Position, Prompt, Query

# A full stop counts only before white space or at the end: 135.5 and e.g. inside a word stay whole.
_SENTENCE_END = re.compile(r"(?:[。！？!?；;…\n]+|\.(?=\s|$))[”’\"'』」】）)]*")


def build_prompt(
    template: Template,
    position: Position,
    query: Query,
    documents: Sequence[Document],
    *,
    count: Callable[[Prompt], int],
    budget: int | None = None,
) -> Prompt:
    """The prompt for one question (eq. 1, 3, 4), documents best first.

    Args:
        count: Tokens of a prompt as the model will see it, such as `Generator.prompt_tokens`.
            Called about 2 + log2(documents) + log2(sentences) times, once where everything fits.
        budget: Most tokens the prompt may have, the answer's share already taken off; None for no limit.

    Returns:
        A prompt whose excerpts say exactly what is shown of which document.

    Raises:
        PromptError: front or rear for a question without a domain.
        PromptTooLongError: the question and the domain alone exceed the budget.
    """
    if position != "none" and not query.domain:
        raise PromptError(
            f"position {position!r} needs a domain and question {query.query_id!r} has none: "
            "give its domain, or use position 'none'"
        )
    draft = _Draft(template, position, query, documents)
    whole = draft.prompt(len(documents))
    if budget is None or count(whole) <= budget:
        return whole
    bare = draft.prompt(0)
    if (alone := count(bare)) > budget:
        raise PromptTooLongError(
            f"the question and the template alone have {alone} tokens, and the prompt may have {budget}: "
            "shorten the question, lower max_tokens, or use a model with a longer context"
        )

    def fits(prompt: Prompt) -> bool:
        return count(prompt) <= budget

    best, n_whole = _largest(draft.prompt, len(documents) - 1, fits, bare)
    return _with_part_of_next(draft, n_whole, fits, best)


@dataclass(frozen=True)
class _Draft:
    """One question's prompt with any number of its documents, the last one cut or not."""

    template: Template
    position: Position
    query: Query
    documents: Sequence[Document]

    def prompt(self, n_documents: int, last_answers: str | None = None) -> Prompt:
        """The first `n_documents`; `last_answers` replaces the answers of the last of them."""
        excerpts = [self._excerpt(number, None) for number in range(1, n_documents + 1)]
        if last_answers is not None:
            excerpts[-1] = self._excerpt(n_documents, last_answers)
        shown = self.template.separator.join(excerpt.text for excerpt in excerpts)
        values = {
            "question": self._without_marks(self.query.text),
            "domain": self._without_marks(self.template.label_separator.join(self.query.domain)),
            "documents": shown if excerpts else self.template.no_documents,
        }
        user = self.template.pattern(self.position).fill(values)
        return Prompt(user, self.template.system_text, tuple(excerpts), self.template.stop)

    def answers(self, number: int) -> str:
        """The answers of the document with this number, as its pattern shows them."""
        document = self.documents[number - 1]
        if "answers" in self.template.document_pattern.names:
            return self.template.answer_separator.join(document.answers)
        return document.answers[0] if document.answers else ""

    def _excerpt(self, number: int, cut_answers: str | None) -> Excerpt:
        document = self.documents[number - 1]
        answers = self.answers(number) if cut_answers is None else cut_answers
        values = {
            "number": str(number),
            "domain": self.template.label_separator.join(document.domain) or self.template.no_domain,
            "question": document.question,
            "answer": answers,
            "answers": answers,
        }
        fenced = {name: self._without_marks(value) for name, value in values.items()}
        text = self.template.document_pattern.fill(fenced)
        return Excerpt(number, document.doc_id, text, cut=cut_answers is not None)

    def _without_marks(self, text: str) -> str:
        """The text with every mark of the fence broken: a document stays inside, and a question makes no documents."""
        for mark in self.template.fence:
            while mark in text:  # Overlapping marks need more than one pass; each pass leaves fewer.
                text = text.replace(mark, f"{mark[0]} {mark[1:]}")
        return text


def _largest(
    make: Callable[[int], Prompt], most: int, fits: Callable[[Prompt], bool], smallest: Prompt
) -> tuple[Prompt, int]:
    """The largest prompt of size 1..most that was tested and fits, or `smallest` with 0."""
    best, low, high = smallest, 0, most
    while low < high:
        middle = (low + high + 1) // 2
        prompt = make(middle)
        if fits(prompt):
            best, low = prompt, middle
        else:
            high = middle - 1
    return best, low


def _with_part_of_next(draft: _Draft, n_whole: int, fits: Callable[[Prompt], bool], best: Prompt) -> Prompt:
    """`best` with as many sentences of the first document that does not fit whole as the budget allows."""
    if n_whole >= len(draft.documents):
        return best
    text = draft.answers(n_whole + 1)
    ends = [match.end() for match in _SENTENCE_END.finditer(text) if match.end() < len(text)]
    prompt, _ = _largest(lambda n: draft.prompt(n_whole + 1, text[: ends[n - 1]]), len(ends), fits, best)
    return prompt
