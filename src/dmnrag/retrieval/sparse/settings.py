"""Parameters of BM25. They act at search time; nothing on disk depends on them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dmnrag.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Bm25Settings:
    """k1 and b of eq. 2. The paper gives no values; the defaults are those of Lucene and Elasticsearch."""

    k1: float = 1.2
    """How much a repeated term still adds: 0 counts presence only."""
    b: float = 0.75
    """How much long documents are held back: 0 not at all, 1 in full proportion."""
    lucene_lengths: bool = False
    """Round document lengths above 39 terms as Lucene stores them, for the same scores as Elasticsearch."""

    def __post_init__(self) -> None:
        for name, value, highest, allowed in (
            ("k1", self.k1, 1e6, "numbers from 0 to 1000000"),
            ("b", self.b, 1, "numbers from 0 to 1"),
        ):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= highest:
                raise ConfigError(f"BM25's {name} is {value!r}: allowed are {allowed}")
        if not isinstance(self.lucene_lengths, bool):
            raise ConfigError(f"BM25's lucene_lengths is {self.lucene_lengths!r}: allowed are true and false")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Bm25Settings":
        """The settings that `to_dict` described; what is left out keeps its default.

        Raises:
            ConfigError: an unknown name or an unusable value.
        """
        unknown = sorted(set(values) - set(cls.__slots__))
        if unknown:
            raise ConfigError(f"BM25 has no setting {', '.join(unknown)}: allowed are {', '.join(cls.__slots__)}")
        return cls(**values)
