"""How files become documents: the options of `index` and `add`, and the split."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from dmnrag.cli.options import split_columns
from dmnrag.cli.reading_beir import read_beir_documents
from dmnrag.data import (
    ColumnMapping,
    ReadOptions,
    ReadReport,
    RepostCounts,
    Split,
    read_documents,
    read_domain_map,
    repost_groups,
    split_documents,
)
from dmnrag.data.exchange import CORPUS_FILE
from dmnrag.data.options import DOMAIN_SEPARATORS, LabelOrder
from dmnrag.errors import ConfigError
from dmnrag.types import Document

Files = Annotated[
    list[Path],
    typer.Argument(
        help="Files of question-answer pairs, or folders of them; or one BEIR folder, which needs no columns.",
        metavar="FILE...",
    ),
]
QuestionColumn = Annotated[str | None, typer.Option(help="Column of the question; several are joined: title,ask.")]
AnswerColumn = Annotated[str | None, typer.Option(help="Column of the answer; several give several answers.")]
DomainColumn = Annotated[
    str | None,
    typer.Option(help="Columns of the domain labels, general to specific; a cell may hold several."),
]
IdColumn = Annotated[str | None, typer.Option(help="Column of unique ids. Default: file name and row.")]
MetadataColumn = Annotated[str | None, typer.Option(help="Columns kept and shown with a hit.")]
Encoding = Annotated[str | None, typer.Option(help="Default: found from the content.", show_default=False)]
Delimiter = Annotated[str | None, typer.Option(help="Default: found from the content.", show_default=False)]
Sheet = Annotated[str | None, typer.Option(help="Sheet of a workbook. Default: the first with cells.")]
DomainSeparators = Annotated[str, typer.Option(help="Characters that part the labels in one cell.")]
DomainMapFile = Annotated[
    Path | None,
    typer.Option("--domain-map", help="Table of labels to replace: columns from, to; an empty to drops the label."),
]
DomainKindOption = Annotated[str, typer.Option(help="path: labels go general to specific; set: without order.")]
Mask = Annotated[
    bool,
    typer.Option("--mask", help="Markers for phone and identity numbers, e-mail addresses and bank cards."),
]

SEPARATORS = DOMAIN_SEPARATORS

_REPOSTS_ALWAYS = 50_000
"""Rows up to which re-posts are looked for without need: 5,000 rows a second."""


def column_mapping(
    question: str | None, answer: str | None, domain: str | None, doc_id: str | None, metadata: str | None
) -> ColumnMapping:
    """Columns from the options.

    Raises:
        ConfigError: no column of the question or of the answer is named.
    """
    for option, value in (("--question-column", question), ("--answer-column", answer)):
        if value is None:
            raise ConfigError(
                f"{option} is missing: name the column (only a BEIR folder, with {CORPUS_FILE}, needs none)"
            )
    return ColumnMapping(
        question=split_columns(question),
        answer=split_columns(answer),
        domain=split_columns(domain),
        doc_id=doc_id,
        metadata=split_columns(metadata),
    )


def stored_mapping(stored: Mapping[str, Any], named: Mapping[str, str | None]) -> ColumnMapping:
    """Columns as the index was built, with those named now in their place.

    Args:
        stored: `columns` of the manifest's source; empty where the index was not built from tables.
        named: the options by their name in `ColumnMapping`; None where not given.

    Raises:
        ConfigError: the manifest names no question or answer column, and no option does.
    """
    columns: dict[str, Any] = {name: value if name == "doc_id" else tuple(value) for name, value in stored.items()}
    columns |= {name: value if name == "doc_id" else split_columns(value) for name, value in named.items() if value}
    missing = [name for name in ("question", "answer") if not columns.get(name)]
    if missing:
        raise ConfigError(
            f"the index does not say which column holds the {missing[0]}: name it with --{missing[0]}-column"
        )
    return ColumnMapping(**columns)


def stored_reading(
    stored: Mapping[str, Any], domain_kind: str, domain_map: Path | None, given: Mapping[str, Any]
) -> ReadOptions:
    """Reading options as the index was built, with those given now in their place."""
    reading = replace(ReadOptions.from_dict(stored), domain_kind=cast(LabelOrder, domain_kind))
    reading = replace(reading, **{name: value for name, value in given.items() if value is not None})
    if domain_map is None:
        return reading
    return replace(reading, domain_map=read_domain_map(domain_map, reading.domain_separators))


def reading_options(
    encoding: str | None,
    delimiter: str | None,
    sheet: str | None,
    domain_separators: str,
    domain_map: Path | None,
    domain_kind: str,
    mask: bool,
) -> ReadOptions:
    """How to read, from the options; a mapping of labels is read from its file here."""
    return ReadOptions(
        encoding=encoding,
        delimiter=delimiter,
        sheet=sheet,
        domain_separators=domain_separators,
        domain_map={} if domain_map is None else read_domain_map(domain_map, domain_separators),
        domain_kind=cast(LabelOrder, domain_kind),
        mask=mask,
    )


def read_and_split(
    files: list[Path], mapping: ColumnMapping | None, reading: ReadOptions, test_size: float, seed: int
) -> tuple[Split, ReadReport]:
    """Documents in two parts, re-posts on one side, and the report with its re-posts.

    Without a mapping the one path is a BEIR folder. Re-posts are looked for when something is held out,
    and otherwise where that takes seconds.
    """
    documents, report = read(files, mapping, reading)
    groups = None
    if test_size or len(documents) <= _REPOSTS_ALWAYS:
        groups = repost_groups([d.question for d in documents], [d.answers for d in documents])
        report = replace(report, reposts=RepostCounts.of(groups))
    return split_documents(documents, test_size, seed, groups=groups), report


def read(
    files: Sequence[Path], mapping: ColumnMapping | None, reading: ReadOptions
) -> tuple[list[Document], ReadReport]:
    """The documents of tables, or without a mapping of a BEIR folder."""
    if mapping is None:
        return read_beir_documents(files[0], reading)
    return read_documents(files, mapping, options=reading)
