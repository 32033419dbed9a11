"""Calibration on the bundled medical corpus, and the file it leaves."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dmnrag import _io
from dmnrag.data import load_sample
from dmnrag.errors import ConfigError, DataError, IndexDamagedError, IndexVersionError
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.pipeline import Pipeline
from dmnrag.refusal import CalibrationSettings, EvidenceModel, Verdict, calibrate
from dmnrag.refusal.cases import Case, infer, make_cases, search_as_asked, without
from dmnrag.refusal.files import FILE_NAME
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.layers import LayerHits, RetrievalSettings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document, Hit, Layer, Query

SETTINGS = CalibrationSettings(layer="sparse")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("refusal") / "index"
    documents, examples = load_sample("medical")
    settings = IndexSettings(dense=DenseSettings(encoder="fake"))
    build_index(folder, documents, settings, examples=examples, encoder=HashEncoder())
    with Index.open(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def pipeline(index: Index) -> Pipeline:
    return Pipeline(index, encoders={"base": HashEncoder()})


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Without domains and held-out questions."""
    folder = tmp_path_factory.mktemp("refusal") / "plain"
    documents = [replace(document, domain=()) for document in load_sample("medical")[0]]
    build_index(folder, documents, IndexSettings(dense=DenseSettings(encoder="fake")), encoder=HashEncoder())
    with Index.open(folder) as opened:
        yield Pipeline(opened, encoders={"base": HashEncoder()})


@pytest.fixture(scope="module")
def model(pipeline: Pipeline) -> EvidenceModel:
    return calibrate(pipeline, SETTINGS)


def judged(model: EvidenceModel, pipeline: Pipeline, texts: list[str]) -> list[Verdict]:
    inferred = infer(pipeline.index, texts)
    queries = [
        Query(str(i), text, f.domain if f else ()) for i, (text, f) in enumerate(zip(texts, inferred, strict=True))
    ]
    found = search_as_asked(pipeline, queries, RetrievalSettings(k=model.stored.k, layer=model.stored.layer))
    return [
        model.judge(pipeline.index, query, layers, f) for query, layers, f in zip(queries, found, inferred, strict=True)
    ]


def test_each_question_gives_a_case_with_and_one_without_its_documents(pipeline: Pipeline) -> None:
    made = make_cases(pipeline, "sparse", 3, 40)
    cases = [case for case in made if not case.foreign]
    assert made[: len(cases)] == cases
    questions = [case.found.question for case in cases]
    assert questions[::2] == questions[1::2]
    assert not any(case.enough for case in cases[1::2])
    assert any(case.enough for case in cases[::2])
    held_out = {example.query.text for example in pipeline.index.examples}
    assert held_out < set(questions)
    legal = {document.question for document in load_sample("legal")[0]}
    foreign = [case.found.question for case in made if case.foreign]
    assert legal & set(foreign)
    assert not {document.question for document in load_sample("medical")[0]} & set(foreign)
    assert len(foreign) <= len(cases) / 3


def own_document(case: Case) -> Document | None:
    """The document found whose answers are those of the one that the question belongs to."""
    by_question = {d.question: d for d in load_sample("medical")[0]}
    own = by_question.get(case.found.question)
    return next((d for d in case.found.documents if own is not None and d.doc_id == own.doc_id), None)


@pytest.mark.parametrize("layer", ["sparse", "dense", "cascade", "hybrid"])
def test_a_document_is_found_by_its_answers_alone(plain: Pipeline, layer: Layer) -> None:
    cases = make_cases(plain, layer, 3, 60)
    asked_by_own_question = [case for case in cases if own_document(case)]
    assert asked_by_own_question
    assert all(own_document(case).question == "" for case in asked_by_own_question)  # type: ignore[union-attr]
    own_found = [case.enough for case in cases[:120:2]]
    assert 0 < sum(own_found) < len(own_found)  # with its question each would find itself


def test_removing_moves_the_others_up() -> None:
    hits = [Hit("a", 3.0, 1), Hit("b", 2.0, 2), Hit("c", 1.0, 3)]
    rest = without(LayerHits(hits, hits, hits[1:]), {"a"})
    assert rest.hits == rest.sparse == [Hit("b", 2.0, 1), Hit("c", 1.0, 2)]
    assert rest.dense == [Hit("b", 2.0, 1), Hit("c", 1.0, 2)]


def test_calibration_beats_chance_and_is_repeatable(model: EvidenceModel, pipeline: Pipeline) -> None:
    assert model.stored.figures.auc is not None
    assert model.stored.figures.auc.low > 0.55
    again = calibrate(pipeline, SETTINGS)
    assert again.stored.model_copy(update={"created": model.stored.created}) == model.stored


def test_questions_of_another_field_are_refused_more_than_those_with_evidence(
    model: EvidenceModel, pipeline: Pipeline
) -> None:
    legal = [document.question for document in load_sample("legal")[0]]
    examples = pipeline.index.examples
    refused = [not verdict.enough for verdict in judged(model, pipeline, legal)]
    own = judged(model, pipeline, [example.query.text for example in examples])
    answered = [verdict.enough for verdict in own]
    assert sum(refused) / len(refused) > 0.75
    assert sum(answered) / len(answered) > 2 * (1 - sum(refused) / len(refused))


def test_meaningless_text_is_refused(model: EvidenceModel, pipeline: Pipeline) -> None:
    assert not any(verdict.enough for verdict in judged(model, pipeline, ["qwxz vbnk", "123456 7890", "龘靐齉爩"]))


def test_lower_target_risk_answers_less(plain: Pipeline) -> None:
    strict = calibrate(plain, replace(SETTINGS, target_risk=0.3)).stored.figures
    loose = calibrate(plain, replace(SETTINGS, target_risk=0.6)).stored.figures
    assert strict.coverage.value < loose.coverage.value


def test_saved_model_judges_as_before(model: EvidenceModel, pipeline: Pipeline, tmp_path: Path) -> None:
    model.save(tmp_path)
    loaded = EvidenceModel.load(tmp_path)
    assert loaded is not None
    assert loaded.stored == model.stored
    texts = [example.query.text for example in pipeline.index.examples]
    assert judged(loaded, pipeline, texts) == judged(model, pipeline, texts)


def test_what_is_covered(model: EvidenceModel, index: Index) -> None:
    assert model.covers("sparse", 3)
    assert model.covers("sparse", 10)
    assert not model.covers("sparse", 2)
    assert not model.covers("hybrid", 3)
    assert not model.is_stale(index)


def test_more_hits_are_judged_by_the_first(model: EvidenceModel, pipeline: Pipeline) -> None:
    query = Query("1", pipeline.index.examples[0].query.text)
    few, many = (pipeline.search_layers([query], RetrievalSettings(k=k, layer="sparse"))[0] for k in (3, 20))
    assert model.judge(pipeline.index, query, few) == model.judge(pipeline.index, query, many)


def test_nothing_found_is_never_enough(model: EvidenceModel, index: Index) -> None:
    assert not model.judge(index, Query("1", "高血压"), LayerHits([], [], [])).enough


def test_never_calibrated_is_none(tmp_path: Path) -> None:
    assert EvidenceModel.load(tmp_path) is None


def changed(folder: Path, **values: Any) -> None:
    path = folder / FILE_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"format_version": 99}, IndexVersionError, "format 99, this release reads up to 1"),
        ({"features": ["a"]}, IndexVersionError, "make it again: dmnrag calibrate"),
        ({"weights": [1.0]}, IndexDamagedError, "its weights do not fit its features"),
        ({"threshold": "high"}, IndexDamagedError, "threshold"),
        ({"k": 0}, IndexDamagedError, "k Input should be greater than or equal to 1"),
        ({"foreign": 1}, IndexDamagedError, "foreign Extra inputs are not permitted"),
    ],
)
def test_unusable_file_is_a_clear_error(
    model: EvidenceModel, tmp_path: Path, values: dict[str, Any], error: type[Exception], words: str
) -> None:
    model.save(tmp_path)
    changed(tmp_path, **values)
    with pytest.raises(error, match=re.escape(words)):
        EvidenceModel.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"{}", b'{"format_version": 1}'])
def test_damaged_file_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(IndexDamagedError, match=r"refusal\.json is not a usable evidence model .* dmnrag calibrate"):
        EvidenceModel.load(tmp_path)


def test_killed_write_leaves_the_former_model(
    model: EvidenceModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save(tmp_path)
    newer = EvidenceModel(model.stored.model_copy(update={"threshold": 0.99}))
    for step in ("write", "fsync", "rename"):

        def die(reached: str, _path: Path, step: str = step) -> None:
            if reached == step:
                raise KeyboardInterrupt

        monkeypatch.setattr(_io, "FAULT_HOOK", die)
        with pytest.raises(KeyboardInterrupt):
            newer.save(tmp_path)
        monkeypatch.setattr(_io, "FAULT_HOOK", None)
        kept = EvidenceModel.load(tmp_path)
        assert kept is not None
        assert kept.stored == model.stored


def test_index_too_small_says_so(tmp_path: Path) -> None:
    documents, _ = load_sample("medical")
    build_index(tmp_path / "i", documents[:12], IndexSettings())
    with Index.open(tmp_path / "i") as small, pytest.raises(DataError, match="too small to calibrate: of 12 questions"):
        calibrate(Pipeline(small))


def test_index_without_questions_says_so(tmp_path: Path) -> None:
    documents, _ = load_sample("medical")
    build_index(tmp_path / "i", [replace(d, question="") for d in documents[:60]], IndexSettings())
    with Index.open(tmp_path / "i") as silent, pytest.raises(DataError, match="too small to calibrate: of 0 questions"):
        calibrate(Pipeline(silent))


@pytest.mark.parametrize("values", [{"k": 0}, {"target_risk": 1.5}, {"layer": "sparce"}, {"limit": 0}])
def test_unusable_settings_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"calibration setting {next(iter(values))}"):
        CalibrationSettings(**values)
