"""The data card of what was read, as text."""

from dmnrag.data import ReadReport
from dmnrag.data.report import LengthQuantiles

_ROWS_SHOWN = 10
_LABELS_SHOWN = 12


def data_card_text(report: ReadReport) -> str:
    """Files, rows, what was dropped and why, labels and lengths, in a few lines."""
    lines = []
    for file in report.files:
        facts = ", ".join(f"{name} {value}" for name, value in file.facts.items())
        lines.append(f"{file.path}: {file.rows_read:,} rows of {file.format}{f' ({facts})' if facts else ''}")
    lines.extend(f"{path}: passed over, {why}" for path, why in report.skipped_files.items())
    for dropped in report.dropped:
        lines.append(
            f"{dropped.path}: {len(dropped.rows):,} rows dropped, {dropped.reason} (rows {_some(dropped.rows)})"
        )
    lines.append(
        f"{report.n_documents:,} documents, {report.exact_duplicates:,} of them repeat an earlier one exactly"
    )
    lines.append(_labels(report))
    lines.append(
        f"question {_lengths(report.question_lengths)}; answer {_lengths(report.answer_lengths)} characters"
    )
    if report.control_characters or report.lone_surrogates:
        lines.append(
            f"{report.control_characters:,} control characters removed, "
            f"{report.lone_surrogates:,} broken characters replaced"
        )
    return "\n".join(lines)


def _some(rows: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, rows[:_ROWS_SHOWN]))
    return shown if len(rows) <= _ROWS_SHOWN else f"{shown} and {len(rows) - _ROWS_SHOWN:,} more"


def _labels(report: ReadReport) -> str:
    if not report.labels:
        return "no domain labels: methods that use the domain cannot be used"
    items = list(report.labels.items())
    shown = ", ".join(f"{label} {count:,}" for label, count in items[:_LABELS_SHOWN])
    more = f" and {len(items) - _LABELS_SHOWN} more" if len(items) > _LABELS_SHOWN else ""
    without = f"; {report.without_label:,} without" if report.without_label else ""
    return f"labels: {shown}{more}{without}"


def _lengths(lengths: LengthQuantiles) -> str:
    return f"{lengths.values[0.05]:,} to {lengths.values[0.95]:,} (middle {lengths.values[0.5]:,})"
