"""A key that is limited to some domains never sees anything of the others."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from engine_parts import CHILD, DOCUMENTS, HEART, events_of, parts_of, run, running
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.errors import ConfigError, DomainUnknownError
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.llm.fake import FakeGenerator
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.service.events import Asked
from dmnrag.service.lookup import Looked, Wanted, look_up, visible
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import LAYERS, Document, Layer

LABELS = ("甲", "乙", "丙", "丁", "戊")


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Forty documents of five labels, their texts much alike, some without a label."""
    folder = tmp_path_factory.mktemp("allowed") / "i"
    paths = [(a, b) for a in LABELS for b in LABELS if a < b] + [(a,) for a in LABELS] + [()]
    documents = [
        Document(f"d{i}", f"第{i % 7}类问题怎么办", (f"第{i}个回答。",), paths[i % len(paths)]) for i in range(40)
    ]
    build_index(folder, documents, IndexSettings(dense=DenseSettings(encoder="fake")), encoder=HashEncoder())
    with Index.open(folder) as index:
        yield Pipeline(index)


@given(
    allowed=st.frozensets(st.sampled_from(LABELS)),
    layer=st.sampled_from(LAYERS),
    k=st.integers(1, 50),
    text=st.sampled_from(["问题怎么办", "第3类问题", "个回答", "甲", "丁戊"]),
    domain=st.sampled_from([None, "auto", "甲", ("乙", "丙")]),
)
def test_no_layer_finds_a_document_of_another_domain(
    pipeline: Pipeline, allowed: frozenset[str], layer: Layer, k: int, text: str, domain: str | None
) -> None:
    wanted = Wanted(pipeline, None, text, (), domain, None, layer, k, allowed=allowed)
    [limited] = look_up([wanted])
    if isinstance(limited, DomainUnknownError):
        given_labels = {domain} if isinstance(domain, str) else set(domain or ())
        assert not given_labels & allowed
        return
    assert isinstance(limited, Looked)
    assert all(allowed & set(document.domain) for document in limited.documents)
    if layer != "sparse":  # the filter comes before ranking: as many as there are, not what is left of the best k
        may_be_seen = sum(bool(allowed & set(d.domain)) for d in pipeline.index.all_documents())
        n_found = len(limited.documents)
        assert n_found == min(k, may_be_seen) if layer != "cascade" else n_found <= min(k, may_be_seen)


def test_questions_with_different_limits_are_searched_apart_in_one_batch(pipeline: Pipeline) -> None:
    base = Wanted(pipeline, None, "问题怎么办", (), None, None, "hybrid", 5)
    batch = [replace(base, allowed=allowed) for allowed in (None, frozenset("甲"), frozenset("乙"), frozenset[str]())]
    together = look_up(batch)
    alone = [look_up([wanted])[0] for wanted in batch]
    assert [r.hits for r in together if isinstance(r, Looked)] == [r.hits for r in alone if isinstance(r, Looked)]
    assert isinstance(together[3], Looked)
    assert together[3].hits == ()


def test_a_batch_finds_what_one_by_one_finds_and_one_bad_question_fails_alone(pipeline: Pipeline) -> None:
    base = Wanted(pipeline, None, "问题怎么办", (), None, None, "hybrid", 5)
    batch = [
        base,
        replace(base, domain="外科"),
        replace(base, question="第3类", layer="sparse"),
        replace(base, method="Dmn"),
        replace(base, domain="甲", k=2, layer="cascade"),
        replace(base, domain="auto"),
    ]
    together = look_up(batch)
    assert [type(r).__name__ for r in together] == [
        *("Looked", "DomainUnknownError", "Looked", "QueryError", "Looked", "Looked")
    ]
    for wanted, result in zip(batch, together, strict=True):
        [alone] = look_up([wanted])
        if isinstance(result, Looked):
            assert isinstance(alone, Looked)
            assert (result.query, result.hits, result.documents) == (alone.query, alone.hits, alone.documents)


def test_a_forbidden_domain_is_as_unknown_as_one_that_does_not_exist(folder: Path) -> None:
    async def work() -> None:
        async with running(folder, FakeGenerator(["好[1]。"])) as engine:
            limited = Asked("能喝酒吗", allowed_domains=frozenset({"儿科"}))
            messages = []
            for domain in ("心血管内科", "内科"):
                with pytest.raises(DomainUnknownError) as caught:
                    await engine.search(replace(limited, domain=domain))
                messages.append(str(caught.value).replace(domain, "X", 1))
            assert messages[0] == messages[1]
            assert "心血管" not in messages[0]
            _, sources, _ = parts_of(await events_of(engine, limited))
            assert {source.domain for source in sources.sources} == {CHILD}
            general = replace(limited, allowed_domains=frozenset({"内科"}), domain="心血管内科")
            assert {s.domain for s in (await engine.search(general)).sources} == {HEART}
            assert engine.domains(frozenset({"儿科"})) == [(CHILD, 2)]

    run(work())


def test_labels_are_visible_to_keys_that_have_one_of_them() -> None:
    domains = {HEART: 2, CHILD: 3}
    assert visible(domains, None) == domains
    assert visible(domains, frozenset({"内科"})) == {HEART: 2}
    assert visible(domains, frozenset()) == {}
    assert len(DOCUMENTS) == 4


def test_two_filters_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="two filters"):
        RetrievalSettings(domain_filter=True, only=("甲",))
