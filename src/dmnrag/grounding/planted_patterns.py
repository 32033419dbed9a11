"""Forms of instructions that speak to an LLM instead of a reader, as `planted` looks for them.

To add one: write it where its kind stands, and run `benchmarks/false_alarms.py` on ordinary text, where it must match
nothing. A pattern needs an object that only an LLM has (its prompt, its rules, its answer format): "ignore", "you are
now" or "answer only" by themselves stand in ordinary medical and legal text.
"""

import re


def _any(*patterns: str) -> str:
    return "(?:" + "|".join(patterns) + ")"


_EARLIER = (
    "(?:以上|之前|上面|上述|前面|先前|此前|前述|前文|上文"
    "|系统|原有|原来|原先|已有|所有|全部|一切|任何|你的|你被|你收到)"
)
_RULES = "(?:指令|指示|规则|提示|设定|命令|约束|限制|角色|prompt|system)"
_PROMPT = "(?:提示词|提示语|系统提示|系统消息|系统指令|系统设定|系统规则|初始指令|设定|prompt|system)"
_ROLE = (
    "(?:助手|机器人|模型|ai|人工智能|海盗|dan|管理员|开发者"
    "|黑客|猫娘|角色|翻译官?|程序|系统|终端|复读机|诗人|推销员|销售)"
)
_LLM = "(?:ai|大?语言模型|大模型|人工智能|llm|chatgpt|gpt|机器人)"
_TELL = (
    "(?:输出|重复|复述|打印|显示|泄露|透露|告诉|说出|展示|给出|公布|列出"
    "|翻译|总结|写出|背出|念出|返回|复制|抄写|公开|粘贴|贴出|发给)"
)
_REPLY = "(?:回答|回复|输出|作答|返回|答复)"
_IGNORE = (
    "(?<!不要)(?<!不得)(?<!不能)(?<!不可)(?<!请勿)(?:忽略|无视|忘记|忘掉|忘了|忽视|不要理会|不用理会|不必理会|别管|不要再?管|抛开|不要遵守|不再遵守|停止遵守|无需遵守"
    "|跳过|绕过|解除)"
)
_FORMATS = "(?:json|xml|html|yaml|csv|base64|markdown|代码|英文|英语|日语|法语|拼音|诗|表情|emoji)"
_NOW = "(?:从现在(?:起|开始)|从此刻起|接下来|现在起|现在开始|此后|今后)"

CHINESE = re.compile(
    _any(
        # Ignore what came before.
        f"{_IGNORE}.{{0,6}}{_EARLIER}.{{0,8}}{_RULES}",
        f"{_IGNORE}(?:掉|了)?你?(?:以上|之前|上面|上述|前面|此前|前文|上文)(?:的|被告知的?)?(?:所有|全部|一切)?"
        "(?:内容|要求|规定|对话|文字|资料|说明)",
        f"(?:以上|之前|上面|上述|前面|前文|上文)(?:的)?(?:所有|全部)?{_RULES}(?:都|均|全部|一律|现在|现已|已)*"
        "(?:作废|无效|失效|取消|不算|不用遵守)",
        f"{_IGNORE}(?:其他|其它|别的|其余)(?:的)?(?:检索)?(?:资料|来源|文档)",
        "(?:其他|其它|别的|其余)资料(?:都|均|全)(?:是|为)?(?:错|假|不可信|无效|过期)",
        "(?:优先|只|仅)(?:采用|采信|使用|以|依据)(?:本条|这条|该条|本|此)资料",
        # Play a part.
        f"你现在(?:是|扮演|充当|变成).{{0,12}}{_ROLE}",
        f"(?:{_NOW}|现在).{{0,4}}(?:你|请)(?:就|你|来)*(?:是|扮演|充当|变成|作为).{{0,12}}{_ROLE}",
        f"你是(?:一个|一名|一位)?(?:不受|没有|无).{{0,6}}(?:约束|限制|审查).{{0,6}}{_ROLE}",
        f"(?:你|请)(?:来|将|要|必须)?(?:扮演|充当)(?!的).{{0,12}}{_ROLE}",
        f"(?:假装|想象)(?:你|自己)是.{{0,12}}{_ROLE}",
        "(?:进入|开启|启用|切换到?)(?:开发者|调试|越狱|管理员|维护|dan|无限制)模式",
        # Give away the prompt.
        f"{_TELL}.{{0,10}}(?:你的|系统的?|隐藏的?|最初的?|初始|收到的?|完整的?){_PROMPT}",
        f"{_TELL}.{{0,6}}(?:系统提示|提示词|系统消息|系统指令|systemprompt)",
        f"{_TELL}.{{0,8}}(?:你的|你收到的|给你的).{{0,6}}(?:指令|规则|设定|提示|要求)",
        "(?:输出|重复|复述|打印|逐字|原样|复制).{0,6}(?:以上|上面|之前|前面|上文|开头)(?:的)?(?:所有|全部|一切)?"
        "(?:内容|文字|文本|指令|规则|提示|话)",
        f"(?:把|将)(?:你的?).{{0,10}}(?:提示|指令|设定|规则|那段话|内容).{{0,8}}{_TELL}",
        "(?:你的|上文中?的?|完整的?)?(?:系统提示词?|系统消息|systemprompt)(?:的内容)?是什么",
        # Answer in another form.
        f"(?:请|你|务必|必须)(?:只|仅)(?:需|要|能|用|准|许|可以)*{_REPLY}(?!我|您|他|她)",
        "^(?:只|仅)(?:需|能|用|准|许|可以)*(?:回复|输出|返回|作答)",
        f"{_NOW}你?.{{0,4}}(?:只|都|必须|一律)(?:能|用|以|准|许)*.{{0,8}}{_REPLY}",
        f"(?:请|你|必须|务必|一律|只|都)(?:用|以|按|改用|使用){_FORMATS}.{{0,6}}{_REPLY}",
        f"(?:用|以|按|改用|使用){_FORMATS}(?:格式|语言|形式)?{_REPLY}",
        f"^(?:请|你)?{_REPLY}(?:时|请|必须|要|一律)*(?:用|以|按|使用){_FORMATS}",
        "(?:无论|不管|不论)(?:用户|别人|对方|他们|有人|大家)?(?:问|提问|提出).{0,8}(?:都|一律|均|只)",
        f"(?:后续|以后|之后|接下来|所有|任何)(?:的)?(?:所有|全部)?(?:问题|提问)(?:都|一律|均|只).{{0,4}}{_REPLY}",
        f"(?:{_REPLY}|答案).{{0,4}}(?:开头|结尾|末尾|最后|前面|后面)(?:必须|务必|都要|一律|请|要|都|加上|写上|附上)+",
        "(?:每个|所有|你的|一切)(?:回答|回复|答案).{0,8}(?:加上|写上|附上|加入|插入|包含|标注|引用|推荐)",
        f"{_REPLY}(?:中|里|时)(?:请|必须|务必|都要|一律)(?:向?用户)?(?:推荐|加上|写上|附上|加入|插入|包含|标注|引用)",
        # Leave out or fake citations.
        f"{_REPLY}(?:时|中|里)?.{{0,4}}(?:不要|不得|不准|禁止|别|无需|不用|不必)(?:再|使用|带|附|包含|添加|加)*"
        "(?:标注|标出|引用|引文|编号|来源|方括号|角标|出处)",
        "^(?:请|你)?(?:不要|停止|禁止|不准|别|取消|去掉|不需要|无需|不用)(?:再|使用|添加|给出)*(?:引用|标注|标出)"
        "(?:任何|所有)?(?:资料|来源|编号|引文|出处|文献|$)",
        # Speak to the LLM.
        f"(?:对|给|写给|致){_LLM}(?:助手|模型)?的?(?:指令|提示|命令|说明|注意|话)",
        f"{_LLM}(?:助手)?(?:请注意|注意|必须|务必|请)",
        f"如果(?:你|您)是(?:一个|一名)?{_LLM}",
        "新的?(?:系统|任务)?(?:指令|提示词)|^新任务|你必须(?:服从|听从|执行)(?:$|我|以下|这)",
        # Fake the end of the sources.
        "检索资料(?:到此|已)?(?:开始|结束)",
    )
)
"""On text without white space and punctuation, lower case."""

_SECRET = "(?:system|initial|hidden|original|secret|developer)"

_LLM_NOUNS = "(?:instructions?|prompts?|rules?|directives?|commands?|guidelines?|constraints?|messages?)"
_PART = "(?:ai|llm|assistant|chatbot|bot|language model|model|dan|pirate|hacker|terminal|jailbroken|unrestricted)"

ENGLISH = re.compile(
    r"\b"
    + _any(
        # Ignore what came before.
        r"(?<!not\s)(?:ignore|disregard|forget|override|bypass) (?:(?:all|any|the|of|your|these|those|every|and) )*"
        rf"(?:previous|prior|above|preceding|earlier|foregoing|system|initial|original) (?:\w+\s){{0,2}}{_LLM_NOUNS}",
        rf"(?<!not\s)(?:ignore|disregard|forget|override) (?:all (?:of )?)?(?:your|the) (?:system )?{_LLM_NOUNS}\b"
        r"(?! (?:on|of|from|for|in|that come)\b)",
        r"(?<!not\s)(?:ignore|disregard|forget) (?:all|everything|anything|the text) (?:above|before)\b",
        r"(?:ignore|disregard) (?:all |the |any )?other (?:sources|documents|excerpts)",
        # Play a part.
        rf"you are (?:now|no longer) (?:an? |the |in )?(?:\w+\s){{0,2}}{_PART}",
        r"you are an? (?:unrestricted|unfiltered|uncensored|jailbroken)",
        rf"your new (?:role|task|persona|{_LLM_NOUNS}) (?:is|are)",
        r"from now on you (?:(?:are|will|must|shall|should|only|to|can) )*"
        r"(?:answer|reply|respond|speak|act|pretend|play)",
        rf"(?:act as|pretend to be|pretend you are|pretend that you are|roleplay as) "
        rf"(?:if you|(?:an? )?(?:\w+\s)?{_PART})",
        r"(?:developer|debug|jailbreak|dan|god) mode\b",
        # Give away the prompt.
        r"(?:repeat|print|reveal|show|output|display|tell me|write|leak|disclose|recite|translate|summari[sz]e|echo"
        rf"|copy|give me|dump) (?:\w+\s){{0,4}}(?:{_SECRET}|your|above|previous) {_LLM_NOUNS}",
        rf"what (?:is|are|was|were) (?:the |your )(?:{_SECRET} {_LLM_NOUNS}|instructions|prompt)\b",
        r"what were you told",
        r"(?:repeat|print|output|echo|copy|recite|show) (?:\w+\s)?"
        r"(?:everything|all the text|the text|the words|all words|all|the lines) (?:above|before)\b",
        r"(?:repeat|print|output|copy|show) .{0,24}system (?:tags?|section|block)",
        # Answer in another form.
        r"(?:reply|respond) with (?:only|nothing but|just) ",
        r"(?:reply|respond|answer) (?:only|nothing but|just) with ",
        r"(?:must|should|will|shall|to|please|can) (?:only )?(?:reply|respond|answer|output|say) "
        r"(?:only|with only)\b(?! (?:to|for|in|on|when|if)\b)",
        r"(?:^|please |and |then )(?:say|write|return|reply|respond|answer|output) (?:only|just|nothing but) ",
        r"(?:^|please |must |will )only (?:reply|respond|answer|output|say) (?:with|in|as)\b",
        r"you (?:must|should|will) (?:always )?(?:answer|reply|respond) (?:with|in|as) ",
        r"(?:no matter what|whenever|whatever|if) (?:the |a |any )?users? asks?\b",
        r"whenever (?:someone|anyone) asks (?:\w+\s){0,3}(?:answer|reply|respond|say)",
        r"(?:answer|reply|respond|output|write|speak) (?:only )?(?:in|as) "
        r"(?:json|xml|html|yaml|csv|base64|markdown|english|french|german|pinyin|emoji|a poem|pirate)",
        r"(?:begin|start|end|finish) (?:your|every|each|the) (?:answer|reply|response)",
        # Leave out or fake citations.
        r"do (?:not|n t|nt) (?:cite|(?:use|add|include|give) (?:any )?citations?)\b",
        r"(?:stop|without) (?:citing (?:any )?sources?|(?:using )?(?:any )?citations?)\b",
        r"(?:always|must|also) cite (?:source|document|excerpt|number|\d)",
        r"cite (?:source|number|\d)",
        # Speak to the LLM.
        r"new system instructions?\b",
        r"(?:note|message|instructions?|attention) (?:to|for) (?:the )?(?:ai|llm|language model|chatbot)\b",
        r"if you are an? (?:ai|llm|language model|assistant)\b",
        # Fake the end of the sources.
        r"^(?:end|begin|start) of (?:the |all )?(?:documents|context|sources|excerpts)\b",
    ).replace(" ", " ?")
)
"""On words with single spaces, lower case. A space matches none too, because letters may have been spaced out; between
words that may be any it does not (`\\s`), which keeps the search linear."""

_BRACKETS = r"[\[【〔〖《<({「『=*#-]"
_BRACKETS_END = r"[\]】〕〗》>)}」』=*#-]"

DISGUISE = re.compile(
    _any(
        # Another role.
        r"[#*<\[{|\"'-]*\s*(?:system|assistant|developer)\s*[\]>*}|\"']*\s*(?:prompt|message)?\s*:",
        r"[#*\[【〔(「]*\s*(?:系统(?:提示|消息|指令)?|助手|人工智能|指令)\s*[\])】〕」*]*\s*:",
        r"[\[【〔]\s*(?:系统(?:提示|消息|指令)?|system|assistant|助手)\s*[\]】〕]",
        r"#{1,6}\s*(?:system|assistant|instructions?|human|user|response|系统提示|指令|新指令)\s*:?\s*$",
        r"</?(?:system|assistant|user|human|instructions?|documents?|context)>",
        # Another source.
        r"[\[【〔(]?(?:资料|来源|source|document)?\s*\d{1,3}\s*[\]】〕)]?\s*(?:领域|domain)\s*:",
        # A mark of the fence.
        rf".*{_BRACKETS}\s*(?:检索|参考|以上)?(?:资料|文档|文献|上下文|documents?|sources?|context)\s*"
        rf"(?:到此|已)?(?:开始|结束|完毕|begin|start|end)s?\s*{_BRACKETS_END}",
        rf".*{_BRACKETS}\s*(?:begin|start|end)\s*(?:of\s*)?(?:the\s*)?(?:documents?|sources?|context)\s*{_BRACKETS_END}",
        r"(?:以上)?(?:参考|检索)?资料(?:到此)?(?:结束|完毕)[。.!:]?$",
    ),
    re.DOTALL,
)
"""From the beginning of a sentence in compatibility form, lower case, punctuation in place."""
