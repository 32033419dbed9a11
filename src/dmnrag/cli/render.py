"""Hits, answers and figures as JSON (documented shapes) and as text for a terminal."""

from collections.abc import Iterable, Sequence
from typing import Any

from dmnrag.domain import Inference
from dmnrag.types import Answer, Document, Domain, Hit

_SHOWN_CHARACTERS = 160
"""Longest text shown of a question or answer in a list of hits; --json gives all."""


def hit_to_dict(hit: Hit, document: Document) -> dict[str, Any]:
    """The documented shape of a hit; metadata only where the index keeps some."""
    row: dict[str, Any] = {
        "rank": hit.rank,
        "doc_id": hit.doc_id,
        "score": hit.score,
        "domain": list(document.domain),
        "question": document.question,
        "answers": list(document.answers),
    }
    if document.metadata:
        row["metadata"] = dict(document.metadata)
    return row


def search_to_dict(
    question: str,
    domain: Domain,
    layer: str,
    hits: Sequence[Hit],
    documents: Sequence[Document],
    inferred: Inference | None = None,
) -> dict[str, Any]:
    """The documented shape of `search --json`; `inferred` only where the domain was."""
    return {
        "question": question,
        "domain": list(domain),
        **({} if inferred is None else {"inferred": inferred_to_dict(inferred)}),
        "layer": layer,
        "hits": [hit_to_dict(h, d) for h, d in zip(hits, documents, strict=True)],
    }


def inferred_to_dict(inferred: Inference) -> dict[str, Any]:
    """The documented shape of an inference; the domain itself stands beside it."""
    return {
        "probability": inferred.probability,
        "abstained": inferred.abstained,
        "alternatives": [list(alternative) for alternative in inferred.alternatives],
    }


def answer_to_dict(
    question: str, layer: str, answer: Answer, documents: Sequence[Document], inferred: Inference | None = None
) -> dict[str, Any]:
    """The documented shape of `ask --json`."""
    prompt = f"{answer.prompt.system}\n\n{answer.prompt.user}" if answer.prompt.system else answer.prompt.user
    return {
        **search_to_dict(question, answer.domain, layer, answer.hits, documents, inferred),
        "method": answer.method,
        "llm": answer.llm,
        "answer": answer.text,
        "prompt": prompt,
        "citations": list(answer.citations),
        "unsupported": [list(span) for span in answer.unsupported],
        "withheld": answer.withheld,
        "finish_reason": answer.finish_reason,
        "usage": {
            "prompt_tokens": answer.usage.prompt_tokens,
            "completion_tokens": answer.usage.completion_tokens,
        },
        "timings_ms": {name: round(value, 1) for name, value in answer.timings_ms.items()},
    }


def hits_text(hits: Sequence[Hit], documents: Sequence[Document]) -> str:
    """A few lines per hit."""
    if not hits:
        return "no document matches"
    return "\n".join(_hit_lines(hit, document) for hit, document in zip(hits, documents, strict=True))


def _hit_lines(hit: Hit, document: Document) -> str:
    lines = [f"{hit.rank}. [{domain_text(document.domain)}] {document.doc_id}  score {hit.score:.4g}"]
    lines.append(f"   问 {shorten(document.question)}")
    lines.extend(f"   答 {shorten(answer)}" for answer in document.answers)
    lines.extend(f"   {name}: {shorten(value)}" for name, value in document.metadata.items())
    return "\n".join(lines)


def domain_text(domain: Domain) -> str:
    """Labels for people."""
    return " > ".join(domain) if domain else "no domain"


def shorten(text: str) -> str:
    """One line of at most `_SHOWN_CHARACTERS`."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 1] + "…"


def table_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns aligned for a terminal; Chinese characters count as two cells."""
    from rich.cells import cell_len

    lines = [list(header), *map(list, rows)]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(header))]
    padded = (
        "  ".join(text + " " * (width - cell_len(text)) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join(padded)
