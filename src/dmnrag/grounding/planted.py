"""Makes instructions that were planted in retrieved text harmless before the text enters a prompt.

A sentence that speaks to the LLM instead of the reader is replaced by a visible marker: it tells to ignore what came
before, to give away the prompt, to play a part, to answer in another form or without citations; it pretends to be
another role, a control token, a mark of the fence or the heading of another source. Everything else stays byte for
byte.

Sentences are seen in compatibility form, lower case, without zero-width characters; white space between ideographs or
between single letters does not hide them. Patterns know the forms that attacks commonly have, in Chinese and English,
and no others: an instruction in new words, another language or an encoding passes. What then still holds is what the
client gets: `citations` and `guard` act on the answer, whatever the LLM was told.

The question is not altered: it is the user's own to instruct. `prompts.build` keeps it from faking the fence.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from dmnrag.grounding.planted_patterns import CHINESE, DISGUISE, ENGLISH
from dmnrag.llm.control_text import KNOWN_SPELLINGS
from dmnrag.text import normalise, split_sentences
from dmnrag.text.characters import CJK_CHARACTER
from dmnrag.types import Document

MARKER = "〔已略去一句指令〕"
"""Stands for one planted sentence or several in a row."""

_CONTROL = re.compile(KNOWN_SPELLINGS.pattern, re.IGNORECASE)
_FULL_STOP = re.compile(r"(?<=[.])(?=\s)")
_LINE_ENDS = ("\n", "\r", "\u2028", "\u2029")
_ENDED = re.compile(r"[。！？；!?;.]\s*$")
_CJK = re.compile(CJK_CHARACTER)
_LATIN = re.compile("[a-z]{4}")
"""Shorter than any English instruction."""
_NEITHER = re.compile(r"[\W_]+")
_SPACED_OUT = re.compile(r"(?<!\w)(?:[a-z0-9] ){3,}[a-z0-9](?!\w)")
_AROUND_CJK = re.compile(rf"(?<={CJK_CHARACTER}) | (?={CJK_CHARACTER})")


def defuse(document: Document, fence: Sequence[str] = ()) -> Document:
    """The document with every planted instruction replaced by `MARKER`; the same object where there is none.

    `fence`: the template's marks; a sentence with the words of one is replaced too, whatever brackets it has.
    Acts on question, answers and labels, which prompts show; metadata stays. Doing it twice changes nothing more.
    """
    words = tuple(bare for mark in fence if len(bare := _letters(mark)) > 1)
    question = _defused(document.question, words)
    answers = tuple(_defused(answer, words) for answer in document.answers)
    domain = tuple(_defused(label, words) for label in document.domain)
    if (question, answers, domain) == (document.question, document.answers, document.domain):
        return document
    return replace(document, question=question, answers=answers, domain=domain)


def _defused(text: str, fence: Sequence[str]) -> str:
    pieces = [piece for sentence in split_sentences(text) for piece in _FULL_STOP.split(sentence)]
    planted = [_is_planted(piece, fence) for piece in pieces]
    for i in range(len(pieces) - 1):
        wrapped = pieces[i].endswith(_LINE_ENDS) and pieces[i].strip() and not _ENDED.search(pieces[i])
        if wrapped and not (planted[i] or planted[i + 1]) and _is_planted(pieces[i] + pieces[i + 1], fence):
            planted[i] = planted[i + 1] = True
    if not any(planted):
        return text
    shown = []
    for i, (piece, is_planted) in enumerate(zip(pieces, planted, strict=True)):
        if not is_planted:
            shown.append(piece)
        elif i + 1 == len(pieces) or not planted[i + 1]:
            shown.append(MARKER + piece[len(piece.rstrip()) :])
    return "".join(shown)


def _is_planted(sentence: str, fence: Sequence[str]) -> bool:
    clean = normalise(sentence)
    if DISGUISE.match(clean) or _CONTROL.search(clean):
        return True
    letters = _NEITHER.sub("", clean)
    if any(mark in letters for mark in fence) or (_CJK.search(letters) and CHINESE.search(letters)):
        return True
    if not _LATIN.search(letters):
        return False
    words = _NEITHER.sub(" ", clean).strip()
    words = _SPACED_OUT.sub(lambda match: match[0].replace(" ", ""), _AROUND_CJK.sub("", words))
    return ENGLISH.search(words + " ") is not None


def _letters(text: str) -> str:
    return _NEITHER.sub("", normalise(text))
