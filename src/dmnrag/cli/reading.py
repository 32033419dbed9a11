"""How files become documents: the options of `index`, and the split."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

import typer

from dmnrag.cli.options import split_columns
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
from dmnrag.data.options import DOMAIN_SEPARATORS, LabelOrder

Files = Annotated[
    list[Path], typer.Argument(help="Files of question-answer pairs, or folders of them.", metavar="FILE...")
]
QuestionColumn = Annotated[str, typer.Option(help="Column of the question; several are joined: title,ask.")]
AnswerColumn = Annotated[str, typer.Option(help="Column of the answer; several give several answers.")]
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
    question: str, answer: str, domain: str | None, doc_id: str | None, metadata: str | None
) -> ColumnMapping:
    """Columns from the options."""
    return ColumnMapping(
        question=split_columns(question),
        answer=split_columns(answer),
        domain=split_columns(domain),
        doc_id=doc_id,
        metadata=split_columns(metadata),
    )


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
    files: list[Path], mapping: ColumnMapping, reading: ReadOptions, test_size: float, seed: int
) -> tuple[Split, ReadReport]:
    """Documents in two parts, re-posts on one side, and the report with its re-posts.

    Re-posts are looked for when something is held out, and otherwise where that takes seconds.
    """
    documents, report = read_documents(files, mapping, options=reading)
    groups = None
    if test_size or len(documents) <= _REPOSTS_ALWAYS:
        groups = repost_groups([d.question for d in documents], [d.answers for d in documents])
        report = replace(report, reposts=RepostCounts.of(groups))
    return split_documents(documents, test_size, seed, groups=groups), report
