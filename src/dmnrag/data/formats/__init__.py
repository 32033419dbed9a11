"""One module per file format, each a function `(Source, ReadOptions) -> Table`; `registry` chooses."""

from dmnrag.data.formats.registry import SUFFIXES, open_table

__all__ = ["SUFFIXES", "open_table"]
