"""On real questions the server's scores are eq. 2 with Lucene's lengths, whatever the number of shards."""

import csv
import io
from collections import Counter
from dataclasses import dataclass
from math import log
from pathlib import Path

import pytest
from elastic_builder import build, layout_of

from dmnrag.retrieval.elastic import Cluster, ElasticSparseIndex, ShardSettings, delete_index, segment_documents
from dmnrag.retrieval.sparse import MAX_QUERY_TERMS, Bm25Settings, EmbeddedSparseIndex, write_segment
from dmnrag.retrieval.table import DocumentTable
from dmnrag.testing.sparse_contract import searched_text
from dmnrag.text import SegmenterSettings, TextSegmenter, make_segmenter
from dmnrag.types import JOINT, PLAIN, Document, DomainUse, Hit, Query

pytestmark = pytest.mark.service

HALF = DomainUse(weight=0.5)


@dataclass(frozen=True)
class Corpus:
    documents: list[Document]
    queries: list[Query]
    segmenter: TextSegmenter


@pytest.fixture(scope="module")
def corpus(shared: Path) -> Corpus:
    """Every fifth row is a question, the others are documents."""
    text = (shared / "data" / "medical_im_gb18030.csv").read_bytes().decode("gb18030")
    rows = [
        Document(f"r{i}", f"{row['title']}\n{row['ask']}", (row["answer"],), (row["department"],))
        for i, row in enumerate(csv.DictReader(io.StringIO(text)))
    ]
    queries = [Query(row.doc_id, row.question, row.domain) for row in rows[::5]]
    documents = [row for i, row in enumerate(rows) if i % 5]
    return Corpus(documents, queries, make_segmenter(SegmenterSettings()))


def texts_of(corpus: Corpus) -> list[str]:
    return [searched_text(document, "question+answer") for document in corpus.documents]


@pytest.fixture(scope="module")
def embedded(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> EmbeddedSparseIndex:
    folder = tmp_path_factory.mktemp("embedded") / "segment"
    domains = [document.domain for document in corpus.documents]
    write_segment(folder, zip(texts_of(corpus), domains, strict=True), corpus.segmenter)
    table = DocumentTable.from_lists([document.doc_id for document in corpus.documents], domains)
    return EmbeddedSparseIndex([folder], table, corpus.segmenter, Bm25Settings(lucene_lengths=True))


@pytest.fixture(scope="module")
def indexes(cluster: Cluster, corpus: Corpus) -> dict[int, ElasticSparseIndex]:
    """By the number of shards."""
    built = {}
    for shards in (1, 3):
        rows = segment_documents(
            ((d, text, {}) for d, text in zip(corpus.documents, texts_of(corpus), strict=True)), corpus.segmenter
        )
        opened = build(cluster, f"oracle-{shards}", rows, layout_of(), ShardSettings(shards, 0))
        built[shards] = ElasticSparseIndex(cluster, opened.physical, corpus.segmenter)
    return built


@pytest.fixture(scope="module", autouse=True)
def _deleted(cluster: Cluster, indexes: dict[int, ElasticSparseIndex]) -> object:
    yield
    for shards in indexes:
        delete_index(cluster, f"oracle-{shards}")


def lucene_length(length: int) -> int:
    """To 39 exact; above, 24 and the four highest bits of the rest."""
    rest = length - 24
    dropped = max(rest.bit_length() - 4, 0) if rest > 0 else 0
    return length if dropped == 0 else 24 + (rest >> dropped << dropped)


@dataclass(frozen=True)
class Oracle:
    """Eq. 2 by hand over joint texts: k1 = 1.2, b = 0.75."""

    counts: list[Counter[str]]
    frequencies: Counter[str]
    average: float

    @classmethod
    def of(cls, corpus: Corpus) -> "Oracle":
        counts = [
            Counter([t for text in (text, *d.domain) for t in corpus.segmenter.segment(text)])
            for d, text in zip(corpus.documents, texts_of(corpus), strict=True)
        ]
        frequencies: Counter[str] = Counter()
        for of_document in counts:
            frequencies.update(of_document.keys())
        return cls(counts, frequencies, sum(c.total() for c in counts) / len(counts))

    def score(self, number: int, weights: dict[str, float]) -> float:
        counts = self.counts[number]
        norm = 1.2 * (1 - 0.75 + 0.75 * lucene_length(counts.total()) / self.average)
        total = 0.0
        for term, weight in weights.items():
            if f := counts[term]:
                n = self.frequencies[term]
                total += weight * log(1 + (len(self.counts) - n + 0.5) / (n + 0.5)) * f * 2.2 / (f + norm)
        return total


def test_scores_are_those_of_a_hand_written_oracle(corpus: Corpus, indexes: dict[int, ElasticSparseIndex]) -> None:
    """Every score of the top 10, and none outside the top 10 is higher."""
    oracle = Oracle.of(corpus)
    number_of = {d.doc_id: i for i, d in enumerate(corpus.documents)}
    queries = corpus.queries[::25]
    for query, hits in zip(queries, indexes[1].search(queries, 10), strict=True):
        weights: dict[str, float] = Counter(corpus.segmenter.segment(query.text))
        for term in corpus.segmenter.segment(query.domain[0]):
            weights[term] = weights.get(term, 0) + 1
        assert [hit.score for hit in hits] == pytest.approx(
            [oracle.score(number_of[hit.doc_id], weights) for hit in hits], rel=1e-5
        )
        found = {hit.doc_id for hit in hits}
        best_other = max(oracle.score(i, weights) for d, i in number_of.items() if d not in found)
        assert best_other <= hits[-1].score * (1 + 1e-5)


def doc_ids(rankings: list[list[Hit]]) -> list[list[str]]:
    return [[hit.doc_id for hit in hits] for hits in rankings]


@pytest.mark.parametrize("use", [JOINT, PLAIN, HALF], ids=["joint", "plain", "half"])
def test_embedded_and_both_numbers_of_shards_give_the_same_top_10(
    corpus: Corpus, indexes: dict[int, ElasticSparseIndex], embedded: EmbeddedSparseIndex, use: DomainUse
) -> None:
    expected = embedded.search(corpus.queries, 10, use=use)
    one, three = (indexes[shards].search(corpus.queries, 10, use=use) for shards in (1, 3))
    assert one == three
    assert doc_ids(one) == doc_ids(expected)
    for hits, wanted in zip(one, expected, strict=True):
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in wanted], rel=1e-5)


def test_the_filter_gives_the_same_hits_as_embedded(
    corpus: Corpus, indexes: dict[int, ElasticSparseIndex], embedded: EmbeddedSparseIndex
) -> None:
    queries = corpus.queries[::5]
    allowed = [query.domain for query in queries]
    found = indexes[3].search(queries, 10, allowed=allowed)
    assert doc_ids(found) == doc_ids(embedded.search(queries, 10, allowed=allowed))


@pytest.mark.parametrize("shards", [1, 3])
def test_long_questions_are_cut_to_the_same_terms_as_embedded(
    corpus: Corpus, indexes: dict[int, ElasticSparseIndex], embedded: EmbeddedSparseIndex, shards: int
) -> None:
    queries = [
        Query(str(i), "\n".join(query.text for query in corpus.queries[i : i + 30]), corpus.queries[i].domain)
        for i in range(0, 300, 30)
    ]
    assert min(len(set(corpus.segmenter.segment(query.text))) for query in queries) > 2 * MAX_QUERY_TERMS
    for use in (JOINT, PLAIN):
        found, expected = indexes[shards].search(queries, 10, use=use), embedded.search(queries, 10, use=use)
        assert doc_ids(found) == doc_ids(expected)
        for hits, wanted in zip(found, expected, strict=True):
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in wanted], rel=1e-5)
