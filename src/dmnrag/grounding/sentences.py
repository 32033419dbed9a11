"""Which finished sentences of an answer no excerpt supports.

Sentences end as `text.split_sentences` has it. Of each, the clauses that state something are held against every
excerpt with the calibrated threshold of `support`; the sentence is unsupported where less than half of their
characters stand in supported clauses. Not judged are headings, questions and wishes, clauses that say that the sources
do not suffice (with what follows, up to a "but"), and sentences in another script than all excerpts, because overlap
of characters says nothing across languages. In scripts with words between spaces the overlap is coarse.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dmnrag.grounding.citations import CITATION
from dmnrag.grounding.support import bigram_set, calibration, clauses, overlap_with
from dmnrag.text import normalise, split_sentences
from dmnrag.text.characters import CJK_CHARACTER

_LEADING = re.compile(r"(?:\[\d+\]|\s)*")
"""Citations at the start belong to the sentence before."""
_NO_STATEMENT = re.compile(r"^\s*#|^\s*\*\*[^*]*\*\*\s*$|[:：?？](?:\*\*)?[\s”’」』)）\"']*$")
"""Headings, lead-ins to a list, questions."""

# On clauses as `support.clauses` gives them: lower-case letters and digits only.
_WISH = re.compile("^(?:希望.{0,16}帮[助到]|祝您?|感谢您?)|^感谢|^hope(?:this|it)helps")
_INSUFFICIENT = re.compile(
    "(?:资料|来源|文献|信息|依据|检索结果|证据).{0,12}?"
    "(?:不足|不够|没有|未|无法|缺少|缺乏|不包含|不能|不涉及|有限)"
    "|(?:没有|缺少|缺乏|未(?:能)?(?:找到|检索到)|无).{0,8}(?:资料|来源|文献|信息|依据|证据)"
    "|(?:无法|不能|难以|不足以).{0,12}(?:回答|判断|确定|得出)"
    "|(?:sources?|excerpts?|documents?|information|context|materials?|evidence).{0,24}"
    "(?:donot|doesnot|dont|doesnt|isnot|arenot|insufficient|notenough|lack|cannot)"
    "|(?:notenough|insufficient|no|lackof)(?:information|evidence|sources?)"
    "|cannot(?:be)?answer"
)
_BUT = re.compile("^(?:但|不过|然而|可是|只是|however|but|nevertheless)")
_CJK = re.compile(CJK_CHARACTER)
_SPACED = re.compile(r"[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` (exclusive) of the text that reached the client."""

    start: int
    end: int


class SupportWatch:
    """Takes an answer in pieces and names each unsupported sentence when it is finished.

    A sentence is finished when the next begins, or the answer ends. Linear in the length of the text.
    """

    def __init__(self, excerpts: Sequence[str]) -> None:
        """`excerpts`: their texts as given to the LLM."""
        self._held = [bigram_set(text) for text in excerpts]
        self._scripts = frozenset[bool]().union(*map(_scripts, excerpts))
        self._sentence = ""
        self._start = 0

    def feed(self, text: str) -> list[Span]:
        """Unsupported sentences that `text` finishes."""
        self._sentence += text
        *finished, self._sentence = split_sentences(self._sentence) or [""]
        return self._judged(finished)

    def close(self) -> list[Span]:
        """The last sentence, where it is unsupported."""
        rest, self._sentence = self._sentence, ""
        return self._judged([rest])

    def _judged(self, sentences: Sequence[str]) -> list[Span]:
        spans = []
        for sentence in sentences:
            if not self._is_supported(sentence):
                leading = _LEADING.match(sentence)
                assert leading is not None  # it matches the empty string
                spans.append(Span(self._start + leading.end(), self._start + len(sentence.rstrip())))
            self._start += len(sentence)
        return spans

    def _is_supported(self, sentence: str) -> bool:
        bare = CITATION.sub("", sentence)
        if _NO_STATEMENT.search(bare) or (self._scripts and not self._scripts & _scripts(bare)):
            return True
        stated = _stated(clauses(bare))
        threshold = calibration().threshold
        supported = sum(len(clause) for clause in stated if overlap_with(clause, self._held) >= threshold)
        return 2 * supported >= sum(map(len, stated))


def _stated(found: Sequence[str]) -> list[str]:
    """The clauses that a source would have to support."""
    stated = []
    insufficient = False
    for clause in found:
        insufficient = (insufficient and not _BUT.match(clause)) or _INSUFFICIENT.search(clause) is not None
        if not insufficient and not _WISH.match(clause):
            stated.append(clause)
    return stated


def _scripts(text: str) -> frozenset[bool]:
    """True for a script without spaces (CJK), False for letters; a text with CJK counts as that alone."""
    clean = normalise(text)
    if _CJK.search(clean):
        return frozenset({True})
    return frozenset({False}) if _SPACED.search(clean) else frozenset({True, False})
