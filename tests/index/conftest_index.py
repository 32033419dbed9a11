"""A few documents and indexes of them."""

from pathlib import Path

import pytest

from dmnrag.index import IndexSettings, build_index
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document, Example, Query

DOCUMENTS = [
    Document(
        "d1",
        "高血压能喝酒吗",
        ("高血压患者应当限制饮酒，最好不喝。",),
        ("内科", "心血管内科"),
        {"医院": "一院"},
    ),
    Document("d2", "胃疼怎么办", ("胃疼先看饮食，反复发作要做胃镜。",), ("内科", "消化内科")),
    Document("d3", "骨折多久能走路", ("骨折后一般六到八周可以负重行走。", "要看复查的片子。"), ("外科", "骨科")),
    Document("d4", "孩子发烧要不要吃药", ("三十八度五以上可以用退烧药。",), ("儿科",)),
    Document("d5", "血压高吃什么好", ("少盐，多吃蔬菜，控制体重。",), ("内科", "心血管内科")),
]
EXAMPLES = [Example(Query("q1", "血压高可以饮酒吗", ("内科", "心血管内科")), ("最好戒酒。",), ("d1",), "q1")]
SETTINGS = IndexSettings(dense=DenseSettings(encoder="fake"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An index of five documents with vectors of the fake encoder."""
    path = tmp_path / "index"
    build_index(path, DOCUMENTS, SETTINGS, examples=EXAMPLES, encoder=HashEncoder())
    return path
