"""Files of question-answer pairs to documents, with a report of everything that happened on the way.

Formats live in `dmnrag.data.formats`, cells in `dmnrag.data.cells`. A row either gives a document or is
listed in the report with its reason; nothing else happens to it.

Ids: from the mapped column, else `<file name>-<row number>` (`clinic-0000002`). The number is that of the row
in the file and the name is part of the id, so reading the same file again gives the same ids, rows that are
dropped move nothing, and a further file can be added later without a clash.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dmnrag.data.cells import CellReader, Masker, unique
from dmnrag.data.columns import ColumnMapping
from dmnrag.data.comparable import comparable
from dmnrag.data.domains import DomainReader
from dmnrag.data.files import list_files
from dmnrag.data.formats import open_table
from dmnrag.data.label_report import label_report
from dmnrag.data.options import ReadOptions
from dmnrag.data.report import (
    Dropped,
    FileReport,
    LengthQuantiles,
    ReadReport,
    count_exact_duplicates,
    label_counts,
)
from dmnrag.data.tables import Malformed, NumberedRow, Row
from dmnrag.errors import ConfigError, DataError
from dmnrag.types import Document

_T = TypeVar("_T")
NO_QUESTION = "no question"
NO_ANSWER = "no answer"
_LISTED_IN_ERROR = 10


def read_documents(
    paths: Sequence[Path], mapping: ColumnMapping, *, options: ReadOptions | None = None
) -> tuple[list[Document], ReadReport]:
    """Read files, or folders of files, in any known format.

    Args:
        paths: in the order in which their documents are wanted.
        mapping: which column means what, the same for all files.
        options: what is not to be found out, and what is to be done to labels and personal data.

    Returns:
        The documents in file order, and the report.

    Raises:
        ConfigError: a mapping of labels, and no domain column.
        DataError: a file that cannot be read, lacks a mapped column or holds no rows; a cell of a kind that
            cannot be text; ids missing or repeated; no document at all.
    """
    options = options or ReadOptions()
    if options.domain_map and not mapping.domain:
        raise ConfigError("a domain map is given and no domain column: name the column whose labels it maps")
    listed = list_files(paths)
    builder = _Builder(mapping, options)
    files = []
    for path, prefix in zip(listed.files, _id_prefixes(listed.files), strict=True):
        table = open_table(path, options)
        if not table.columns:
            raise DataError(f"{path} holds no records")
        mapping.check(table.columns, table.repeated, str(path))
        rows_read = sum(builder.add(str(path), prefix, numbered) for numbered in table.rows)
        if not rows_read:
            raise DataError(f"{path} has a header ({', '.join(table.columns[:20])}) but no rows below it")
        files.append(FileReport(str(path), table.format, table.columns, table.facts, rows_read))
    builder.refuse_bad_ids()
    if not builder.documents:
        reasons = "; ".join(f"{d.path}: {len(d.rows):,} rows with {d.reason}" for d in builder.dropped())
        raise DataError(f"no row gave a document: {reasons}. Check which columns are named as question and answer")
    return builder.documents, _report(builder, options, files, listed.skipped)


class _Builder:
    """Collects documents and dropped rows over all files."""

    def __init__(self, mapping: ColumnMapping, options: ReadOptions) -> None:
        self.documents: list[Document] = []
        self.cells = CellReader()
        self.domains = DomainReader(options, self.cells)
        self.mask = Masker(options.mask)
        self._mapping = mapping
        self._dropped: dict[tuple[str, str], list[int]] = {}
        self._places: dict[str, str] = {}
        self._repeated: list[str] = []
        self._without_id: list[str] = []

    def add(self, path: str, prefix: str, numbered: NumberedRow) -> int:
        """Take one row in; returns 1, the rows read."""
        number, row = numbered
        if isinstance(row, Malformed):
            self._drop(path, row.reason, number)
            return 1
        question = join_question([self._cell(row, c, self.cells.text, path, number) for c in self._mapping.question])
        answers = unique(
            text for c in self._mapping.answer for text in self._cell(row, c, self.cells.texts, path, number)
        )
        if not question or not answers:
            reason = NO_ANSWER if question else NO_QUESTION if answers else f"{NO_QUESTION} and {NO_ANSWER}"
            self._drop(path, reason, number)
            return 1
        labels = [
            label for c in self._mapping.domain for label in self._cell(row, c, self.domains.labels, path, number)
        ]
        self.documents.append(
            Document(
                self._doc_id(row, path, prefix, number),
                self.mask(question),
                unique(map(self.mask, answers)),
                self.domains.domain(labels),
                {c: self.mask(text) for c in self._mapping.metadata if (text := self.cells.any_text(row.get(c)))},
            )
        )
        return 1

    def dropped(self) -> tuple[Dropped, ...]:
        """Rows that gave no document, by file and reason."""
        return tuple(Dropped(path, reason, tuple(rows)) for (path, reason), rows in self._dropped.items())

    def refuse_bad_ids(self) -> None:
        """Hits, updates and judgements refer to ids, so none may be missing or stand for two rows."""
        if self._without_id:
            raise DataError(
                f"{len(self._without_id):,} rows have no id in column {self._mapping.doc_id!r}:"
                f" {_some(self._without_id)}. Fill them, or do not name an id column: rows are then numbered"
            )
        if self._repeated:
            raise DataError(
                f"{len(self._repeated):,} ids in column {self._mapping.doc_id!r} stand in several rows:"
                f" {_some(self._repeated)}. Make them unique, or name no id column: rows are then numbered"
            )

    def _cell(self, row: Row, column: str, read: Callable[[Any], _T], path: str, number: int) -> _T:
        try:
            return read(row.get(column))
        except DataError as error:
            raise DataError(f"{path}, row {number:,}, column {column!r}: {error}") from error

    def _drop(self, path: str, reason: str, number: int) -> None:
        self._dropped.setdefault((path, reason), []).append(number)

    def _doc_id(self, row: Row, path: str, prefix: str, number: int) -> str:
        column = self._mapping.doc_id
        if column is None:
            return f"{prefix}-{number:07d}"  # ties by doc_id keep the file's order up to 10 million rows
        doc_id = self._cell(row, column, self.cells.text, path, number)
        place = f"{path} row {number}"
        if not doc_id:
            self._without_id.append(place)
        elif doc_id in self._places:
            self._repeated.append(f"{doc_id!r} ({self._places[doc_id]}; {place})")
        self._places.setdefault(doc_id, place)
        return doc_id


def join_question(parts: Sequence[str]) -> str:
    """Parts of a question in one line of text, joined by a space.

    A part whose letters and digits all stand in another one is left out: in forum data the title is often the
    beginning of the text, and repeating it would count its terms twice.
    """
    kept = [part for part in parts if part]
    if len(kept) < 2:
        return "".join(kept)
    forms = [comparable(part) for part in kept]
    return " ".join(
        part
        for i, part in enumerate(kept)
        if not any(forms[i] in forms[j] and (forms[i] != forms[j] or j < i) for j in range(len(kept)) if j != i)
    )


def _id_prefixes(files: Sequence[Path]) -> list[str]:
    """Names that tell the files apart: without folders and endings where that is enough."""
    stems = [path.name.removesuffix(".gz").rsplit(".", 1)[0] for path in files]
    if len(set(stems)) < len(files):
        real = [path.resolve() for path in files]
        common = Path(os.path.commonpath([path.parent for path in real]))
        stems = [path.relative_to(common).as_posix() for path in real]
    return [re.sub(r"\s+", "_", stem) for stem in stems]


def _some(places: Sequence[str]) -> str:
    more = f" and {len(places) - _LISTED_IN_ERROR:,} more" if len(places) > _LISTED_IN_ERROR else ""
    return ", ".join(places[:_LISTED_IN_ERROR]) + more


def _report(builder: _Builder, options: ReadOptions, files: list[FileReport], skipped: dict[str, str]) -> ReadReport:
    documents = builder.documents
    labels = label_counts(documents)
    return ReadReport(
        files=tuple(files),
        dropped=builder.dropped(),
        n_documents=len(documents),
        exact_duplicates=count_exact_duplicates(documents),
        labels=labels,
        without_label=sum(not document.domain for document in documents),
        question_lengths=LengthQuantiles.of([document.question for document in documents]),
        answer_lengths=LengthQuantiles.of([answer for document in documents for answer in document.answers]),
        control_characters=builder.cells.control_characters,
        lone_surrogates=builder.cells.lone_surrogates,
        skipped_files=skipped,
        label_work=label_report(builder.domains, options.domain_map, labels),
        masked=builder.mask.counts,
    )
