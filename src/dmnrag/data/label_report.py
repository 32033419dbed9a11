"""What happened to domain labels between the files and the documents: part of the data card."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rapidfuzz import fuzz, process

from dmnrag.data.domains import DomainReader
from dmnrag.data.labels import similar_labels
from dmnrag.data.options import DomainMap

_NEAR_ENOUGH = 50
"""Similarity (0 to 100) from which a label of the data is offered for one that the mapping misses."""
_LISTED = 1000
"""Spellings, pairs and labels that `to_dict` lists of each kind; keyword lists have more than a person reads."""


@dataclass(frozen=True, slots=True)
class MapReport:
    """What a mapping of labels did."""

    entries: int
    mapped: dict[str, int]
    """Occurrences of each label that the mapping replaced by something else or dropped, most frequent first."""
    unused: dict[str, str]
    """Entries whose label does not occur, each with the nearest label of the data, "" where none is near."""
    unmapped: dict[str, int]
    """Labels that the mapping names neither as `from` nor in `to`; they stay as they are."""


@dataclass(frozen=True, slots=True)
class LabelReport:
    """What normal spelling and a mapping changed, and labels that may be one."""

    normalised: dict[tuple[str, str], int] = field(default_factory=dict)
    """Occurrences of each changed spelling: (as in the data, normal), most frequent first."""
    mapping: MapReport | None = None
    """None where no mapping was given."""
    similar: tuple[tuple[str, str], ...] = ()
    """Labels of the documents that look like one; only a hint."""

    def to_dict(self) -> dict[str, Any]:
        """For `--json`: JSON types only, stable names."""
        return {
            "labels_normalised": sum(self.normalised.values()),
            "label_spellings": [
                {"found": found, "label": label, "count": count}
                for (found, label), count in list(self.normalised.items())[:_LISTED]
            ],
            "similar_labels": [list(pair) for pair in self.similar[:_LISTED]],
            "domain_map": None if self.mapping is None else _map_to_dict(self.mapping),
        }


def label_report(reader: DomainReader, mapping: DomainMap, counts: Mapping[str, int]) -> LabelReport:
    """The report of everything that `reader` read.

    Args:
        reader: after the last row.
        mapping: what it mapped with; empty where none was given.
        counts: documents of each label, after mapping.
    """
    return LabelReport(
        normalised=dict(reader.normalised.most_common()),
        mapping=_map_report(reader.seen, mapping) if mapping else None,
        similar=similar_labels(counts),
    )


def _map_report(seen: Counter[str], mapping: DomainMap) -> MapReport:
    targets = {label for domain in mapping.values() for label in domain}
    unused = {label: _nearest(label, seen) for label in mapping if label not in seen}
    return MapReport(
        entries=len(mapping),
        mapped={label: n for label, n in seen.most_common() if mapping.get(label, (label,)) != (label,)},
        unused=unused,
        unmapped={label: n for label, n in seen.most_common() if label not in mapping and label not in targets},
    )


def _nearest(label: str, seen: Counter[str]) -> str:
    near = process.extractOne(label, list(seen), scorer=fuzz.ratio, score_cutoff=_NEAR_ENOUGH)
    return near[0] if near else ""


def _map_to_dict(report: MapReport) -> dict[str, Any]:
    return {
        "entries": report.entries,
        "labels_mapped": sum(report.mapped.values()),
        "mapped": dict(list(report.mapped.items())[:_LISTED]),
        "unused": dict(list(report.unused.items())[:_LISTED]),
        "unmapped": dict(list(report.unmapped.items())[:_LISTED]),
    }
