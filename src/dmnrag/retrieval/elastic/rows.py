"""A document with its terms and vectors, and its JSON in the index.

Terms come segmented, so that moving an index needs no segmenter. Floats are written as short as they can be
read back to the same float32, which `orjson` does for numpy arrays.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dmnrag._optional import require
from dmnrag.errors import DataError
from dmnrag.protocols import FloatMatrix, Segmenter
from dmnrag.retrieval.elastic.bulk import Action
from dmnrag.retrieval.elastic.layout import parts_field
from dmnrag.retrieval.elastic.terms import decode_terms, encode_terms
from dmnrag.types import Document

_LONGEST_ID = 512
"""Bytes of an `_id`, a limit of the server."""
_SEGMENTED_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """What the index holds of one document."""

    document: Document
    terms: Sequence[str]
    """Of the searched text, in any order, repeated as often as they occur."""
    label_terms: Sequence[str] = ()
    """Of its labels, segmented one by one."""
    vectors: Mapping[str, FloatMatrix] = field(default_factory=dict)
    """(n_parts, dimension) of each retriever by name."""


def segment_documents(
    documents: Iterable[tuple[Document, str, Mapping[str, FloatMatrix]]], segmenter: Segmenter
) -> Iterator[IndexedDocument]:
    """Documents with the text that the first layer searches and their vectors, as rows of the index.

    Read in a stream, some hundred texts at once.
    """
    stream = iter(documents)
    label_terms: dict[str, list[str]] = {}
    while chunk := list(islice(stream, _SEGMENTED_AT_ONCE)):
        fresh = sorted({label for document, _, _ in chunk for label in document.domain} - label_terms.keys())
        label_terms |= dict(zip(fresh, segmenter.segment_all(fresh), strict=True))
        terms_of = segmenter.segment_all([text for _, text, _ in chunk])
        for (document, _, vectors), terms in zip(chunk, terms_of, strict=True):
            of_labels = [term for label in document.domain for term in label_terms[label]]
            yield IndexedDocument(document, terms, of_labels, vectors)


def index_actions(rows: Iterable[IndexedDocument], fields: Mapping[str, str]) -> Iterator[Action]:
    """The writing of each row; `fields` names the vector field of each retriever.

    Raises:
        DataError: an id that the server does not take, a text that is not Unicode, or a row without the vectors
            of a retriever.
    """
    for row in rows:
        doc_id = row.document.doc_id
        yield _action(doc_id, {"index": {"_id": _check_id(doc_id)}}, to_source(row, fields))


def vector_actions(vectors: Iterable[tuple[str, FloatMatrix]], field_name: str) -> Iterator[Action]:
    """The writing of one retriever's vectors into documents that are there."""
    for doc_id, parts in vectors:
        yield _action(doc_id, {"update": {"_id": _check_id(doc_id)}}, {"doc": _vector_source(field_name, parts)})


def delete_actions(doc_ids: Iterable[str]) -> Iterator[Action]:
    """The removal of documents."""
    for doc_id in doc_ids:
        yield _action(doc_id, {"delete": {"_id": _check_id(doc_id)}})


def to_source(row: IndexedDocument, fields: Mapping[str, str]) -> dict[str, Any]:
    """What the index keeps of a row."""
    document = row.document
    text, replaced = encode_terms(row.terms)
    label_text, replaced_labels = encode_terms(row.label_terms)
    source: dict[str, Any] = {
        "doc_id": document.doc_id,
        "text": text,
        "domain": list(document.domain),
        "question": document.question,
        "answers": list(document.answers),
    }
    optional = {
        "label_terms": label_text,
        "replaced_terms": replaced + replaced_labels,
        "metadata": dict(document.metadata),
    }
    source |= {name: value for name, value in optional.items() if value}
    for retriever, field_name in fields.items():
        if retriever not in row.vectors:
            raise DataError(f"document {document.doc_id!r} comes without the vectors of the retriever {retriever!r}")
        source |= _vector_source(field_name, row.vectors[retriever])
    return source


def from_source(source: Mapping[str, Any], vectors: Mapping[str, FloatMatrix]) -> IndexedDocument:
    """The row that `to_source` wrote."""
    replaced = source.get("replaced_terms", ())
    return IndexedDocument(
        to_document(source),
        decode_terms(source["text"], replaced),
        decode_terms(source.get("label_terms", ""), replaced),
        vectors,
    )


def to_document(source: Mapping[str, Any]) -> Document:
    """The document of a row."""
    return Document(
        source["doc_id"],
        source["question"],
        tuple(source["answers"]),
        tuple(source["domain"]),
        source.get("metadata", {}),
    )


def _vector_source(field_name: str, parts: FloatMatrix) -> dict[str, Any]:
    source: dict[str, Any] = {field_name: [{"vector": vector} for vector in parts]}
    if len(parts) > 1:
        source[parts_field(field_name)] = len(parts)
    return source


def _action(doc_id: str, head: Mapping[str, Any], source: Mapping[str, Any] | None = None) -> Action:
    orjson = require("orjson", "elastic")
    option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    try:
        content = orjson.dumps(head, option=option)
        return Action(doc_id, content if source is None else content + orjson.dumps(source, option=option))
    except TypeError as error:  # a lone surrogate, as broken JSON brings it
        raise DataError(f"document {doc_id!r} cannot be written as JSON in UTF-8: {error}") from error


def _check_id(doc_id: str) -> str:
    if not 0 < len(doc_id.encode("utf-8", "surrogatepass")) <= _LONGEST_ID:
        raise DataError(
            f"the document id {doc_id[:60]!r} is empty or longer than {_LONGEST_ID} bytes, which Elasticsearch does "
            "not take; give the documents shorter ids"
        )
    return doc_id
