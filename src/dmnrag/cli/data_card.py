"""The data card of what was read, as text."""

from collections.abc import Iterator, Sequence

from dmnrag.data import ReadReport
from dmnrag.data.label_report import LabelReport, MapReport
from dmnrag.data.report import FileReport, LengthQuantiles

_ROWS_SHOWN = 10
_LABELS_SHOWN = 12
_PAIRS_SHOWN = 5
_MASKED_NAMES = {
    "phone": "phone numbers",
    "identity_number": "identity numbers",
    "email": "e-mail addresses",
    "bank_card": "bank cards",
}


def data_card_text(report: ReadReport) -> str:
    """Files, rows, what was dropped and why, repeats, labels, lengths, repairs and masking, in a few lines."""
    return "\n".join(
        (
            *map(_file, report.files),
            *(f"{path}: passed over, {why}" for path, why in report.skipped_files.items()),
            *_dropped(report),
            _documents(report),
            _labels(report),
            *_label_work(report.label_work),
            f"characters in a question: {_lengths(report.question_lengths)}",
            f"characters in an answer: {_lengths(report.answer_lengths)}",
            *_repairs(report),
        )
    )


def _file(file: FileReport) -> str:
    facts = ", ".join(f"{name.replace('_', ' ')} {_visible(value)}" for name, value in file.facts.items())
    return f"{file.path}: {file.rows_read:,} rows of {file.format}{f' ({facts})' if facts else ''}"


def _visible(fact: str) -> str:
    return {"\t": "tab", ",": "comma", ";": "semicolon", " ": "space"}.get(fact, fact)


def _dropped(report: ReadReport) -> Iterator[str]:
    for dropped in report.dropped:
        rows = _some(list(map(str, dropped.rows)), _ROWS_SHOWN)
        yield f"{dropped.path}: {len(dropped.rows):,} rows dropped, {dropped.reason} (rows {rows})"


def _documents(report: ReadReport) -> str:
    if report.reposts is None:
        reposts = "re-posts were not looked for"
    elif report.reposts.groups:
        found = report.reposts
        reposts = (
            f"{found.rows:,} are near-identical posts in {found.groups:,} groups, the largest of {found.largest:,}"
        )
    else:
        reposts = "no near-identical posts"
    return (
        f"{report.n_documents:,} documents of {report.rows_read:,} rows;"
        f" {report.exact_duplicates:,} repeat an earlier one exactly; {reposts}"
    )


def _labels(report: ReadReport) -> str:
    if not report.labels:
        return "no domain labels: methods that use the domain cannot be used"
    shown = _some([f"{label} {count:,}" for label, count in report.labels.items()], _LABELS_SHOWN)
    without = f"; {report.without_label:,} documents without" if report.without_label else ""
    return f"labels: {shown}{without}"


def _label_work(work: LabelReport) -> Iterator[str]:
    if work.normalised:
        spellings = _some([f"{found!r} to {label!r}" for found, label in work.normalised], _PAIRS_SHOWN)
        yield f"{sum(work.normalised.values()):,} labels put into normal spelling: {spellings}"
    if work.mapping is not None:
        yield from _mapping(work.mapping)
    if work.similar:
        pairs = _some([f"{a} / {b}" for a, b in work.similar], _PAIRS_SHOWN)
        yield f"labels that look like one (--domain-map joins them): {pairs}"


def _mapping(mapping: MapReport) -> Iterator[str]:
    changed = _some([f"{label} {count:,}" for label, count in mapping.mapped.items()], _LABELS_SHOWN)
    yield (
        f"domain map of {mapping.entries:,} entries: {sum(mapping.mapped.values()):,} labels mapped"
        f"{f' ({changed})' if changed else ''}"
    )
    if mapping.unused:
        entries = [f"{label!r}{f' (near: {near!r})' if near else ''}" for label, near in mapping.unused.items()]
        yield f"entries of the domain map whose label does not occur: {_some(entries, _PAIRS_SHOWN)}"
    if mapping.unmapped:
        yield f"labels that the domain map does not name: {_some(list(mapping.unmapped), _LABELS_SHOWN)}"


def _lengths(lengths: LengthQuantiles) -> str:
    shown = ", ".join(f"{value:,} ({_quantile(q)})" for q, value in lengths.values.items())
    return f"{shown}, mean {lengths.mean:,.0f}"


def _quantile(q: float) -> str:
    return {0.0: "shortest", 0.5: "middle", 1.0: "longest"}.get(q, f"{q:.0%}")


def _repairs(report: ReadReport) -> Iterator[str]:
    if report.control_characters or report.lone_surrogates:
        yield (
            f"{report.control_characters:,} control characters removed, "
            f"{report.lone_surrogates:,} broken characters replaced"
        )
    if report.masked is not None:
        found = ", ".join(f"{n:,} {_MASKED_NAMES[kind]}" for kind, n in report.masked.items())
        yield f"masked: {found}"


def _some(items: Sequence[str], shown: int) -> str:
    more = f" and {len(items) - shown:,} more" if len(items) > shown else ""
    return ", ".join(items[:shown]) + more
