"""The real engine over a small index, with fakes for its models alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from http_fake_engine import serving

from dmnrag.index import IndexSettings, build_index
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.service.app import create_app
from dmnrag.service.engine import Engine
from dmnrag.service.keys import KeyRing
from dmnrag.service.settings import LoadSettings, ServeSettings, TrustSettings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document

DOCUMENTS = [
    Document("med-1", "高血压患者早上头晕怎么办", ("先测血压，再调药。",), ("内科", "心血管内科")),
    Document("med-2", "孩子发烧怎么办", ("多喝水，物理降温。",), ("儿科",), {"来源": "门诊"}),
    Document("med-3", "骨折后多久能走路", ("一般要六到八周。",), ("外科", "骨科")),
    Document("med-4", "糖尿病能吃水果吗", ("可以少量吃。",), ("内科", "内分泌科")),
]


@contextmanager
def real_service(folder: Path, keys: KeyRing, *, llm: str | None = "fake") -> Iterator[str]:
    """The URL of a service that is ready, its store beside its index."""
    index = folder / "index"
    build_index(index, DOCUMENTS, IndexSettings(dense=DenseSettings(encoder="fake")), encoder=HashEncoder())
    settings = ServeSettings(load=LoadSettings(reload_every_s=0), trust=TrustSettings(store_file=folder / "store"))
    with serving(create_app(Engine(index, llm, settings), settings, keys)) as url:
        while (ready := httpx.get(f"{url}/readyz")).status_code != 200:
            assert "cannot" not in ready.json()["problem"]
        yield url
