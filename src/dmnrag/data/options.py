"""How files are to be read, where the reader is not to find out by itself."""

from dataclasses import dataclass

from dmnrag.errors import ConfigError

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

    def __post_init__(self) -> None:
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '\r\n"'):
            raise ConfigError(
                f"delimiter {self.delimiter!r} cannot be used: give one character, no quote or line break"
            )
