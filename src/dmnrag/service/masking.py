"""Personal data out of what an LLM is given: phone and identity numbers, e-mail addresses, bank cards.

Masked are the question, made whole with earlier ones, and the documents as they enter the prompt. Search works on the
words as they were typed. What clients see of a source: its excerpt is what the LLM was given, so masked; its question
and answers are those of the index. What masking finds and what it cannot: `dmnrag.text.masking`.
"""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from dmnrag.text.masking import mask_personal
from dmnrag.types import Document, Query


def should_mask(setting: str, llm: str) -> bool:
    """Whether an LLM gets masked text.

    Args:
        setting: One of `dmnrag.service.settings.MASKING`.
        llm: Its spec or `Generator.name`. External is a server (`openai:MODEL@URL`) on any other host than this one,
            also a container beside it.
    """
    return setting == "always" or (setting == "external" and _is_external(llm))


def mask_query(query: Query) -> Query:
    """The query with markers in its text."""
    return replace(query, text=mask_personal(query.text)[0])


def mask_documents(documents: Sequence[Document]) -> list[Document]:
    """The documents with markers in questions and answers; other columns enter no prompt and stay."""
    return [
        replace(
            document,
            question=mask_personal(document.question)[0],
            answers=tuple(mask_personal(answer)[0] for answer in document.answers),
        )
        for document in documents
    ]


def _is_external(llm: str) -> bool:
    kind, _, rest = llm.partition(":")
    if kind != "openai":
        return False
    host = _host(rest.partition("@")[2])
    if host == "localhost":
        return False
    try:
        return not ip_address(host).is_loopback
    except ValueError:  # a name, or nothing that could be read: not known to be this machine
        return True


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
