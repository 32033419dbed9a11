"""Whether an answer speaks of its question's domain (the paper's claim 8, which it does not measure).

A classifier of character n-grams learns from the answers of the index, the training split, which domain an answer
belongs to. An answer agrees where the classifier sees the question's domain in it. Names of domains are cut out
of every text first: an answer that only repeats the label of its prompt does not agree by that.

`agreement_file` keeps the values in the results folder.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from dmnrag._optional import require
from dmnrag.domain.sample import sample_documents
from dmnrag.errors import DataError
from dmnrag.retrieval.layers import DomainKind
from dmnrag.types import Document, Domain

DOMAIN_AGREEMENT = "domain agreement"
"""Name of the metric: 1 where the classifier sees the question's domain, else 0."""

_NGRAMS = (1, 3)
"""Characters, their pairs and triples: words of any segmentation are among them."""
_MIN_DOCUMENTS = 2
"""An n-gram of a single answer says nothing of its domain."""
_MOST_DOCUMENTS = 20_000
"""That the classifier learns from: what it takes grows with the documents, whatever the size of the index."""


class DomainReader:
    """A classifier from answers to domains: tf-idf of character n-grams and a linear SVM."""

    def __init__(self, model: Any, labels: frozenset[str], kind: DomainKind) -> None:
        """Use `train`."""
        self._model = model
        self._label_names = _any_of(labels)
        self._kind = kind

    @classmethod
    def train(cls, documents: Iterable[Document], kind: DomainKind = "path") -> "DomainReader":
        """Learn from the documents' answers, read once; more than 20,000 are thinned, frequent domains first.

        Args:
            documents: of the index; those without a domain are passed over.
            kind: `path`: the most specific label is learnt. `set`: an answer teaches each of its labels.

        Raises:
            DataError: fewer than two different labels, or answers that have no n-gram in common.
            MissingDependencyError: the extra `report` is not installed.
        """
        sample, _ = sample_documents(documents, _MOST_DOCUMENTS)
        # A rare domain is never thinned out, so the sample has every label.
        names = frozenset(label for document in sample for label in document.domain)
        cut = _any_of(names)
        rows = [
            (cut.sub("", " ".join(document.answers)), label)
            for document in sample
            for label in _labels(document.domain, kind)
        ]
        if len({label for _, label in rows}) < 2:
            raise DataError(f"domain agreement needs documents of at least two domains, found {sorted(names)}")
        text = require("sklearn.feature_extraction.text", "report")
        svm = require("sklearn.svm", "report")
        pipeline = require("sklearn.pipeline", "report")
        model = pipeline.make_pipeline(
            text.TfidfVectorizer(analyzer="char", ngram_range=_NGRAMS, min_df=_MIN_DOCUMENTS, sublinear_tf=True),
            svm.LinearSVC(random_state=0),
        )
        try:
            model.fit([row[0] for row in rows], [row[1] for row in rows])
        except ValueError as error:
            raise DataError(
                f"domain agreement cannot be learnt from {len(rows):,} answers ({error}): their texts must share "
                f"n-grams, each in at least {_MIN_DOCUMENTS} of them"
            ) from error
        return cls(model, names, kind)

    def agreement(self, answers: Sequence[str | None], domains: Sequence[Domain]) -> tuple[float | None, ...]:
        """1 where the label seen is the question's, else 0; None without an answer or a domain.

        An empty answer speaks of no domain: 0.
        """
        seen = self._seen([answer or "" for answer in answers])
        return tuple(
            None
            if answer is None or not domain
            else float(bool(answer.strip()) and label in _labels(domain, self._kind))
            for answer, domain, label in zip(answers, domains, seen, strict=True)
        )

    def _seen(self, texts: Sequence[str]) -> list[str]:
        if not texts:
            return []
        return [str(label) for label in self._model.predict([self._label_names.sub("", text) for text in texts])]


def _labels(domain: Domain, kind: DomainKind) -> tuple[str, ...]:
    return domain if kind == "set" else domain[-1:]


def _any_of(labels: frozenset[str]) -> re.Pattern[str]:
    """The longest first, so that 心血管内科 goes as a whole before 内科."""
    longest_first = sorted(labels, key=lambda label: (-len(label), label))
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
