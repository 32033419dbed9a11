"""When text is masked before an LLM sees it, and what of it."""

import pytest

from dmnrag.errors import ConfigError
from dmnrag.service.masking import mask_documents, mask_query, should_mask
from dmnrag.service.settings import MASKING, AnswerSettings
from dmnrag.types import Document, Query


@pytest.mark.parametrize(
    ("llm", "external"),
    [
        ("openai:qwen@https://api.example.com/v1", True),
        ("openai:qwen@http://vllm:8000/v1", True),
        ("openai:qwen@http://192.168.1.7:8000/v1", True),
        ("openai:qwen@http://localhost.example.com/v1", True),
        ("openai:qwen@http://127.0.0.1.example.com/v1", True),
        ("openai:qwen@http://[::1", True),
        ("openai:qwen", True),
        ("openai:qwen@http://localhost:8000/v1", False),
        ("openai:qwen@http://LOCALHOST/v1", False),
        ("openai:qwen@http://127.0.0.1:8000/v1", False),
        ("openai:qwen@http://127.8.9.1:8000/v1", False),
        ("openai:qwen@http://[::1]:8000/v1", False),
        ("builtin:int8", False),
        ("fake", False),
        ("/models/openai", False),
        ("Qwen/Qwen3-4B", False),
    ],
)
def test_external_is_a_server_on_another_host(llm: str, external: bool) -> None:
    assert should_mask("external", llm) is external
    assert should_mask("always", llm)
    assert not should_mask("never", llm)


def test_the_settings_allow_these_words_and_no_others() -> None:
    for word in MASKING:
        AnswerSettings(mask=word)
    with pytest.raises(ConfigError):
        AnswerSettings(mask="sometimes")


def test_query_and_documents_are_masked_and_nothing_else_changes() -> None:
    query = Query("q", "我叫李明，电话13812345678", ("内科",))
    assert mask_query(query) == Query("q", "我叫李明，电话[电话]", ("内科",))
    document = Document("d", "打 13812345678 吗", ("写信 a@b.cn", "不用"), ("内科",), {"电话": "13812345678"})
    assert mask_documents([document]) == [
        Document("d", "打 [电话] 吗", ("写信 [邮箱]", "不用"), ("内科",), {"电话": "13812345678"})
    ]
