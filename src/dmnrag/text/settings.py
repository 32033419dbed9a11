"""How text becomes terms, as a value: stored with an index, so that its queries are cut alike.

The word lists are part of the value, not paths: an index must not change when a file does.
"""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from dmnrag.errors import ConfigError
from dmnrag.text.word_files import read_dictionary, read_stop_words, read_synonyms

SegmenterName = Literal["jieba", "bigram", "unigram+bigram", "mixed"]

SEGMENTER_NAMES: tuple[SegmenterName, ...] = get_args(SegmenterName)


@dataclass(frozen=True, slots=True)
class SegmenterSettings:
    """Which segmenter, with which word lists. Words stand as written; `make_segmenter` normalises them."""

    name: SegmenterName = "bigram"
    """`jieba`: words in search mode. `bigram`: pairs of CJK characters. `unigram+bigram`: single ones too.
    `mixed`: jieba's words and the pairs."""
    simplify: bool = False
    """Traditional characters become simplified ones (extra `zh`)."""
    dictionary: tuple[str, ...] = ()
    """Words that are always a term of their own where they stand in the text."""
    stop_words: tuple[str, ...] = ()
    """Terms to drop. They drop whole terms: `的` drops nothing from the pair `的病`."""
    synonyms: tuple[tuple[str, ...], ...] = ()
    """Groups of forms that mean the same; the first, the canonical form, replaces the others."""

    def __post_init__(self) -> None:
        if self.name not in SEGMENTER_NAMES:
            raise ConfigError(_unknown("segmenter", self.name, SEGMENTER_NAMES))
        for group in self.synonyms:
            if len(group) < 2:
                raise ConfigError(f"the synonym group {group!r} has fewer than two forms")

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it: lists in place of tuples."""
        content = asdict(self)
        for key in ("dictionary", "stop_words"):
            content[key] = list(content[key])
        content["synonyms"] = [list(group) for group in self.synonyms]
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "SegmenterSettings":
        """The settings that `to_dict` wrote.

        Raises:
            ConfigError: an unknown key, or a value of the wrong kind.
        """
        known = tuple(field.name for field in fields(cls))
        for key in content:
            if key not in known:
                raise ConfigError(_unknown("segmenter setting", key, known))
        values = dict(content)
        for key in ("dictionary", "stop_words"):
            if key in values:
                values[key] = _strings(key, values[key])
        if "synonyms" in values:
            groups = values["synonyms"]
            if not isinstance(groups, list | tuple):
                raise ConfigError(f"segmenter setting 'synonyms' is {groups!r}: a list of lists of strings is needed")
            values["synonyms"] = tuple(_strings("synonyms", group) for group in groups)
        if not isinstance(values.get("simplify", False), bool):
            raise ConfigError(f"segmenter setting 'simplify' is {values['simplify']!r}: true or false is needed")
        return cls(**values)

    @classmethod
    def from_files(
        cls,
        name: SegmenterName,
        *,
        simplify: bool = False,
        dictionary: Path | None = None,
        stop_words: Path | None = None,
        synonyms: Path | None = None,
    ) -> "SegmenterSettings":
        """Settings with the word lists read from files; `word_files` states their formats.

        Raises:
            DataError: a file or line that cannot be used.
        """
        return cls(
            name,
            simplify,
            read_dictionary(dictionary) if dictionary else (),
            read_stop_words(stop_words) if stop_words else (),
            read_synonyms(synonyms) if synonyms else (),
        )


def _strings(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"segmenter setting {key!r} holds {value!r}: a list of strings is needed")
    return tuple(value)


def _unknown(what: str, name: object, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {name!r}: allowed are {', '.join(known)}{hint}"
