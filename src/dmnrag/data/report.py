"""What reading did: the figures of the data card. Plain values; showing them is the command line's work."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dmnrag.data.label_report import LabelReport
from dmnrag.types import Document

_ROWS_LISTED = 1000
"""Row numbers of one reason and file that `to_dict` lists; the count beside them is always whole."""
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, slots=True)
class FileReport:
    """One file: what it is and how many rows it gave."""

    path: str
    format: str
    columns: tuple[str, ...]
    facts: dict[str, str]
    """Encoding, delimiter, sheet, compression and the like, as found."""
    rows_read: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Rows of one file that gave no document, for one reason."""

    path: str
    reason: str
    rows: tuple[int, ...]
    """As a spreadsheet program or an editor counts (header = row 1), JSON records and Parquet rows from 1."""


@dataclass(frozen=True, slots=True)
class LengthQuantiles:
    """Lengths in characters. `values[q]` for q in 0 (shortest), 0.05 ... 1 (longest)."""

    mean: float
    values: dict[float, int]

    @classmethod
    def of(cls, texts: Sequence[str]) -> "LengthQuantiles":
        """Quantiles by nearest rank; all 0 for no texts."""
        lengths = sorted(map(len, texts)) or [0]
        last = len(lengths) - 1
        return cls(sum(lengths) / len(lengths), {q: lengths[round(q * last)] for q in _QUANTILES})

    def to_dict(self) -> dict[str, float]:
        """`{"mean": .., "p0": .., "p5": .. "p100": ..}`."""
        return {"mean": round(self.mean, 1)} | {f"p{q * 100:.0f}": value for q, value in self.values.items()}


@dataclass(frozen=True, slots=True)
class RepostCounts:
    """Near-identical posts among the documents (`dmnrag.data.reposts`)."""

    groups: int
    """Groups of two or more."""
    rows: int
    """Documents in them."""
    largest: int
    """Documents in the largest; 1 where there is no group."""

    @classmethod
    def of(cls, group_of_row: Sequence[int]) -> "RepostCounts":
        """Counts of `repost_groups`' answer."""
        sizes = [size for size in Counter(group_of_row).values() if size > 1]
        return cls(len(sizes), sum(sizes), max(sizes, default=1))

    def to_dict(self) -> dict[str, int]:
        """`{"groups", "rows", "largest"}`."""
        return {"groups": self.groups, "rows": self.rows, "largest": self.largest}


@dataclass(frozen=True, slots=True)
class ReadReport:
    """Everything that happened between the files and the documents."""

    files: tuple[FileReport, ...]
    dropped: tuple[Dropped, ...]
    n_documents: int
    exact_duplicates: int
    """Documents whose question, answers and domain all equal those of an earlier one. They are kept."""
    labels: dict[str, int]
    """Documents that carry each label, most frequent first."""
    without_label: int
    question_lengths: LengthQuantiles
    answer_lengths: LengthQuantiles
    control_characters: int
    """Taken out of cells."""
    lone_surrogates: int
    """Replaced by U+FFFD in cells."""
    skipped_files: dict[str, str] = field(default_factory=dict)
    """Files in a given folder that were passed over, and why."""
    label_work: LabelReport = field(default_factory=LabelReport)
    """What was done to labels on the way."""
    masked: dict[str, int] | None = None
    """Markers put in place of personal data, by kind; None where masking was not asked for."""
    reposts: RepostCounts | None = None
    """None where nobody looked: `read_documents` does not, it costs more than reading."""

    @property
    def rows_read(self) -> int:
        """Rows of all files; each gave a document or stands in `dropped`."""
        return sum(f.rows_read for f in self.files)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`: JSON types only, stable names."""
        return {
            "rows_read": self.rows_read,
            "documents": self.n_documents,
            "files": [
                {
                    "path": f.path,
                    "format": f.format,
                    "rows": f.rows_read,
                    "columns": list(f.columns),
                    **f.facts,
                }
                for f in self.files
            ],
            "skipped_files": dict(self.skipped_files),
            "dropped": [
                {
                    "path": d.path,
                    "reason": d.reason,
                    "count": len(d.rows),
                    "rows": list(d.rows[:_ROWS_LISTED]),
                }
                for d in self.dropped
            ],
            "exact_duplicates": self.exact_duplicates,
            "reposts": None if self.reposts is None else self.reposts.to_dict(),
            "labels": dict(self.labels),
            "without_label": self.without_label,
            **self.label_work.to_dict(),
            "question_characters": self.question_lengths.to_dict(),
            "answer_characters": self.answer_lengths.to_dict(),
            "control_characters_removed": self.control_characters,
            "lone_surrogates_replaced": self.lone_surrogates,
            "masked": None if self.masked is None else dict(self.masked),
        }


def label_counts(documents: Sequence[Document]) -> dict[str, int]:
    """Documents per label, most frequent first, ties by name."""
    counts: dict[str, int] = {}
    for document in documents:
        for label in set(document.domain):
            counts[label] = counts.get(label, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def count_exact_duplicates(documents: Sequence[Document]) -> int:
    """Documents that repeat an earlier one in all but id and metadata."""
    return len(documents) - len({(d.question, d.answers, d.domain) for d in documents})
