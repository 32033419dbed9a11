"""Fixed texts of refusals, in Chinese and English."""

from dmnrag.service.events import Evidence
from dmnrag.service.followup import is_chinese


def refusal_text(question: str, evidence: Evidence | None) -> str:
    """Why there is no answer, in the question's language; `evidence` is None where nothing at all was found."""
    if evidence is None:
        if is_chinese(question):
            return "资料库中没有找到与这个问题相关的资料，因此不作回答。"
        return "Nothing in the sources is related to this question, so it is not answered."
    score, threshold = f"{evidence.score:.2f}", f"{evidence.threshold:.2f}"
    if is_chinese(question):
        return f"找到的资料不足以回答这个问题（依据得分 {score}，低于阈值 {threshold}），因此不作回答。"
    return (
        "What was found in the sources is not enough to answer this question "
        f"(evidence score {score}, below the threshold {threshold}), so it is not answered."
    )
