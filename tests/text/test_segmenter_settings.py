"""Segmenter settings as values, and the word lists they are read from."""

import json
from pathlib import Path
from typing import Any

import pytest

from dmnrag.errors import ConfigError, DataError
from dmnrag.text import SegmenterSettings


def write(folder: Path, content: str | bytes, name: str = "words.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_settings_survive_json() -> None:
    settings = SegmenterSettings("mixed", True, ("心梗",), ("的",), (("心肌梗死", "心梗"),))
    assert SegmenterSettings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_missing_keys_take_their_defaults() -> None:
    assert SegmenterSettings.from_dict({}) == SegmenterSettings()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"nam": "jieba"}, "unknown segmenter setting 'nam'.*did you mean 'name'"),
        ({"name": "jiba"}, "unknown segmenter 'jiba'.*did you mean 'jieba'"),
        ({"simplify": 1}, "'simplify' is 1"),
        ({"dictionary": "心梗"}, "'dictionary' holds '心梗'"),
        ({"stop_words": [1]}, "'stop_words' holds"),
        ({"synonyms": "a b"}, "'synonyms' is 'a b'"),
        ({"synonyms": ["ab"]}, "'synonyms' holds 'ab'"),
        ({"synonyms": [["a"]]}, "fewer than two forms"),
    ],
)
def test_settings_that_cannot_be_used_are_named(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SegmenterSettings.from_dict(content)


def test_dictionary_files_may_have_the_columns_of_jieba(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff# mine\n心梗 3 n\n门冬胰岛素 5\r\n云计算 n\nvitamin c\n\n 房颤 # short\nc#\n")
    settings = SegmenterSettings.from_files("jieba", dictionary=path)
    assert settings.dictionary == ("心梗", "门冬胰岛素", "云计算", "vitamin c", "房颤", "c#")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030"])
def test_word_lists_are_read_in_either_encoding(tmp_path: Path, encoding: str) -> None:
    stop_words = write(tmp_path, "的\n，\n了".encode(encoding), "stop.txt")
    synonyms = write(tmp_path, "心肌梗死,心梗，MI\n磁共振/核磁 MRI、mr\n".encode(encoding), "synonyms.txt")
    settings = SegmenterSettings.from_files("bigram", simplify=True, stop_words=stop_words, synonyms=synonyms)
    assert settings == SegmenterSettings(
        "bigram", True, (), ("的", "，", "了"), (("心肌梗死", "心梗", "MI"), ("磁共振", "核磁", "MRI", "mr"))
    )


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("dictionary", "心梗\n，，\n", r"words.txt, line 2: '，，' has no letter"),
        ("synonyms", "# one\n心梗\n", r"line 2: '心梗' is not a synonym group"),
        ("synonyms", "心梗,mi\n\n米,ＭＩ\n", r"line 3: 'ＭＩ' also stands in line 1"),
        ("synonyms", "心梗,-\n", r"line 1: '-' has no letter"),
        ("stop_words", b"\xb5\xc4\n\xff\xff\n", r"line 2 \(byte 3\): neither UTF-8 nor GB18030"),
    ],
)
def test_lines_that_cannot_be_used_are_named(tmp_path: Path, kind: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        SegmenterSettings.from_files("bigram", **{kind: write(tmp_path, content)})  # type: ignore[arg-type]


def test_a_missing_word_list_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.txt cannot be read: No such file"):
        SegmenterSettings.from_files("bigram", dictionary=tmp_path / "nowhere.txt")
