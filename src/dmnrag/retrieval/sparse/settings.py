"""Parameters of BM25. They act at search time; nothing on disk depends on them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dmnrag._settings import FLAG, Rule, check_settings, number, refuse_unknown


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
        check_settings(self, _RULES, "BM25")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Bm25Settings":
        """The settings that `to_dict` described; what is left out keeps its default.

        Raises:
            ConfigError: an unknown name or an unusable value.
        """
        refuse_unknown(values, cls, "BM25")
        return cls(**values)


_RULES: dict[str, Rule] = {"k1": number(0, 1_000_000), "b": number(0, 1), "lucene_lengths": FLAG}
