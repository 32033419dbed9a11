"""What stands for an answer where the evidence is too weak, in Chinese and English."""

from dmnrag.text.characters import has_cjk


def refusal_text(question: str, score: float, threshold: float) -> str:
    """Why there is no answer, in the question's language."""
    if has_cjk(question):
        return f"找到的资料不足以回答这个问题（依据得分 {score:.2f}，低于阈值 {threshold:.2f}），因此不作回答。"
    return (
        "What was found in the sources is not enough to answer this question "
        f"(evidence score {score:.2f}, below the threshold {threshold:.2f}), so it is not answered."
    )


def nothing_found_text(question: str) -> str:
    """Why there is no answer where no document was found, in the question's language."""
    if has_cjk(question):
        return "资料库中没有找到与这个问题相关的资料，因此不作回答。"
    return "Nothing in the sources is related to this question, so it is not answered."
