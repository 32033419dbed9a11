"""Specs from TOML, shipped ones by name and one's own by path; strict, with every fault named at once."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from dmnrag.errors import ConfigError
from dmnrag.experiments.matrix.spec import Spec

_ALL_QUESTIONS = 0


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A spec and where it came from."""

    name: str
    """The file's name without its ending; results go to `results-NAME` unless told otherwise."""
    spec: Spec
    folder: Path
    """What relative paths in it are relative to: the file's folder, the current one for a shipped spec."""

    def path(self, name: str) -> Path:
        """A path that stands in the spec."""
        return self.folder / Path(name).expanduser()


def spec_names() -> tuple[str, ...]:
    """Names of the shipped specs."""
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in _shipped().iterdir() if ".toml" in entry.name))


def spec_text(name_or_path: str) -> str:
    """The TOML text of a spec, to be printed and changed.

    Raises:
        ConfigError: no such spec.
    """
    return _text(name_or_path)[1]


def load_spec(name_or_path: str) -> LoadedSpec:
    """A shipped spec by its name, or one's own by the path of its file.

    Raises:
        ConfigError: no such spec, not TOML, or keys and values that a spec does not have.
    """
    name, text, folder = _text(name_or_path)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"spec {name_or_path} is not TOML: {error}") from error
    return LoadedSpec(name, spec_from_dict(values, f"spec {name_or_path}"), folder)


def spec_from_dict(values: Mapping[str, Any], where: str) -> Spec:
    """A spec from the values of its TOML file.

    Raises:
        ConfigError: unknown keys (offers the nearest), missing ones, or unusable values; begins with `where`.
    """
    faults = [*_unknown_keys(Spec, values, ""), *_single_tables(values)]
    if faults:
        raise ConfigError(f"{where}: {'; '.join(faults)}")
    try:
        spec = TypeAdapter(Spec).validate_json(json.dumps(_with_all_questions(values)), strict=True)
    except TypeError as error:
        raise ConfigError(f"{where}: a date or time stands where none can: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{where}: {'; '.join(map(_fault, error.errors()))}") from error
    return spec


def spec_to_dict(spec: Spec) -> dict[str, Any]:
    """JSON-ready form with every default written out."""
    return json.loads(json.dumps(asdict(spec)))  # type: ignore[no-any-return]


def _shipped() -> Any:
    return files("dmnrag.experiments") / "specs"


def _text(name_or_path: str) -> tuple[str, str, Path]:
    if name_or_path in spec_names():
        return name_or_path, (_shipped() / f"{name_or_path}.toml").read_text(encoding="utf-8"), Path()
    path = Path(name_or_path)
    if not path.is_file():
        near = get_close_matches(name_or_path, spec_names(), n=1)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        allowed = ", ".join(spec_names())
        raise ConfigError(f"there is no spec {name_or_path!r}: allowed are {allowed}, or the path of a TOML file{hint}")
    try:
        return path.stem, path.read_text(encoding="utf-8-sig"), path.parent
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"spec {path} is not UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8"
        ) from error


def _unknown_keys(kind: type, values: Mapping[str, Any], where: str) -> Iterator[str]:
    """A fault for each key that `kind` does not have, in tables and in lists of tables as well."""
    types = get_type_hints(kind)
    known = [item.name for item in fields(kind)]
    for key, value in values.items():
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"allowed are {', '.join(known)}"
            yield f"unknown key {where + key!r} ({hint})"
            continue
        inner = next((part for part in (types[key], *get_args(types[key])) if is_dataclass(part)), None)
        if inner is None:
            continue
        for place, row in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(row, Mapping):
                number = f"[{place}]" if isinstance(value, list) else ""
                yield from _unknown_keys(inner, row, f"{where}{key}{number}.")  # type: ignore[arg-type]


def _single_tables(values: Mapping[str, Any]) -> Iterator[str]:
    """A fault for each [llm] where [[llm]] is meant."""
    for item in fields(Spec):
        if isinstance(values.get(item.name), Mapping) and get_origin(get_type_hints(Spec)[item.name]) is tuple:
            yield f"{item.name} is one table, and a list of them is meant: write [[{item.name}]]"


def _with_all_questions(values: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has no null: 0 questions are all of them."""
    if values.get("questions") == _ALL_QUESTIONS and values["questions"] is not False:
        return {**values, "questions": None}
    return dict(values)


def _fault(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"])
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"missing key {key!r}"
    if error["type"] == "value_error":
        return f"{key}: {message}" if key else message
    return f"{key}: {message}, found {error['input']!r}"
