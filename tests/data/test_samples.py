"""The bundled corpora: size, length, texts that share nothing, questions neither trivial nor hopeless."""

import math
from collections import Counter, defaultdict

import pytest

from dmnrag.data import load_sample
from dmnrag.errors import ConfigError
from dmnrag.text import SegmenterSettings, make_segmenter
from dmnrag.types import Document, Example

PAIRS = {"medical": 240, "legal": 150}
LABELS = {"medical": 8, "legal": 5}
HELD_OUT = 60
SHARED_RUN = 12
FRAME = 6
SAME_FRAME = 4

Sample = tuple[list[Document], list[Example]]


@pytest.fixture(scope="module", params=PAIRS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def sample(name: str) -> Sample:
    return load_sample(name)


def test_sample_is_large_enough_and_covers_its_domains(name: str, sample: Sample) -> None:
    documents, examples = sample
    assert len(documents) >= PAIRS[name]
    assert len(examples) >= HELD_OUT
    assert len({d.domain[-1] for d in documents}) == LABELS[name]


def test_sample_ids_are_unique(sample: Sample) -> None:
    documents, examples = sample
    ids = [d.doc_id for d in documents] + [e.query.query_id for e in examples]
    assert [i for i, n in Counter(ids).items() if n > 1] == []


def test_sample_answers_have_80_to_200_characters(sample: Sample) -> None:
    wrong = {d.doc_id: len(a) for d in sample[0] for a in d.answers if not 80 <= len(a) <= 200}
    assert wrong == {}


def test_no_two_sample_answers_share_a_run_of_12_characters(sample: Sample) -> None:
    documents, examples = sample
    owners: dict[str, set[str]] = defaultdict(set)
    texts = [(d.doc_id, a) for d in documents for a in d.answers]
    texts += [(e.query.query_id, r) for e in examples for r in e.references]
    for owner, text in texts:
        for i in range(len(text) - SHARED_RUN + 1):
            owners[text[i : i + SHARED_RUN]].add(owner)
    assert {run: sorted(ids) for run, ids in owners.items() if len(ids) > 1} == {}


def test_sample_questions_are_not_one_frame_with_names_swapped(sample: Sample) -> None:
    documents, examples = sample
    questions = [d.question for d in documents] + [e.query.text for e in examples]
    frames = Counter(
        (side, q[:FRAME] if side == "begin" else q[-FRAME:]) for q in questions for side in ("begin", "end")
    )
    assert {frame: n for frame, n in frames.items() if n > SAME_FRAME} == {}


def test_every_held_out_question_has_its_gold_document_of_the_same_domain(sample: Sample) -> None:
    documents, examples = sample
    domains = {d.doc_id: d.domain for d in documents}
    wrong = [e.query.query_id for e in examples if domains.get(e.gold_doc_ids[0]) != e.query.domain]
    assert wrong == []


def test_held_out_questions_are_not_copies(sample: Sample) -> None:
    documents, examples = sample
    questions = {d.question for d in documents}
    assert [e.query.query_id for e in examples if e.query.text in questions] == []


def test_joint_bm25_finds_some_but_not_all(sample: Sample) -> None:
    documents, examples = sample
    recall = joint_bm25_recall(documents, examples, k=3)
    assert 0.4 <= recall <= 0.85


def test_unknown_sample_names_the_samples() -> None:
    with pytest.raises(ConfigError, match="medical, legal"):
        load_sample("finance")


def joint_bm25_recall(documents: list[Document], examples: list[Example], k: int) -> float:
    """Share of questions whose gold is among the k best by eq. 2, domain joined, default segmenter.

    Written here, apart from the package's own index: the corpora are judged, not the index.
    """
    segmenter = make_segmenter(SegmenterSettings())
    texts = segmenter.segment_all([" ".join((*d.domain, d.question, *d.answers)) for d in documents])
    counts = [Counter(t) for t in texts]
    in_documents = Counter(term for c in counts for term in c)
    mean_length = sum(map(len, texts)) / len(texts)
    found = 0
    for example in examples:
        query = Counter(segmenter.segment(" ".join((*example.query.domain, example.query.text))))
        scores = [
            (
                -sum(n * bm25(c[t], in_documents[t], len(texts), len(x) / mean_length) for t, n in query.items()),
                d.doc_id,
            )
            for c, x, d in zip(counts, texts, documents, strict=True)
        ]
        found += example.gold_doc_ids[0] in [doc_id for _, doc_id in sorted(scores)[:k]]
    return found / len(examples)


def bm25(frequency: int, containing: int, n_documents: int, length: float, k1: float = 1.2, b: float = 0.75) -> float:
    idf = math.log(1 + (n_documents - containing + 0.5) / (containing + 0.5))
    return idf * frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * length))
