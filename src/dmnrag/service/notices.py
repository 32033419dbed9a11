"""Fixed texts for questions that no LLM should answer: emergencies, and people who want to harm themselves.

A notice takes the place of the answer, before and without the LLM. A TOML file has one table per notice; the first
that matches is given:

    [[notice]]
    name = "self-harm"
    patterns = ['不想活', '\\bkill myself\\b']     # regular expressions of Python
    text = { zh = "…", en = "…" }                # by language; a question with Chinese characters gets zh

Patterns are searched in the normalised question (`dmnrag.text.normalise`: NFKC, lower case, single spaces, nothing
invisible). A pattern costs time on every question, and one with a repeat inside a repeat, such as `(a+)+`, can cost
minutes on a hostile one: write bounded repeats (`.{0,10}`). The length of questions is bounded by the service.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from dmnrag.errors import ConfigError
from dmnrag.text.characters import CJK_CHARACTER
from dmnrag.text.normalise import normalise

DEFAULT, NONE = "default", "none"

_FIELDS = ("name", "patterns", "text")
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_CHINESE = re.compile(CJK_CHARACTER)
_SPACE_BETWEEN_CHINESE = re.compile(rf"(?<={CJK_CHARACTER}) (?={CJK_CHARACTER})")


@dataclass(frozen=True, slots=True)
class Notice:
    """What is said in place of an answer."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    patterns: tuple[re.Pattern[str], ...]
    texts: Mapping[str, str]

    def text(self, question: str) -> str:
        """In the question's language, else in the first that the file has."""
        language = "zh" if _CHINESE.search(question) else "en"
        return self.texts.get(language) or next(iter(self.texts.values()))


class Notices:
    """All notices of a service. Immutable, so any thread may ask."""

    def __init__(self, rules: Iterable[_Rule] = ()) -> None:
        self._rules = tuple(rules)

    def __len__(self) -> int:
        return len(self._rules)

    @classmethod
    def load(cls, name_or_file: str) -> "Notices":
        """`default` (shipped), `none`, or a TOML file of one's own, which takes the place of the shipped ones.

        Raises:
            ConfigError: no such file, not TOML, unknown names, a pattern that is none or matches every question.
        """
        if name_or_file == NONE:
            return cls()
        if name_or_file == DEFAULT:
            return cls(_parse((files("dmnrag.service") / "notices-default.toml").read_bytes(), "the shipped notices"))
        path = Path(name_or_file)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"notices {name_or_file!r} cannot be read: {error.strerror}; allowed are {DEFAULT}, {NONE} and the path"
                " of a TOML file"
            ) from error
        return cls(_parse(content, f"notices {path}"))

    def match(self, question: str) -> Notice | None:
        """The first notice that the question, as it was typed, calls for."""
        text = _SPACE_BETWEEN_CHINESE.sub("", normalise(question))
        for rule in self._rules:
            if any(pattern.search(text) for pattern in rule.patterns):
                return Notice(rule.name, rule.text(question))
        return None


def _parse(content: bytes, where: str) -> list[_Rule]:
    try:
        values = tomllib.loads(content.decode("utf-8-sig"))
    except ValueError as error:
        raise ConfigError(f"{where}: not a TOML file in UTF-8 ({error})") from error
    _refuse_unknown(values, ("notice",), where)
    tables = values.get("notice")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{where}: holds no notice: write a table [[notice]] for each, or say {NONE!r}")
    rules = [_rule(table, f"{where}, notice {number}") for number, table in enumerate(tables, start=1)]
    names = [rule.name for rule in rules]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{where}: several notices are named {twice[0]!r}")
    return rules


def _rule(table: Mapping[str, Any], where: str) -> _Rule:
    _refuse_unknown(table, _FIELDS, where)
    name, patterns, texts = (table.get(field) for field in _FIELDS)
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"{where}: needs a name")
    where = f"{where} ({name})"
    if not isinstance(patterns, list) or not patterns or not all(isinstance(p, str) for p in patterns):
        raise ConfigError(f"{where}: patterns is not a list of regular expressions")
    if not isinstance(texts, dict) or not texts or not all(isinstance(t, str) and t.strip() for t in texts.values()):
        raise ConfigError(f'{where}: text is not a table of texts by language: text = {{ zh = "…", en = "…" }}')
    if odd := [language for language in texts if not _LANGUAGE.fullmatch(language)]:
        raise ConfigError(f"{where}: {odd[0]!r} is no language: allowed are codes such as zh and en")
    return _Rule(name, tuple(_compiled(pattern, where) for pattern in patterns), texts)


def _compiled(pattern: str, where: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{where}: {pattern!r} is no regular expression ({error})") from error
    if compiled.search("") is not None:
        raise ConfigError(f"{where}: {pattern!r} matches an empty text, and so every question")
    if pattern != pattern.lower() and not re.search(r"\\[A-Z]", pattern):
        raise ConfigError(f"{where}: {pattern!r} has capital letters, and questions are compared in lower case")
    return compiled


def _refuse_unknown(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in table:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{where}: unknown name {name!r}; allowed are {', '.join(known)}.{hint}")
