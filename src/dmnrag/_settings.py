"""Which values a setting may have, and a clear refusal of all others: the part that settings classes share."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any

from dmnrag.errors import ConfigError

Rule = tuple[Callable[[Any], bool], str]
"""Whether a value can be used, and the words for those that can."""


def whole(lowest: int, highest: int | None = None) -> Rule:
    """Whole numbers within these limits; true and false are none."""

    def usable(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return value >= lowest and (highest is None or value <= highest)

    return usable, f"whole numbers from {lowest}" + ("" if highest is None else f" to {highest}")


def number(low: float = -inf, high: float = inf, *, above: bool = False, below: bool = False) -> Rule:
    """Finite numbers from `low` to `high`; `above` and `below` leave out the ends themselves."""

    def usable(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            return False
        return (value > low if above else value >= low) and (value < high if below else value <= high)

    start = f"{'above' if above else 'from'} {low:g}"
    end = "" if high == inf else f", below {high:g}" if below else f", at most {high:g}" if above else f" to {high:g}"
    return usable, f"numbers {start}{end}"


def one_of(allowed: tuple[str, ...]) -> Rule:
    """One of these words."""
    return lambda value: value in allowed, ", ".join(allowed)


def or_none(rule: Rule) -> Rule:
    """None as well."""
    usable, allowed = rule
    return lambda value: value is None or usable(value), f"{allowed}, or None"


FLAG: Rule = (lambda value: isinstance(value, bool), "true and false")


def check_settings(settings: object, rules: Mapping[str, Rule], what: str) -> None:
    """Check each setting that has a rule.

    Raises:
        ConfigError: an unusable value; `what` names the kind of setting.
    """
    for name, (usable, allowed) in rules.items():
        value = getattr(settings, name)
        if not usable(value):
            raise ConfigError(f"{what} setting {name} is {value!r}: allowed are {allowed}")


def refuse_unknown(values: Mapping[str, Any], settings: type, what: str) -> None:
    """Refuse names that a settings class with slots does not have.

    Raises:
        ConfigError: offers the nearest name.
    """
    known: tuple[str, ...] = settings.__slots__  # type: ignore[attr-defined]  # of every dataclass with slots
    unknown = sorted(set(values) - set(known))
    if unknown:
        near = get_close_matches(unknown[0], known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{what} has no setting {', '.join(unknown)}: allowed are {', '.join(known)}.{hint}")
