"""A follow-up question is made whole before it is searched: "那孩子呢？" means nothing without the question before it.

A rule decides, no LLM: the service also runs where none can follow an instruction, and a rule neither waits for a busy
LLM nor changes what a person asked. A question is a follow-up when it

- opens with a word that hangs on what came before (那, 还有, 如果, and, what about),
- is short and points back (它, 这种药, 上述, it, those), or
- is very short.

Then the person's questions before it, back to one that stands alone, are put in front, word for word. A complete
question stays as it is. Answers are left out: what an LLM once wrote must not become what is searched for. Measured on
questions that were cut in two: `benchmarks/followup.py`.
"""

import re
from collections.abc import Sequence

from dmnrag.service.events import Turn

MOST_TURNS = 3
"""Earlier questions that are put in front at most; a person who asks four times in a row for more of the same has long
named the subject again."""

_CJK = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_WORD = re.compile(r"[A-Za-z0-9]+(?:['’-][A-Za-z0-9]+)*|[\u3400-\u9fff\uf900-\ufaff]")

VERY_SHORT = 6
"""Length of a question that hardly names its subject (怎么治, why not); a Chinese character counts 1, another word 2.
At 7 the rule takes 9 % of medical_im's titles for follow-ups, at 6 2 % and 30 % of cut ends, at 4 16 % of these."""

SHORT = 16
"""Length of a question in which a pronoun is likely to point outside it; a longer one has room for what is meant."""

_OPENING = re.compile(
    r"\s*(?:那(?!种|些|个)|那么|还有(?!什么|哪|没有)|另外|此外|然后|接着|除此之外|除了这|如果(?:这样|不[^是]|没有?(?:呢|的话|效))|要是|不然|否则|但是|可是|"
    r"同样|"
    r"(?:and|but|or|so|also|then|otherwise|instead|what about|how about|what if|why not|same)\b)",
    re.IGNORECASE,
)

_POINTING = re.compile(
    r"它|(?<![其吉雷伐])[他她](?!人|定|汀)|这(?:个|种|些|样|类|药|病|情况|时)|那(?:个|种|些|样|类|时)|该(?:药|病|案|法|条|情况|行为|合同)|此(?:药|病|案|类|时)|"
    r"上述|上面|刚才|刚刚说|前面(?:说|提)|前者|后者|其中|"
    r"\b(?:it|its|they|them|their|theirs|this|that|these|those|he|him|his|she|her|hers|the former|the latter|"
    r"such|the same|the above)\b",
    re.IGNORECASE,
)


def is_follow_up(question: str) -> bool:
    """Whether a question needs those before it to be understood."""
    words = _WORD.findall(question)
    length = sum(1 if _CJK.match(word) else 2 for word in words)
    if length <= VERY_SHORT or _OPENING.match(question):
        return True
    return length <= SHORT and _POINTING.search(question) is not None


def whole_question(question: str, history: Sequence[Turn], most_characters: int) -> str:
    """The question as it is searched and answered.

    Args:
        question: as it was put.
        history: earlier messages, oldest first.
        most_characters: of the result; earlier questions are left out, the oldest first, before it is exceeded.
    """
    parts = [question]
    needed = most_characters - len(question)
    for text in reversed(earlier_questions(history)[-MOST_TURNS:]):
        needed -= len(text) + 1
        if not is_follow_up(parts[0]) or needed < 0:
            break
        parts.insert(0, text)
    return " ".join(parts)


def earlier_questions(history: Sequence[Turn]) -> list[str]:
    """What the person asked before, oldest first."""
    return [turn.text.strip() for turn in history if turn.role == "user" and turn.text.strip()]
