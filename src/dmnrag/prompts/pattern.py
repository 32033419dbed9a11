"""Text with named places: `{question}` is a place, `{{` and `}}` are plain braces.

Values are put in as they are: braces and format-like text in them stay literal. Knows nothing of prompts.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from string import Formatter

from dmnrag.errors import PromptError


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text with named places, checked once and filled many times."""

    parts: tuple[tuple[str, str | None], ...]
    """(literal text, name of the place that follows it or None at the end)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The places in order, repeated as often as they stand in the text."""
        return tuple(name for _, name in self.parts if name is not None)

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with every place filled. `values` must hold each of `names`."""
        return "".join(literal + (values[name] if name is not None else "") for literal, name in self.parts)


def parse_pattern(text: str, where: str) -> Pattern:
    """Read a pattern.

    Raises:
        PromptError: a brace without its partner, or more than a name between braces; `where` names the text.
    """
    try:
        pieces = list(Formatter().parse(text))
    except ValueError as error:
        raise PromptError(f"{where}: {error}; write {{{{ and }}}} for plain braces") from error
    for _, name, spec, conversion in pieces:
        if name is not None and (spec or conversion or not name.isidentifier()):
            raise PromptError(
                f"{where}: {{{name}}} with anything but a plain name in the braces is not allowed; "
                "write {{ and }} for plain braces"
            )
    return Pattern(tuple((literal, name) for literal, name, _, _ in pieces))


def variable_faults(pattern: Pattern, *, needed: Set[str], allowed: Set[str]) -> list[str]:
    """What is wrong with the places of a pattern: missing, unknown and doubled names."""
    names = pattern.names
    missing = sorted(needed - set(names))
    unknown = sorted(set(names) - allowed)
    doubled = sorted({name for name in names if names.count(name) > 1} & allowed)
    faults = []
    if missing:
        faults.append("missing " + ", ".join(f"{{{name}}}" for name in missing))
    if unknown:
        faults.append("unknown " + ", ".join(f"{{{name}}}" for name in unknown))
    if doubled:
        faults.append("more than once " + ", ".join(f"{{{name}}}" for name in doubled))
    return faults
