"""Questions of which it is known whether the documents found hold their evidence, made from the index alone.

Some documents of the index are asked for by their own questions, as a service would ask; held-out questions that name
the documents which answer them join in. Each question gives two cases:

- as found: the evidence is there if the document, or a re-post of it, is among the k hits. Where questions are searched
  too, a document's own question finds it by its answers alone (`blanked`);
- removed: the same search without the document and its re-posts, the rest moved up: no evidence.

So half of the questions have their evidence in the index, and what is learnt is to tell the two apart. Questions of
other fields (`foreign`) join in as a third kind.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from dmnrag.data import repost_groups
from dmnrag.domain import DomainModel, Inference
from dmnrag.domain.sample import sample_documents
from dmnrag.errors import DataError
from dmnrag.index import Index
from dmnrag.pipeline import MAX_QUESTION_CHARACTERS, Pipeline
from dmnrag.protocols import FloatMatrix
from dmnrag.refusal.blanked import BlankedDense, blanked, blanked_sparse, blanked_vectors, questions_are_searched
from dmnrag.refusal.features import Found
from dmnrag.refusal.foreign import foreign_questions
from dmnrag.retrieval.layers import LayerHits, RetrievalSettings, Retriever
from dmnrag.types import JOINT, PLAIN, Document, Domain, Hit, Layer, Query

_HAS_WORD = re.compile(r"\w")
_NO_DOMAIN = ("",)
_MARGIN = 10
"""Hits fetched beyond k, to move up where a document and its re-posts are taken out."""
_LEARNT_FROM = 6_000
"""Documents for each held-out domain model; enough for the probabilities, and quick."""
_DOMAIN_FOLDS = 3
_FOREIGN_SHARE = 4
"""At most about a quarter as many foreign questions as other cases."""
_BLANKED_SHARE = 4
"""At most a quarter of the documents is blanked at once: with more of them the others would stand out."""


@dataclass(frozen=True, slots=True)
class Case:
    """What was found for one question, and whether the evidence is in it."""

    found: Found
    enough: bool
    group: int
    """Of the document and its re-posts; cases of one group are never on both sides of a fold."""
    label: str
    """The question's likeliest top label, or that of its document where the index has no domain model; else empty."""
    foreign: bool = False
    """Of another field: learnt from, and left out where thresholds are chosen and figures are taken."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question and the documents that are known to answer it."""

    query: Query
    own: frozenset[str]
    inferred: Inference | None
    label: str
    is_document: bool
    """It is the question of its own document, which is therefore blanked."""


def make_cases(pipeline: Pipeline, layer: Layer, k: int, limit: int) -> list[Case]:
    """Two cases for each question, foreign ones behind them, in an order that does not change; no chance is involved.

    Questions are those of at most `limit` documents, and the index's held-out ones that name their documents.
    Reads every document once, a few times where questions are searched too.
    """
    index = pipeline.index
    asked = [*_documents_asked(index, limit), *_examples_asked(index)]
    settings = RetrievalSettings(k=k + _MARGIN, layer=layer)
    found = search_as_asked(pipeline, [a.query for a in asked], settings)
    posts = _posts(index, [a.own for a in asked], found, k + _MARGIN)
    as_found = _find_blanked(pipeline, asked, posts, settings, found)
    groups: dict[str, int] = {}
    cases = []
    for a, own, layers, shown in zip(asked, posts, found, as_found, strict=True):
        group = groups.setdefault(min(own), len(groups))
        hidden = own if a.is_document else frozenset[str]()
        seen = found_for(index, a.query, shown, a.inferred, k, hidden)
        cases.append(Case(seen, any(hit.doc_id in own for hit in shown.hits[:k]), group, a.label))
        cases.append(Case(found_for(index, a.query, without(layers, own), a.inferred, k), False, group, a.label))
    texts = foreign_questions([case.found.documents[0] for case in cases if case.found.documents])
    stride = 1 + len(texts) * _FOREIGN_SHARE // (len(cases) + 1)
    return cases + _foreign_cases(pipeline, texts[::stride], settings, len(groups))


def _foreign_cases(
    pipeline: Pipeline, texts: Sequence[str], settings: RetrievalSettings, first_group: int
) -> list[Case]:
    index = pipeline.index
    inferred = infer(index, texts)
    queries = [
        Query(f"foreign {number}", text, inference.domain if inference else ())
        for number, (text, inference) in enumerate(zip(texts, inferred, strict=True))
    ]
    return [
        Case(
            found_for(index, query, layers, inference, settings.k - _MARGIN),
            False,
            first_group + number,
            label_of(inference, ()),
            foreign=True,
        )
        for number, (query, layers, inference) in enumerate(
            zip(queries, search_as_asked(pipeline, queries, settings), inferred, strict=True)
        )
    ]


def _documents_asked(index: Index, limit: int) -> list[_Asked]:
    sampled = _sample(index, limit)
    return [
        _Asked(
            Query(f"document {d.doc_id}", d.question, inference.domain if inference else ()),
            frozenset({d.doc_id}),
            inference,
            label_of(inference, d.domain),
            True,
        )
        for d, inference in zip(sampled, _infer_held_out(index, sampled), strict=True)
    ]


def _examples_asked(index: Index) -> list[_Asked]:
    """The held-out questions that name documents of the index: people's own words, better than any document's."""
    examples = [e for e in index.examples if e.gold_doc_ids and _HAS_WORD.search(e.query.text)]
    examples = [e for e in examples if not index.missing(e.gold_doc_ids)]
    return [
        _Asked(
            Query(f"question {e.query.query_id}", e.query.text, inference.domain if inference else ()),
            frozenset(e.gold_doc_ids),
            inference,
            label_of(inference, e.query.domain),
            False,
        )
        for e, inference in zip(examples, infer(index, [e.query.text for e in examples]), strict=True)
    ]


def label_of(inferred: Inference | None, domain: Domain) -> str:
    """The top label by which a question's threshold is chosen; empty where nothing is known."""
    if inferred is not None and inferred.alternatives:
        return inferred.alternatives[0][0]
    return next(iter(domain), "")


def infer(index: Index, questions: Sequence[str]) -> Sequence[Inference | None]:
    """What the index's domain model says of each question; None where it has none."""
    model = index.domain_model
    return [None] * len(questions) if model is None else model.infer(questions)


def _infer_held_out(index: Index, documents: Sequence[Document]) -> Sequence[Inference | None]:
    """The domain of each document's question, by models that have not learnt from the document.

    The index's own model knows these questions by heart and would be surer of them than of any that people ask.
    """
    model = index.domain_model
    if model is None:
        return [None] * len(documents)
    settings = replace(model.settings, max_documents=_LEARNT_FROM)
    fold_of = {document.doc_id: number % _DOMAIN_FOLDS for number, document in enumerate(documents)}
    inferred: dict[str, Inference] = {}
    for fold in range(_DOMAIN_FOLDS):
        try:
            others = DomainModel.train((d for d in index.all_documents() if fold_of.get(d.doc_id) != fold), settings)
        except DataError:  # so few documents that no label is left: the index's own model is all there is
            others = model
        asked = [document for document in documents if fold_of[document.doc_id] == fold]
        found = others.infer([document.question for document in asked])
        inferred |= {document.doc_id: inference for document, inference in zip(asked, found, strict=True)}
    return [inferred[document.doc_id] for document in documents]


def search_as_asked(pipeline: Pipeline, queries: Sequence[Query], settings: RetrievalSettings) -> list[LayerHits]:
    """Joint retrieval where a domain is known, else plain, as the default methods do."""
    found: dict[str, LayerHits] = {}
    for use in (JOINT, PLAIN):
        asked = [query for query in queries if bool(query.domain) == use.in_query]
        layers = pipeline.search_layers(asked, replace(settings, use=use))
        found |= {query.query_id: hits for query, hits in zip(asked, layers, strict=True)}
    return [found[query.query_id] for query in queries]


def without(layers: LayerHits, doc_ids: Set[str]) -> LayerHits:
    """The rankings with some documents taken out and the others moved up."""

    def rest(hits: Iterable[Hit]) -> list[Hit]:
        kept = [hit for hit in hits if hit.doc_id not in doc_ids]
        return [replace(hit, rank=rank) for rank, hit in enumerate(kept, start=1)]

    return LayerHits(rest(layers.hits), rest(layers.sparse), rest(layers.dense))


def _sample(index: Index, limit: int) -> list[Document]:
    """Documents with a question and an answer; of frequent top labels fewer, so that rare ones have their share."""

    def usable() -> Iterator[Document]:
        for document in index.all_documents():
            is_question = _HAS_WORD.search(document.question) and len(document.question) <= MAX_QUESTION_CHARACTERS
            if is_question and any(_HAS_WORD.search(answer) for answer in document.answers):
                # The sampler passes over documents without a domain; here they are one group like the others.
                yield replace(document, domain=document.domain or _NO_DOMAIN)

    chosen, _ = sample_documents(usable(), limit)
    return [replace(d, domain=()) if d.domain == _NO_DOMAIN else d for d in chosen]


def _posts(index: Index, own: Sequence[Set[str]], found: Sequence[LayerHits], depth: int) -> list[frozenset[str]]:
    """The documents of each question with their re-posts, which are looked for among all that was found."""
    listed = chain.from_iterable((layers.hits, layers.sparse[:depth], layers.dense[:depth]) for layers in found)
    seen = dict.fromkeys(sorted(chain.from_iterable(own))) | dict.fromkeys(
        hit.doc_id for hits in listed for hit in hits
    )
    documents = index.documents(list(seen))
    numbers = repost_groups([d.question for d in documents], [d.answers for d in documents])
    members: dict[int, list[str]] = defaultdict(list)
    for doc_id, number in zip(seen, numbers, strict=True):
        members[number].append(doc_id)
    number_of = dict(zip(seen, numbers, strict=True))
    return [frozenset(chain.from_iterable(members[number_of[doc_id]] for doc_id in doc_ids)) for doc_ids in own]


def _find_blanked(
    pipeline: Pipeline,
    asked: Sequence[_Asked],
    posts: Sequence[frozenset[str]],
    settings: RetrievalSettings,
    found: Sequence[LayerHits],
) -> list[LayerHits]:
    """What each document's own question finds where the document and its re-posts are blanked; others as `found`."""
    index = pipeline.index
    changed = list(found)
    for use in (JOINT, PLAIN):
        name = None if settings.layer == "sparse" else pipeline.retriever_name(use)
        chosen = [i for i, a in enumerate(asked) if a.is_document and bool(a.query.domain) == use.in_query]
        if not chosen or not questions_are_searched(index, name):
            continue
        vectors = None if name is None else _vectors(pipeline, name, frozenset().union(*(posts[i] for i in chosen)))
        in_question = name is not None and bool(index.retriever_info(name).get("domain_in_question"))
        of_use = replace(settings, use=use, domain_in_dense_query=in_question)
        for members in _folds(chosen, posts, index.n_documents // _BLANKED_SHARE):
            doc_ids = frozenset().union(*(posts[i] for i in members))
            with TemporaryDirectory() as folder:
                retriever = _blanked_retriever(pipeline, name, doc_ids, vectors, Path(folder) / "sparse")
                layers = retriever.retrieve_layers([asked[i].query for i in members], of_use)
            for i, hits in zip(members, layers, strict=True):
                changed[i] = hits
    return changed


def _folds(chosen: Sequence[int], posts: Sequence[Set[str]], at_most: int) -> list[list[int]]:
    """Positions whose documents together are at most `at_most`, at least one each."""
    folds: list[list[int]] = []
    n_documents = 0
    for position in chosen:
        if not folds or n_documents + len(posts[position]) > at_most:
            folds.append([])
            n_documents = 0
        folds[-1].append(position)
        n_documents += len(posts[position])
    return folds


def _vectors(pipeline: Pipeline, name: str, doc_ids: Set[str]) -> dict[str, FloatMatrix]:
    documents = pipeline.index.documents(sorted(doc_ids))
    return blanked_vectors(pipeline.index, name, documents, pipeline.encoder_of(name))


def _blanked_retriever(
    pipeline: Pipeline, name: str | None, doc_ids: Set[str], vectors: Mapping[str, FloatMatrix] | None, folder: Path
) -> Retriever:
    index = pipeline.index
    sparse = blanked_sparse(index, doc_ids, folder)
    if name is None or vectors is None:
        return Retriever(sparse, domain_kind=index.settings.domain_kind)
    dense = BlankedDense(index.dense(name), {doc_id: vectors[doc_id] for doc_id in sorted(doc_ids)})
    return Retriever(sparse, dense, pipeline.encoder_of(name), domain_kind=index.settings.domain_kind)


def found_for(
    index: Index,
    query: Query,
    layers: LayerHits,
    inferred: Inference | None,
    k: int,
    hidden: Set[str] = frozenset(),
) -> Found:
    """A search with the documents of its first k hits; those in `hidden` without their questions."""
    documents = index.documents([hit.doc_id for hit in layers.hits[:k]])
    shown = [blanked(document) if document.doc_id in hidden else document for document in documents]
    return Found(query.text, layers, shown, inferred, k, index.settings.domain_kind)
