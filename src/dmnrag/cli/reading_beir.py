"""A BEIR folder as what is indexed: its documents, with the same report that tables give."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dmnrag.data import ReadOptions, ReadReport
from dmnrag.data.exchange import CORPUS_FILE, read_beir_corpus
from dmnrag.data.report import FileReport, LengthQuantiles, count_exact_duplicates, label_counts
from dmnrag.errors import ConfigError
from dmnrag.types import Document


def is_beir(paths: Sequence[Path]) -> bool:
    """Whether the paths are one BEIR folder."""
    return len(paths) == 1 and (paths[0] / CORPUS_FILE).is_file()


def read_beir_documents(folder: Path, reading: ReadOptions) -> tuple[list[Document], ReadReport]:
    """The folder's documents; its queries are for `evaluate --queries`.

    Raises:
        ConfigError: an option that says how to read a table.
        DataError: a wrong line or an id that stands twice.
    """
    if replace(reading, domain_kind="path") != ReadOptions():
        raise ConfigError(
            f"{folder} is a BEIR folder, whose format leaves nothing to choose: options of encoding, delimiter, "
            "sheet, domain and masking are for tables"
        )
    documents = read_beir_corpus(folder / CORPUS_FILE)
    if reading.domain_kind == "set":
        documents = [replace(document, domain=tuple(sorted(document.domain))) for document in documents]
    report = ReadReport(
        files=(FileReport(str(folder / CORPUS_FILE), "BEIR", ("_id", "title", "text"), {}, len(documents)),),
        dropped=(),
        n_documents=len(documents),
        exact_duplicates=count_exact_duplicates(documents),
        labels=label_counts(documents),
        without_label=sum(not document.domain for document in documents),
        question_lengths=LengthQuantiles.of([document.question for document in documents]),
        answer_lengths=LengthQuantiles.of([answer for document in documents for answer in document.answers]),
        control_characters=0,
        lone_surrogates=0,
    )
    return documents, report
