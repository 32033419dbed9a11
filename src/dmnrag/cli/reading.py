"""How files become documents: the options of `index`, and the split."""

from pathlib import Path
from typing import Annotated

import typer

from dmnrag.cli.options import split_columns
from dmnrag.data import ColumnMapping, Split, repost_groups, split_documents
from dmnrag.data.options import DOMAIN_SEPARATORS
from dmnrag.types import Document

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

SEPARATORS = DOMAIN_SEPARATORS


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


def split_rows(documents: list[Document], test_size: float, seed: int) -> Split:
    """Hold out a share of the rows; re-posts are only looked for when something is held out."""
    if test_size == 0:
        return split_documents(documents)
    groups = repost_groups([d.question for d in documents], ["\n".join(d.answers) for d in documents])
    return split_documents(documents, test_size, seed, groups=groups)
