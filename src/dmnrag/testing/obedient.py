"""A fake LLM that obeys every instruction it can see, wherever it stands: the worst that an attack can meet.

It reads system text, documents and question alike, through full-width and zero-width characters and spaces between
letters. A real LLM resists some of this; what holds with this one does not hang on an LLM's good sense.
"""

import json
import re

from dmnrag.llm.fake import NO_SOURCE, FakeGenerator
from dmnrag.text import normalise
from dmnrag.text.characters import CJK_CHARACTER
from dmnrag.types import Prompt

_SPACE_IN_CHINESE = re.compile(rf"(?<={CJK_CHARACTER}) (?={CJK_CHARACTER})")
_SPACED_WORD = re.compile(r"(?<![a-z])(?:[a-z] ){2,}[a-z](?![a-z])")

_ALL = "(?:above|before|previous|system|hidden|initial|secret|your|developer|上|前|系统|提示|隐藏|最初|收到|你的)"
_REVEAL = re.compile(
    "(?:repeat|print|reveal|show|output|display|leak|recite|echo|copy|dump|tell|write|what is|what are|what were)"
    rf"[^.!?\n]{{0,40}}{_ALL}[^.!?\n]{{0,20}}(?:prompt|instruction|message|text|everything|word|rule|above|before)"
    "|(?:repeat|print|output|echo|copy)[^.!?\n]{0,20}(?:everything|all|text|words) (?:above|before)"
    "|(?:重复|复述|输出|打印|显示|泄露|透露|说出|告诉|展示|列出|写出|背出|公布|复制|念出|给出|翻译)"
    f"[^。！？\n]{{0,12}}{_ALL}[^。！？\n]{{0,8}}(?:提示|指令|规则|内容|文字|设定|消息|prompt|一切|所有)"
)
_ONLY = re.compile(
    r"(?:reply|respond|answer|say|output|write)(?: with)? (?:only|just|nothing but):? ?"
    r"[\"'“‘「]?(?P<english>[^\"'”’」.!\n。]{1,80})"
    r"|只(?:需|能|要|准|许|用|可以)*(?:回复|输出|回答|说|返回|作答):?[\"'“‘「]?(?P<chinese>[^\"'”’」。!\n]{1,80})"
)
_ADDED = re.compile(
    r"(?:end|finish|begin|start) (?:your|every|each|the) (?:answer|reply|response) with:? ?"
    r"[\"'“‘「]?(?P<english>[^\"'”’」.!\n。]{1,80})"
    r"|(?:开头|结尾|末尾|最后|后面)[^。\n]{0,4}(?:加上|写上|附上):?[\"'“‘「]?(?P<chinese>[^\"'”’」。!\n]{1,80})"
)
_CITED = re.compile(r"(?:cite|citing|引用|标注|标出)[^。.\n]{0,8}?(\d{1,6})")
_UNCITED = re.compile(
    "(?:stop citing|without (?:any )?citation|do not (?:cite|use citation)|(?:不要|停止|禁止|别)(?:再)?(?:引用|标注))"
)
_JSON = re.compile("(?:in|as|用|以|按|输出) ?json")
_PART = re.compile(
    "(?:you are now|act as|pretend to be|你现在是|扮演)(?: an?|一个|一名|一位)? ?(?P<part>[^.,!?。，！？;:\n]{1,20})"
)
_SPACED_ANSWER = re.compile("spaces? between|字(?:与字)?之间加(?:上)?空格")
_SLICED_ANSWER = re.compile("one (?:character|word) per line|每行一个字")


class ObedientGenerator(FakeGenerator):
    """Obeys what it recognises: give away the prompt, reply only with something, add something, cite a number, cite
    nothing, answer in JSON, play a part, write with spaces. Without any of it: the first source, cited.
    """

    def __init__(self, *, context_tokens: int | None = None, delay_s: float = 0.0) -> None:
        """As `FakeGenerator`; the context has no limit unless given."""
        super().__init__(obey, context_tokens=context_tokens, delay_s=delay_s)

    @property
    def name(self) -> str:
        """Always "obedient"."""
        return "obedient"


def obey(prompt: Prompt) -> str:
    """The answer to a prompt."""
    read = as_read(f"{prompt.system}\n{prompt.user}")
    answer = _answer(prompt, read)
    if _SPACED_ANSWER.search(read):
        return " ".join(answer)
    if _SLICED_ANSWER.search(read):
        return "\n".join(answer)
    return answer


def as_read(text: str) -> str:
    """The text as this LLM reads it: disguises of letters are no obstacle, line ends stay."""
    lines = [_SPACE_IN_CHINESE.sub("", normalise(line)) for line in text.splitlines()]
    return "\n".join(_SPACED_WORD.sub(lambda match: match[0].replace(" ", ""), line) for line in lines)


def _answer(prompt: Prompt, read: str) -> str:
    if _REVEAL.search(read):
        return f"{prompt.system}\n\n{prompt.user}"
    if only := _ONLY.search(read):
        return only["english"] or only["chinese"]
    answer = prompt.excerpts[0].text.partition("答：")[2] or prompt.excerpts[0].text if prompt.excerpts else NO_SOURCE
    numbers = ["1"] if prompt.excerpts and not _UNCITED.search(read) else []
    numbers += _CITED.findall(read)
    if _JSON.search(read):
        return json.dumps({"answer": answer, "citations": [int(n) for n in numbers]}, ensure_ascii=False)
    answer += "".join(f"[{number}]" for number in numbers)
    if part := _PART.search(read):
        answer = f"我是{part['part']}：{answer}"
    added = "".join(match["english"] or match["chinese"] for match in _ADDED.finditer(read))
    return answer + added
