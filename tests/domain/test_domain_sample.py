"""Thinning of documents: bounded, fair to rare domains, without chance."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dmnrag.domain.sample import sample_documents
from dmnrag.types import Document


def documents(domains: list[str]) -> list[Document]:
    return [Document(f"d{i}", f"q{i}", ("a",), (domain,) if domain else ()) for i, domain in enumerate(domains)]


def test_few_documents_are_all_kept_and_those_without_a_domain_are_not() -> None:
    found, weights = sample_documents(documents(["a", "", "b", "a"]), 10)
    assert [d.doc_id for d in found] == ["d0", "d3", "d2"]
    assert weights == [1, 1, 1]


def test_the_most_frequent_domain_is_thinned_evenly_and_a_rare_one_stays_whole() -> None:
    found, weights = sample_documents(documents(["a"] * 16 + ["b"] * 3), 8)
    # 16 of a: thinned to every 2nd at the 9th, then to every 4th: 0, 4, 8, 12 stand for 16.
    assert [d.doc_id for d in found] == ["d0", "d4", "d8", "d12", "d16", "d17", "d18"]
    assert weights == [4, 4, 4, 4, 1, 1, 1]


@given(st.lists(st.sampled_from("abcde "), max_size=120), st.integers(1, 40))
def test_every_domain_keeps_its_weight_and_the_number_is_bounded(letters: list[str], at_most: int) -> None:
    rows = documents([letter.strip() for letter in letters])
    found, weights = sample_documents(iter(rows), at_most)
    counts = Counter(d.domain for d in rows if d.domain)
    total: Counter[tuple[str, ...]] = Counter()
    for document, weight in zip(found, weights, strict=True):
        total[document.domain] += weight  # type: ignore[assignment]
    assert len(found) <= max(at_most, len(counts))
    assert {domain: round(n, 6) for domain, n in total.items()} == dict(counts)
