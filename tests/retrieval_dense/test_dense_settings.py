"""Settings of the second layer."""

import json
from typing import Any

import pytest

from dmnrag.errors import ConfigError
from dmnrag.retrieval.dense import DenseSettings


def test_settings_survive_json() -> None:
    settings = DenseSettings("BAAI/bge-small-zh-v1.5", "answer", True, "hnsw", 16, 100, 64)
    assert DenseSettings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_what_is_left_out_keeps_its_default() -> None:
    assert DenseSettings.from_dict({"encoder": "x"}) == DenseSettings(encoder="x")


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"efsearch.*hnsw_ef_search"):
        DenseSettings.from_dict({"efsearch": 3})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder", ""),
        ("passage", "question"),
        ("kind", "ivf"),
        ("domain_in_passage", 1),
        ("hnsw_m", 1),
        ("hnsw_ef_search", 0),
        ("hnsw_ef_construction", True),
    ],
)
def test_unusable_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value!r}"):
        DenseSettings(**{name: value})
