"""Every word of the web page, in English and Chinese."""

from dataclasses import dataclass
from typing import Literal

Language = Literal["zh", "en"]
LANGUAGES: tuple[Language, ...] = ("zh", "en")
NAMES: dict[Language, str] = {"zh": "中文", "en": "English"}


@dataclass(frozen=True, slots=True)
class Texts:
    """The words of one language. Names in braces are filled in."""

    language: Language
    html_lang: str
    title: str
    intro: str
    switch: str
    sign_out: str
    # The form.
    question: str
    question_hint: str
    domain: str
    domain_auto: str
    domain_none: str
    method: str
    method_default: str
    methods: dict[str, str]
    compare: str
    second_method: str
    ask: str
    search: str
    stop: str
    # What goes on.
    working: str
    searching: str
    finished: str
    found: str
    stopped: str
    # States.
    index_loading: str
    index_failed: str
    index_empty: str
    index_empty_for_key: str
    llm_none: str
    llm_loading: str
    llm_down: str
    queue_full: str
    rate_limited: str
    busy: str
    timeout: str
    llm_failed: str
    index_unusable: str
    domain_unknown: str
    question_empty: str
    question_too_long: str
    invalid_question: str
    internal: str
    nothing_found: str
    answer_gone: str
    # An answer.
    refused: str
    evidence: str
    notice: str
    withheld: str
    cut_off: str
    given_domain: str
    inferred: str
    abstained: str
    no_domain: str
    likely: str
    unsupported: str
    unsupported_note: str
    citation: str
    sources: str
    results: str
    no_sources: str
    # A source.
    source: str
    close: str
    excerpt: str
    no_excerpt: str
    cut: str
    outdated: str
    valid_until: str
    score: str
    document: str
    full_question: str
    full_answer: str
    # Votes.
    vote: str
    good: str
    bad: str
    comment: str
    send_comment: str
    vote_kept: str
    vote_impossible: str
    vote_unknown: str
    vote_too_long: str
    vote_failed: str
    # Signing in.
    sign_in: str
    key: str
    key_hint: str
    key_wrong: str


EN = Texts(
    language="en",
    html_lang="en",
    title="Questions and answers",
    intro="Answers come from this service's own documents. Numbers in brackets open what an answer rests on.",
    switch="Language",
    sign_out="Sign out",
    question="Your question",
    question_hint="Enter sends, Shift+Enter starts a new line",
    domain="Domain",
    domain_auto="Automatic",
    domain_none="None",
    method="Method",
    method_default="Default",
    methods={
        "no-Dmn": "domain not used",
        "Dmn": "domain in the search",
        "ques-front": "domain before the question",
        "ques-rear": "domain after the question",
        "Dmn-ques-front": "domain in the search and before the question",
        "Dmn-ques-rear": "domain in the search and after the question",
    },
    compare="Compare with a second method",
    second_method="Second method",
    ask="Ask",
    search="Only search",
    stop="Stop",
    working="The answer is being written …",
    searching="Searching …",
    finished="The answer is complete.",
    found="{n} documents found.",
    stopped="Stopped.",
    index_loading="The documents are being loaded. Questions can be asked in a moment.",
    index_failed="The documents cannot be read. Please tell the operator of this service.",
    index_empty="There are no documents yet: add some before you ask.",
    index_empty_for_key="Your key sees none of the documents here.",
    llm_none="This service has no language model: it finds documents and does not write answers.",
    llm_loading="The language model is being loaded. Searching works already.",
    llm_down="The language model does not answer at the moment. Searching works all the same.",
    queue_full="Too many people are asking right now. Try again in {seconds} s.",
    rate_limited="You have asked too often. The next question is allowed in {seconds} s.",
    busy="This is not possible right now. Try again in {seconds} s.",
    timeout="It took too long. Try again later.",
    llm_failed="The language model gave no usable answer. Try again later; searching works all the same.",
    index_unusable="The documents cannot be read right now. Please tell the operator of this service.",
    domain_unknown="There is no such domain here, or your key does not see it. Choose another one.",
    question_empty="Write a question first.",
    question_too_long="The question is too long for the model. Make it shorter.",
    invalid_question="The question cannot be used as it is.",
    internal="The service failed. Please tell its operator this number: {request_id}",
    nothing_found="Nothing was found.",
    answer_gone="This answer is no longer kept, or it is not yours.",
    refused="No answer for want of evidence",
    evidence="Evidence: score {score}, threshold {threshold}",
    notice="Fixed notice of this service, not written by a model",
    withheld="Cut off: the model was giving away its instructions",
    cut_off="The answer was cut at the longest length or time allowed.",
    given_domain="Domain: {domain}",
    inferred="Domain: {domain} (inferred, {percent} %)",
    abstained="Domain: none is likely enough",
    no_domain="Without a domain",
    likely="{domain} {percent} %",
    unsupported="no source says this",
    unsupported_note="Underlined sentences with this mark are supported by no source.",
    citation="Source {number}",
    sources="Sources",
    results="Documents found",
    no_sources="The answer rests on no documents.",
    source="Source [{number}]",
    close="Close",
    excerpt="The excerpt, exactly as the model was given it",
    no_excerpt="No model was given this document.",
    cut="shortened",
    outdated="outdated",
    valid_until="Valid until",
    score="Score",
    document="Document",
    full_question="Question",
    full_answer="Answer",
    vote="Was this answer good?",
    good="Good",
    bad="Not good",
    comment="Comment (optional)",
    send_comment="Send comment",
    vote_kept="Kept. Thank you.",
    vote_impossible="This service keeps nothing, so it takes no votes.",
    vote_unknown="This answer is no longer kept, so there is nothing to vote on.",
    vote_too_long="The comment is too long.",
    vote_failed="The vote could not be kept. Try again later.",
    sign_in="Sign in",
    key="API key",
    key_hint="The operator of this service gives you one.",
    key_wrong="This key is unknown.",
)

ZH = Texts(
    language="zh",
    html_lang="zh-CN",
    title="知识问答",
    intro="答案依据本服务自己的资料生成。点击方括号中的编号，可查看答案所依据的原文。",
    switch="语言",
    sign_out="退出登录",
    question="您的问题",
    question_hint="按 Enter 发送，Shift+Enter 换行",
    domain="领域",
    domain_auto="自动判断",
    domain_none="不指定",
    method="方法",
    method_default="默认",
    methods={
        "no-Dmn": "不使用领域",
        "Dmn": "领域用于检索",
        "ques-front": "领域放在问题前",
        "ques-rear": "领域放在问题后",
        "Dmn-ques-front": "领域用于检索，并放在问题前",
        "Dmn-ques-rear": "领域用于检索，并放在问题后",
    },
    compare="与另一种方法对比",
    second_method="第二种方法",
    ask="提问",
    search="仅检索",
    stop="停止",
    working="正在生成答案……",
    searching="正在检索……",
    finished="答案已生成。",
    found="找到 {n} 条资料。",
    stopped="已停止。",
    index_loading="正在加载资料，稍后即可提问。",
    index_failed="无法读取资料，请联系本服务的管理员。",
    index_empty="资料库中还没有资料，请先添加资料再提问。",
    index_empty_for_key="您的密钥无权查看这里的资料。",
    llm_none="本服务没有配置语言模型：只能检索资料，不能生成答案。",
    llm_loading="正在加载语言模型，检索功能现在就可以使用。",
    llm_down="语言模型暂时没有响应，检索功能仍可使用。",
    queue_full="当前提问的人太多，请在 {seconds} 秒后重试。",
    rate_limited="您提问太频繁，请在 {seconds} 秒后再问。",
    busy="暂时无法处理，请在 {seconds} 秒后重试。",
    timeout="处理时间过长，请稍后重试。",
    llm_failed="语言模型没有给出可用的答案，请稍后重试；检索功能仍可使用。",
    index_unusable="暂时无法读取资料，请联系本服务的管理员。",
    domain_unknown="这里没有这个领域，或您的密钥无权查看。请另选一个。",
    question_empty="请先输入问题。",
    question_too_long="问题太长，超出模型的长度，请缩短。",
    invalid_question="这个问题无法处理。",
    internal="服务出错。请把这个编号告诉管理员：{request_id}",
    nothing_found="没有找到资料。",
    answer_gone="这个答案已不再保存，或不属于您。",
    refused="依据不足，不作回答",
    evidence="依据得分 {score}，阈值 {threshold}",
    notice="本服务的固定提示，并非模型生成",
    withheld="已截断：模型正在泄露其指令",
    cut_off="答案已达到允许的最大长度或时间，被截断。",
    given_domain="领域：{domain}",
    inferred="领域：{domain}（自动判断，{percent}%）",
    abstained="领域：没有足够可能的领域",
    no_domain="未使用领域",
    likely="{domain} {percent}%",
    unsupported="资料中无依据",
    unsupported_note="带此标记并加下划线的句子在资料中没有依据。",
    citation="资料 {number}",
    sources="资料来源",
    results="检索到的资料",
    no_sources="此答案不依据任何资料。",
    source="资料 [{number}]",
    close="关闭",
    excerpt="模型得到的原文摘录",
    no_excerpt="这条资料没有提供给模型。",
    cut="有删节",
    outdated="已过期",
    valid_until="有效期至",
    score="得分",
    document="文档编号",
    full_question="问题",
    full_answer="答案",
    vote="这个答案好吗？",
    good="好",
    bad="不好",
    comment="意见（可不填）",
    send_comment="提交意见",
    vote_kept="已记录，谢谢。",
    vote_impossible="本服务不保存任何内容，因此不接受评价。",
    vote_unknown="这个答案已不再保存，无法评价。",
    vote_too_long="意见太长。",
    vote_failed="评价没能保存，请稍后重试。",
    sign_in="登录",
    key="API 密钥",
    key_hint="由本服务的管理员提供。",
    key_wrong="没有这个密钥。",
)

TEXTS: dict[Language, Texts] = {"zh": ZH, "en": EN}


def preferred(accept_language: str) -> Language:
    """The language that a browser asks for: the first of its list that the page has, else English."""
    weighted = []
    for position, entry in enumerate(accept_language.lower().split(",")):
        tag, _, parameters = entry.strip().partition(";")
        name, _, weight = parameters.strip().partition("=")
        try:
            quality = float(weight) if name.strip() == "q" else 1.0
        except ValueError:
            quality = 0.0
        weighted.append((-quality, position, tag.partition("-")[0].strip()))
    for _, _, tag in sorted(weighted):
        for language in LANGUAGES:
            if tag == language:
                return language
    return "en"
