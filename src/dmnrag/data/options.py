"""How files are to be read, where the reader is not to find out by itself."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from dmnrag.errors import ConfigError
from dmnrag.types import Domain

DomainMap = Mapping[str, Domain]
"""Labels that take the place of each label named; none drop it (`dmnrag.data.domain_map`)."""
LabelOrder = Literal["path", "set"]

DOMAIN_SEPARATORS = ",，、;；|｜/／>＞→"
"""What parts the labels in one cell. Inside brackets nothing does: `物权（含房产、土地）` stays whole."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Everything that can be given instead of found. The defaults find it."""

    encoding: str | None = None
    """A Python codec name (`gb18030`, `big5`, `utf-16`); None finds it (`dmnrag.data.encoding`)."""
    delimiter: str | None = None
    """The character between the cells of a text table; None finds it among comma, tab, semicolon and bar."""
    sheet: str | None = None
    """Name of a sheet in a workbook; None takes the first that has cells."""
    domain_separators: str = DOMAIN_SEPARATORS
    """Each character parts the labels in one domain cell; empty: a cell is one label."""
    domain_map: DomainMap = field(default_factory=dict)
    """Labels to replace or drop, in normal spelling (`dmnrag.data.read_domain_map`)."""
    domain_kind: LabelOrder = "path"
    """`path`: labels stay in the order of the data; `set`: they are sorted, so that equal sets are equal."""
    mask: bool = False
    """Put markers in place of personal data (`dmnrag.text.masking`) in questions, answers and metadata."""

    def __post_init__(self) -> None:
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '\r\n"'):
            raise ConfigError(
                f"delimiter {self.delimiter!r} cannot be used: give one character, no quote or line break"
            )
        if self.domain_kind not in get_args(LabelOrder):
            raise ConfigError(f"domain_kind is {self.domain_kind!r}: allowed are {', '.join(get_args(LabelOrder))}")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form; what a mapping says is in it, not where it was read from."""
        return asdict(self) | {"domain_map": {label: list(domain) for label, domain in self.domain_map.items()}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ReadOptions":
        """The options that `to_dict` described; those of an older release get today's defaults.

        Raises:
            ConfigError: a value that cannot be, or an option that this release does not know.
        """
        try:
            options = cls(**values)
        except TypeError as error:
            raise ConfigError(f"reading options {sorted(values)} cannot be used ({error})") from error
        mapping = {label: tuple(domain) for label, domain in options.domain_map.items()}
        return replace(options, domain_map=mapping)
