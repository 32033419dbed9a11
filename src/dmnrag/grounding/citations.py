"""Citations as a contract: every `[n]` in the text is the number of an excerpt that the prompt held.

LLMs cite as `[1]`, `[1][3]`, `[1,3]`, `[1-3]`, `【1】`, `［资料１］`, `[[2]]` or `[1†source]`. All become `[1][3]`;
numbers that no excerpt has are removed, with the space or the parentheses that stood only for them. Brackets that hold
anything else (`[注意]`, `[2024年]`, `[text](address)`) stay as they are.

In code (between backticks) nothing is a citation: `[1, 2, 3]` stays, and `a[1]` becomes `a[ 1]`, which is the same
program. So a client may take every match of `\\[(\\d+)\\]` for a citation, wherever it stands.

What it cannot know: `[2024]` and `[120]` are removed where no excerpt has that number, `[1,3]` is read as two citations
even where a writer meant an interval. Ranges wider than `_WIDEST` (`[60-100]`) are values and stay.
"""

import re
from collections.abc import Collection

from dmnrag.text import normalise

CITATION = re.compile(r"\[(\d+)\]")
"""What a citation looks like to a client. `\\d` is a digit of any script, as in most languages' expressions."""

_LONGEST = 40
"""Characters within a bracket that are waited for; `[参考资料1、参考资料2、参考资料3]` has 19."""
_WIDEST = 20
"""Numbers in a range of citations, twice as many as prompts usually hold."""

_LABEL = (
    "参考资料|检索资料|参考文献|资料|来源|文献|文档|参考|引用|出处|片段|编号"
    r"|citations?|sources?|references?|documents?|excerpts?|refs?|docs?|no\.?|\^|#"
)
_NUMBER = rf"(?:(?:{_LABEL})[\s:.]*)*(\d+)"
_RANGE = re.compile(r"\s*(?:-|‐|‑|–|—|~|至|到)\s*")
_LIST = re.compile(r"\s*(?:,|、|;|和|及|与|或|&|and|\s)\s*")
_ITEM = re.compile(_NUMBER)
_SUFFIX = re.compile("†.*")
"""`1†source`, `1†L3-L5`: how some models were taught to cite."""

_TOKEN = re.compile(r"`{1,3}|[\[【［]|[\n \t\u3000（(）)、，,；;]|[^`\[【［\n \t\u3000（(）)、，,；;]+")
_BRACKET = re.compile(rf"([\[【［]{{1,2}})([^\[\]【】［］`\n]{{0,{_LONGEST}}})")
_CODE_BRACKET = re.compile(rf"\[(\d{{0,{_LONGEST}}})")
_CLOSING = "]】］"
_BEFORE = re.compile(r"[ \t\u3000]?[（(]?")
"""What may stand before a citation only for its sake."""
_BETWEEN = re.compile(r"[ \t\u3000]?[、，,；;]?[ \t\u3000]?")
"""What may stand behind a citation before the next."""
_OPEN_NUMBER = re.compile(r"\[\d*$")


class CitationFilter:
    """Takes an answer in pieces and gives it out with its citations in order.

    The joined output depends on the joined input alone. Held back are a bracket of at most 40 characters that is not
    closed, and white space and a mark around it. Linear in the length of the text. Not for several threads at once.
    """

    def __init__(self, numbers: Collection[int]) -> None:
        """`numbers`: those that may be cited."""
        self._numbers = frozenset(numbers)
        self._pending = ""
        self._out: list[str] = []
        self._tail = ""
        """The end of what was given out."""
        self._code = ""
        """The backticks that opened the code we are in."""
        self._run = ""
        """"kept" or "removed" behind a citation (of several, whether one was kept), else empty."""
        self._before = ""
        self._between = ""

    def feed(self, piece: str) -> str:
        """What is certain now."""
        self._pending += piece
        return self._work(final=False)

    def close(self) -> str:
        """What was held back."""
        text = self._work(final=True)
        self._settle("")
        return text + self._taken()

    def _work(self, final: bool) -> str:
        at = 0
        while at < len(self._pending):
            token = _TOKEN.match(self._pending, at)
            assert token is not None  # every character belongs to a token
            if token[0] in "[【［":
                used = self._bracket(at, final)
            elif token[0][0] == "`":
                used = self._backticks(token[0], final or token.end() < len(self._pending))
            else:
                used = self._other(token[0])
            if not used:
                break
            at += used
        self._pending = self._pending[at:]
        return self._taken()

    def _backticks(self, run: str, complete: bool) -> int:
        if len(run) < 3 and not complete:
            return 0
        self._plain(run)
        if self._code in ("", run):
            self._code = "" if self._code else run
        elif len(run) == 3:
            self._code = run
        return len(run)

    def _other(self, token: str) -> int:
        if token == "\n" and self._code != "```":
            self._code = ""  # a single backtick is as often a slip as code, which has no line break there
        if self._code or token not in " \t\u3000（(）)、，,；;":
            self._plain(token)
        elif self._run and _BETWEEN.fullmatch(self._between + token):
            self._between += token
        elif not self._run and _BEFORE.fullmatch(self._before + token):
            self._before += token
        elif not self._settle(token):
            if _BEFORE.fullmatch(token):
                self._before = token
            else:
                self._give(token)
        return len(token)

    def _bracket(self, at: int, final: bool) -> int:
        """Characters used of the bracket at `at`; 0: wait for more."""
        if self._code:
            return self._bracket_in_code(at, final)
        match = _BRACKET.match(self._pending, at)
        assert match is not None
        opening, inner, end = match[1], match[2], match.end()
        closed = end
        while closed < len(self._pending) and closed - end < len(opening) and self._pending[closed] in _CLOSING:
            closed += 1
        if closed == len(self._pending) and closed - end < len(opening) and len(inner) < _LONGEST and not final:
            return 0
        numbers = cited_numbers(inner) if closed - end == len(opening) else None
        if numbers is not None:
            self._cite([number for number in numbers if number in self._numbers])
            return closed - at
        # Digits that go on for longer than we wait: a space keeps the rest from looking like a citation.
        self._plain(opening[0] + " " * (len(inner) == _LONGEST and inner.isdecimal()))
        return 1

    def _bracket_in_code(self, at: int, final: bool) -> int:
        match = _CODE_BRACKET.match(self._pending, at)
        if match is None:
            self._plain(self._pending[at])
            return 1
        digits, following = match[1], self._pending[match.end() : match.end() + 1]
        if not following and len(digits) < _LONGEST and not final:
            return 0
        self._plain("[ " + digits if digits and (following == "]" or len(digits) == _LONGEST) else match[0])
        return match.end() - at

    def _cite(self, numbers: list[int]) -> None:
        if not numbers:
            self._run = self._run or "removed"
            self._between = ""
            return
        self._give((self._between if self._run == "kept" else self._before) + "".join(f"[{n}]" for n in numbers))
        self._run, self._before, self._between = "kept", "", ""

    def _plain(self, text: str) -> None:
        """Text that is no citation."""
        self._settle(text)
        self._give(text)

    def _settle(self, following: str) -> bool:
        """Give out what was held around citations, now that `following` comes next; True: that goes with them."""
        run, before, between = self._run, self._before, self._between
        self._run = self._before = self._between = ""
        if run != "removed":
            self._give(before + between)
            return False
        paired = before[-1:] in ("（", "(") and following in ("）", ")") and not between.strip()
        self._give(self._without_citation(before, between, following, paired))
        return paired

    def _without_citation(self, before: str, between: str, following: str, paired: bool) -> str:
        """What stays of what stood around removed citations."""
        if before[-1:] in ("（", "("):
            kept = "" if paired else before
        elif self._tail[-1:] in ("", "\n"):
            kept = ""
        elif between.strip():
            kept = between
        elif between:
            kept = between if following[:1].isalnum() else ""
        else:
            kept = before if _is_latin(self._tail[-1:]) and _is_latin(following[:1]) else ""
        # `[4[9]2]` without [9] must not become a citation.
        return kept or " " * bool(_OPEN_NUMBER.search(self._tail))

    def _give(self, text: str) -> None:
        self._out.append(text)
        self._tail = (self._tail + text)[-_LONGEST - 2 :]

    def _taken(self) -> str:
        text, self._out = "".join(self._out), []
        return text


def cited_numbers(inner: str) -> list[int] | None:
    """The numbers that the inside of a bracket cites, each once; None where it is no citation."""
    text = _SUFFIX.sub("", normalise(inner)).strip()
    numbers: list[int] = []
    at = 0
    ranged = False
    while item := _ITEM.match(text, at):
        number = int(item[1])
        if ranged:
            if not 0 < number - numbers[-1] < _WIDEST:
                return None
            numbers += range(numbers[-1] + 1, number)
        numbers.append(number)
        if item.end() == len(text):
            return list(dict.fromkeys(numbers))
        between = _RANGE.match(text, item.end())
        ranged = between is not None
        between = between or _LIST.match(text, item.end())
        if between is None:
            return None
        at = between.end()
    return None


def citations_of(text: str) -> tuple[int, ...]:
    """The numbers that a text cites as `[n]`, in the order of their first use."""
    return tuple(dict.fromkeys(int(number) for number in CITATION.findall(text)))


def _is_latin(character: str) -> bool:
    return character.isascii() and character.isalnum()
