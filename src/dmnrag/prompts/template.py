"""Prompt templates: TOML files, strict, shipped or a user's own.

A template says where question, domain and documents stand and how a document is shown; `dmnrag.prompts.build`
fills it. To add one: copy a file of `templates/`, change it, and give its path wherever a template name goes.
Keys are the fields of `Template`; patterns name their places in braces.
"""

import tomllib
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from dmnrag.errors import PromptError
from dmnrag.prompts.pattern import Pattern, parse_pattern, variable_faults
from dmnrag.types import Position

_PLACES = frozenset({"domain", "question", "documents"})
_DOCUMENT_PLACES = frozenset({"number", "domain", "question", "answer", "answers"})


@dataclass(frozen=True)
class Template:
    """How a question, its domain and the retrieved documents become a prompt.

    Raises:
        PromptError: patterns with missing, unknown or doubled places; all faults are named at once.
    """

    name: str
    front: str
    """The domain before the question (eq. 3). Places: {domain} {question} {documents}, each once."""
    rear: str
    """The domain behind the question (eq. 4). Places as in `front`."""
    none: str
    """Without the domain. Places: {question} {documents}, each once."""
    document: str
    """One document. Places: {number} {domain} {question}; {answers} (all, joined) or {answer} (the first)."""
    description: str = ""
    system: str = ""
    """Text for the system role; no places."""
    separator: str = ""
    """Between two documents."""
    answer_separator: str = ""
    """Between two answers of one document."""
    label_separator: str = ","
    """Between two labels of a domain."""
    no_documents: str = ""
    """Stands for {documents} when there are none."""
    no_domain: str = ""
    """Stands for {domain} of a document without labels."""
    fence: tuple[str, ...] = ()
    """Marks around the documents. A space breaks them inside a document, which so cannot leave its fence, and inside
    a question, which so cannot bring documents."""
    stop: tuple[str, ...] = ()
    """Generation ends where one of these appears."""
    _patterns: dict[str, Pattern] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        faults: list[str] = []
        for key, needed, allowed in (
            ("front", _PLACES, _PLACES),
            ("rear", _PLACES, _PLACES),
            ("none", _PLACES - {"domain"}, _PLACES - {"domain"}),
            ("document", frozenset[str](), _DOCUMENT_PLACES),
            ("system", frozenset[str](), frozenset[str]()),
        ):
            pattern = parse_pattern(getattr(self, key), f"template {self.name!r}, {key}")
            self._patterns[key] = pattern
            faults += [f"{key}: {fault}" for fault in variable_faults(pattern, needed=needed, allowed=allowed)]
        if len({"answer", "answers"} & set(self._patterns["document"].names)) != 1:
            faults.append("document: needs one of {answer} and {answers}")
        if any(len(mark) < 2 or mark.split() != [mark] for mark in self.fence):
            faults.append("fence: marks have at least two characters and no white space")
        if "" in self.stop:
            faults.append("stop: an empty string is not allowed")
        if faults:
            raise PromptError(f"template {self.name!r}: " + "; ".join(faults))

    def pattern(self, position: Position) -> Pattern:
        """The pattern of the user's part for a position of the domain."""
        return self._patterns[position]

    @property
    def document_pattern(self) -> Pattern:
        """The pattern of one document."""
        return self._patterns["document"]

    @property
    def system_text(self) -> str:
        """The system part with doubled braces resolved."""
        return self._patterns["system"].fill({})


_KEYS = {item.name: item for item in fields(Template) if item.init}
_LIST_KEYS = ("fence", "stop")


def template_names() -> tuple[str, ...]:
    """Names of the shipped templates."""
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if ".toml" in entry.name))


def load_template(name_or_path: str | Path) -> Template:
    """A shipped template by name, or a user's own by the path of its TOML file.

    Raises:
        PromptError: no such template or file, not TOML, or keys and places that a template does not have.
    """
    if str(name_or_path) in template_names():
        return _read((_folder() / f"{name_or_path}.toml").read_bytes(), str(name_or_path))
    path = Path(name_or_path)
    if not path.is_file():
        near = get_close_matches(str(name_or_path), template_names(), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise PromptError(
            f"no template {str(name_or_path)!r}: allowed are {', '.join(template_names())}, "
            f"or the path of a TOML file.{hint}"
        )
    return _read(path.read_bytes(), str(path))


def _folder() -> Any:
    return files("dmnrag.prompts") / "templates"


def _read(content: bytes, where: str) -> Template:
    try:
        values = tomllib.loads(content.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PromptError(f"template {where}: not a TOML file in UTF-8 ({error})") from error
    faults = [_unknown_key(key) for key in values if key not in _KEYS]
    faults += [f"missing key {key!r}" for key, item in _KEYS.items() if item.default is MISSING and key not in values]
    faults += [fault for key, value in values.items() if key in _KEYS and (fault := _type_fault(key, value))]
    if faults:
        raise PromptError(f"template {where}: " + "; ".join(faults))
    arguments: dict[str, Any] = {key: tuple(v) if key in _LIST_KEYS else v for key, v in values.items()}
    return Template(**arguments)


def _unknown_key(key: str) -> str:
    near = get_close_matches(key, _KEYS, n=1)
    return f"unknown key {key!r}" + (f" (did you mean {near[0]!r}?)" if near else f" (allowed: {', '.join(_KEYS)})")


def _type_fault(key: str, value: object) -> str:
    if key in _LIST_KEYS:
        ok = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return "" if ok else f"{key} must be a list of strings"
    return "" if isinstance(value, str) else f"{key} must be a string, found {type(value).__name__}"
