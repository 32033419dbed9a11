"""The documents of each cell, found once for all cells that find the same ones, and kept.

Kept as `corpora/NAME/evidence/HASH.jsonl`, where the hash is over all that decides the ranking; a cell's own
`evidence.jsonl` is the same file under a second name. So a killed run ranks nothing twice, and a longer sweep nothing
at all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dmnrag._io import write_jsonl_atomic
from dmnrag.errors import DataError
from dmnrag.experiments.matrix.controls import (
    gold_documents,
    random_documents,
    with_documents,
    without_documents,
)
from dmnrag.experiments.matrix.corpora import Corpus, digest
from dmnrag.experiments.matrix.domains import DomainClassifier, domains_for, refuse_without
from dmnrag.experiments.records import Cell, Evidence, read_values, to_json
from dmnrag.index.manifest import describe_part
from dmnrag.methods import find_method
from dmnrag.pipeline import Pipeline
from dmnrag.protocols import Encoder, FloatMatrix
from dmnrag.retrieval.dense import make_encoder
from dmnrag.retrieval.dense.wrapped import WrappedEncoder
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.retrieval.rerank import make_reranker
from dmnrag.types import Domain, DomainUse, Query


class EvidenceStore:
    """Finds and keeps the documents of one corpus's cells."""

    def __init__(
        self,
        corpus: Corpus,
        folder: Path,
        *,
        seed: int,
        imported: Mapping[str, Path],
        classifier: DomainClassifier | None = None,
    ) -> None:
        """Nothing is opened before it is needed.

        Args:
            corpus: with its index.
            folder: where evidence is kept.
            seed: of random documents and wrong domains.
            imported: files of cells whose documents are brought in, by the name that stands in the cell.
            classifier: of domains, for cells that infer them.
        """
        self._corpus = corpus
        self._folder = folder
        self._seed = seed
        self._imported = imported
        self._classifier = classifier
        self._rows: dict[Path, list[Evidence]] = {}
        self._encoders: dict[str, Encoder] = {}
        self._pipelines: dict[tuple[str | None, str | None], Pipeline] = {}

    def state(self, cell: Cell) -> str:
        """sha256 over all that decides a cell's documents."""
        corpus = self._corpus
        if cell.evidence is not None:
            return digest([corpus.sample, describe_part(self._imported[cell.evidence]).sha256, cell.k])
        what: list[Any] = [
            corpus.card.fingerprint,
            corpus.sample,
            cell.control if cell.control != "copy-first" else None,
        ]
        what += [cell.domain, cell.domain_noise, self._seed, cell.k, cell.layer]
        what += [corpus.retriever_state(cell.retriever), cell.retriever, cell.reranker, cell.candidates]
        what += [cell.domain_filter, cell.domain_weight, cell.domain_in_document, find_method(cell.method).joint]
        if cell.domain == "inferred":
            what.append(refuse_without(self._classifier).state(corpus.index))
        return digest(what)

    def file(self, cell: Cell) -> Path:
        """Where a cell's documents are kept."""
        return self._folder / f"{self.state(cell)[:20]}.jsonl"

    def rows(self, cell: Cell) -> list[Evidence]:
        """A cell's documents, a row per question; found now where they are not kept yet.

        Raises:
            DataError: an imported file that lacks a question or cannot be read.
        """
        path = self.file(cell)
        if path not in self._rows:
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_jsonl_atomic(path, map(to_json, self._find(cell)))
            self._rows[path] = list(read_values(Evidence, path))
        return self._rows[path]

    def _find(self, cell: Cell) -> list[Evidence]:
        index, examples = self._corpus.index, self._corpus.examples
        if cell.evidence is not None:
            return self._import(cell)
        domains = self._domains(cell)
        if cell.control == "closed-book":
            return without_documents(examples, domains)
        if cell.control == "gold":
            return gold_documents(index, examples, domains)
        if cell.control == "random":
            return random_documents(index, examples, domains, cell.k, seed=self._seed)
        queries = [Query(e.query.query_id, e.query.text, domain) for e, domain in zip(examples, domains, strict=True)]
        rankings = self._pipeline(cell).search(queries, _settings(cell))
        return [
            with_documents(example, domain, index.documents([h.doc_id for h in hits]), [h.score for h in hits])
            for example, domain, hits in zip(examples, domains, rankings, strict=True)
        ]

    def _domains(self, cell: Cell) -> list[Domain]:
        corpus = self._corpus
        return domains_for(
            cell.domain, cell.domain_noise, corpus.examples, corpus.index, seed=self._seed, classifier=self._classifier
        )

    def _pipeline(self, cell: Cell) -> Pipeline:
        parts = (cell.retriever, cell.reranker)
        if parts not in self._pipelines:
            encoders = {} if cell.retriever is None else {cell.retriever: self._encoder(cell.retriever)}
            reranker = None if cell.reranker is None else make_reranker(cell.reranker)
            self._pipelines[parts] = Pipeline(self._corpus.index, encoders=encoders, reranker=reranker)
        return self._pipelines[parts]

    def _encoder(self, retriever: str) -> Encoder:
        if retriever not in self._encoders:
            self._encoders[retriever] = RepeatedQueries(
                make_encoder(self._corpus.index.dense_settings(retriever).encoder)
            )
        return self._encoders[retriever]

    def _import(self, cell: Cell) -> list[Evidence]:
        assert cell.evidence is not None  # the caller looked
        path = self._imported[cell.evidence]
        found = {row.query_id: row for row in read_values(Evidence, path)}
        missing = [e.query.query_id for e in self._corpus.examples if e.query.query_id not in found]
        if missing:
            raise DataError(
                f"{path} has no row for {len(missing):,} of the {len(self._corpus.examples):,} questions of corpus "
                f"{self._corpus.card.name} ({', '.join(missing[:3])} ..): it needs one each, so give the file of an "
                "experiment with the same questions and seed"
            )
        rows = []
        for example in self._corpus.examples:
            row = found[example.query.query_id]
            if row.question != example.query.text:
                raise DataError(f"{path}: question {row.query_id!r} has another text than in the corpus")
            rows.append(replace(row, documents=row.documents[: cell.k]))
        return rows


class RepeatedQueries(WrappedEncoder):
    """Remembers whole lists of queries.

    Cells ask the same questions again. A vector's last bits can depend on the texts that it was encoded with, so
    lists are kept whole: a resumed run gets the vectors that an uninterrupted one got.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self._known: dict[tuple[str, ...], FloatMatrix] = {}

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """(n_texts, dimension)."""
        asked = tuple(texts)
        if asked not in self._known:
            self._known[asked] = self._encoder.encode_queries(texts)
        return np.array(self._known[asked])

    def encode_passages(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> FloatMatrix:
        """Not remembered."""
        return self._encoder.encode_passages(texts, progress)


def _settings(cell: Cell) -> RetrievalSettings:
    assert cell.layer is not None  # only answers made elsewhere have none
    method = find_method(cell.method)
    use: DomainUse = method.use
    if method.joint:
        use = replace(use, weight=cell.domain_weight, in_document=cell.domain_in_document)
    return RetrievalSettings(
        k=cell.k,
        layer=cell.layer,
        use=use,
        domain_filter=cell.domain_filter,
        retriever=cell.retriever,
        candidates=cell.candidates,
        rerank=cell.reranker is not None,
    )
