"""The whole model: train, save, load, infer."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmnrag.data import ColumnMapping, read_documents, repost_groups, split_documents
from dmnrag.domain import DomainModel, DomainSettings
from dmnrag.errors import ConfigError, DataError, IndexDamagedError, IndexVersionError
from dmnrag.types import Document, Domain

SYMPTOMS = {
    ("内科", "呼吸内科"): ["咳嗽", "气喘", "痰多", "胸闷", "哮喘", "肺炎"],
    ("内科", "心血管内科"): ["心慌", "心悸", "高血压", "心绞痛", "早搏", "冠心病"],
    ("皮肤科",): ["湿疹", "痤疮", "皮炎", "荨麻疹", "脱发", "癣"],
    ("骨科",): ["骨折", "扭伤", "关节痛", "腰椎", "韧带", "颈椎"],
    ("眼科",): ["近视", "白内障", "流泪", "散光", "斜视", "青光眼"],
    ("儿科",): ["黄疸", "厌食", "多动症", "百日咳", "手足口病", "尿床"],
}
TOPS = (("儿科",), ("内科",), ("皮肤科",), ("眼科",), ("骨科",))
ASKED = ["最近{}怎么办", "{}三天了需要吃药吗", "医生您好我{}很严重", "{}要做什么检查"]


def corpus(labels: dict[Domain, list[str]] | None = None) -> list[Document]:
    rows = []
    for domain, words in (labels or SYMPTOMS).items():
        for word in words:
            for asked in ASKED:
                other = words[(words.index(word) + 1) % len(words)]
                question = asked.format(f"{word}和{other}")
                rows.append(Document(f"d{len(rows)}", question, (f"{word}建议到医院就诊", f"注意{other}"), domain))
    return rows


@pytest.fixture(scope="module")
def model() -> DomainModel:
    return DomainModel.train(corpus())


def test_domains_of_questions_are_found(model: DomainModel) -> None:
    for domain, words in SYMPTOMS.items():
        [found] = model.infer([f"我{words[0]}和{words[1]}还有{words[2]}"])
        assert found.domain == domain
        assert not found.abstained
        assert found.probability > 0.5
        assert found.alternatives[0][0] == domain[0]


def test_labels_are_paths_general_ones_first(model: DomainModel) -> None:
    assert model.labels == (*TOPS, ("内科", "呼吸内科"), ("内科", "心血管内科"))
    assert model.n_documents == len(corpus()) == 144


def test_a_question_between_two_specific_labels_gets_the_general_one(model: DomainModel) -> None:
    [found] = model.infer(["咳嗽气喘和心慌心悸怎么办"], threshold=0.7)
    assert found.domain == ("内科",)
    assert found.probability > 0.9


def test_probabilities_of_specific_labels_lie_below_that_of_the_general_one(model: DomainModel) -> None:
    of = dict(zip(model.labels, model.probabilities(["咳嗽气喘", "心慌", "湿疹", ""]).T, strict=True))
    for path in model.labels[len(TOPS) :]:
        assert (of[path] < of[path[:1]]).all()


@pytest.mark.parametrize("question", ["", "？？", "how do I renew my passport", "机票改签退款手续费多少"])
def test_a_question_in_unknown_words_gets_no_domain(model: DomainModel, question: str) -> None:
    [found] = model.infer([question])
    assert found.abstained
    assert found.domain == ()
    assert found.probability == found.alternatives[0][1] < 0.5


def test_a_label_without_rivals_needs_words_that_speak_for_it(model: DomainModel) -> None:
    # 心 stands in the words of one department; nothing else of the question is known.
    [found] = model.infer(["心率 abcd efg hij klm nop qrs tuv"])
    assert found.probability > 0.5
    assert found.abstained


def test_threshold_moves_between_always_and_never(model: DomainModel) -> None:
    question = ["咳嗽和脱发"]
    assert model.infer(question, threshold=0)[0].domain
    assert model.infer(question, threshold=1)[0].abstained
    strict = DomainModel.train(corpus(), DomainSettings(threshold=1))
    assert strict.infer(question)[0].abstained
    with pytest.raises(ConfigError, match=r"1\.5"):
        model.infer(question, threshold=1.5)


def test_labels_of_a_set_are_given_together() -> None:
    sets: dict[Domain, list[str]] = {
        ("合同",): ["违约金", "签合同", "定金"],
        ("婚姻",): ["离婚", "抚养费", "彩礼"],
        ("合同", "婚姻"): ["婚前协议", "夫妻协议", "离婚协议违约金"],
    }
    model = DomainModel.train(corpus(sets), DomainSettings(kind="set"))
    assert model.labels == (("合同",), ("婚姻",))
    [both, one] = model.infer(["婚前协议和夫妻协议要做什么检查", "离婚抚养费和彩礼"])
    assert both.domain == ("合同", "婚姻")
    assert one.domain == ("婚姻",)


def test_documents_without_a_domain_change_nothing(model: DomainModel) -> None:
    bare = [Document(f"x{i}", "咳嗽", ("骨折",)) for i in range(30)]
    again = DomainModel.train([*bare, *corpus()])
    assert again.infer(["咳嗽怎么办"]) == model.infer(["咳嗽怎么办"])


def test_a_label_on_too_few_documents_is_never_inferred() -> None:
    rare = [Document(f"r{i}", f"狂犬疫苗{i}", ("打疫苗",), ("感染科",)) for i in range(2)]
    assert ("感染科",) not in DomainModel.train(corpus() + rare).labels
    assert ("感染科",) in DomainModel.train(corpus() + rare, DomainSettings(min_documents=2)).labels


def test_one_label_alone_is_learnt() -> None:
    model = DomainModel.train(corpus({("皮肤科",): SYMPTOMS[("皮肤科",)]}))
    assert model.infer(["湿疹和痤疮"])[0].domain == ("皮肤科",)


@pytest.mark.parametrize("documents", [[], [Document("1", "q", ("a",))], corpus()[:2]])
def test_nothing_to_learn_from_is_an_error(documents: list[Document]) -> None:
    with pytest.raises(DataError, match="nothing to infer domains from"):
        DomainModel.train(documents)


@pytest.mark.parametrize(
    "values", [{"kind": "tree"}, {"threshold": -0.1}, {"threshold": float("nan")}, {"max_documents": 0}]
)
def test_impossible_settings_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=str(next(iter(values.values())))):
        DomainSettings(**values)


def test_thinned_documents_still_count(model: DomainModel) -> None:
    thinned = DomainModel.train(corpus(), DomainSettings(max_documents=50))
    assert thinned.n_documents == 144
    assert thinned.labels == model.labels


def test_held_out_figures_are_shares_of_all(model: DomainModel) -> None:
    figures = model.held_out
    assert figures.n == 144
    assert 0.9 <= figures.accuracy <= 1
    assert 0 < figures.coverage <= 1
    assert figures.covered_accuracy >= figures.accuracy


QUESTIONS = ["咳嗽气喘怎么办", "", "湿疹", "咳嗽和骨折", "高血压能喝酒吗？"]


def test_loaded_model_infers_exactly_as_the_trained_one(model: DomainModel, tmp_path: Path) -> None:
    model.save(tmp_path / "domain")
    loaded = DomainModel.load(tmp_path / "domain")
    assert loaded.infer(QUESTIONS) == model.infer(QUESTIONS)
    assert (loaded.settings, loaded.labels, loaded.held_out) == (model.settings, model.labels, model.held_out)
    assert loaded.n_documents == model.n_documents
    np.testing.assert_array_equal(loaded.probabilities(QUESTIONS), model.probabilities(QUESTIONS))


def test_a_batch_is_the_same_as_one_by_one(model: DomainModel) -> None:
    assert model.infer(QUESTIONS) == [model.infer([question])[0] for question in QUESTIONS]
    assert model.infer([]) == []


def test_training_again_writes_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from test_domain_model import corpus; from dmnrag.domain import "
        "DomainModel; DomainModel.train(corpus()).save(Path(sys.argv[1]))"
    )
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent)}
        subprocess.run([sys.executable, "-c", code, tmp_path / seed], check=True, env=environment)
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert names == ["idf.npy", "model.json", "terms.json", "weights.npy"]
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_inference_loads_no_heavy_library(model: DomainModel, tmp_path: Path) -> None:
    model.save(tmp_path)
    code = (
        "import sys; from pathlib import Path; from dmnrag.domain import DomainModel; "
        "DomainModel.load(Path(sys.argv[1])).infer(['咳嗽']); "
        "print([m for m in ('sklearn', 'torch', 'joblib', 'scipy.sparse', 'scipy.optimize') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def spoil_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


@pytest.mark.parametrize("name", ["idf.npy", "model.json", "terms.json", "weights.npy"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "foreign"])
def test_a_damaged_file_is_named(model: DomainModel, tmp_path: Path, name: str, damage: str) -> None:
    model.save(tmp_path)
    path = tmp_path / name
    if damage == "missing":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes(
            {"empty": b"", "cut": content[: len(content) // 2], "foreign": b"\x80\x04cos\nsystem\n."}[damage]
        )
    with pytest.raises(IndexDamagedError, match="restore it or build the index again"):
        DomainModel.load(tmp_path)


@pytest.mark.parametrize(
    "values",
    [
        {"labels": [["内科"]]},
        {"labels": []},
        {"labels": [[top] for (top,) in reversed(TOPS)] + [["内科", "呼吸内科"], ["内科", "心血管内科"]]},
        {"labels": [[top] for (top,) in TOPS] + [["内科", "呼吸内科"], ["外科", "普外科"]]},
        {"labels": [[], *([top] for (top,) in TOPS), ["内科", "呼吸内科"]]},
        {"intercepts": [0.0]},
        {"intercepts": [float("nan")] * 7},
        {"calibration": []},
        {"calibration": [[[1, 2, 3]]] * 2},
        {"settings": {"kind": "tree"}},
        {"unknown": 1},
        {"format_version": None},
    ],
)
def test_parts_that_do_not_fit_together_are_refused(model: DomainModel, tmp_path: Path, values: dict[str, Any]) -> None:
    model.save(tmp_path)
    spoil_json(tmp_path / "model.json", **values)
    with pytest.raises(IndexDamagedError):
        DomainModel.load(tmp_path)


@pytest.mark.parametrize("content", ["[]", "5", "null", '["a", "a"]', "[" * 100_000])
def test_json_of_another_shape_is_refused(model: DomainModel, tmp_path: Path, content: str) -> None:
    for name in ("model.json", "terms.json"):
        model.save(tmp_path)
        (tmp_path / name).write_text(content)
        with pytest.raises(IndexDamagedError):
            DomainModel.load(tmp_path)


def test_a_newer_format_is_not_read(model: DomainModel, tmp_path: Path) -> None:
    model.save(tmp_path)
    spoil_json(tmp_path / "model.json", format_version=2, something="new")
    with pytest.raises(IndexVersionError, match="newer release"):
        DomainModel.load(tmp_path)


@pytest.mark.slow
def test_departments_of_real_questions(shared: Path) -> None:
    """6,116 medical pairs, split seed 0: .987 [.980, .993] when it was measured, small departments included."""
    mapping = ColumnMapping(("title", "ask"), ("answer",), ("department",))
    documents, _ = read_documents([shared / "data" / "medical_im_gb18030.csv"], mapping)
    groups = repost_groups([d.question for d in documents], ["\n".join(d.answers) for d in documents])
    split = split_documents(documents, 0.2, 0, groups=groups)
    model = DomainModel.train(split.train)
    inferences = model.infer([example.query.text for example in split.test], threshold=0)
    right = [e.query.domain == i.domain for e, i in zip(split.test, inferences, strict=True)]
    assert len(right) == 1223
    assert np.mean(right) >= 0.98
    assert abs(model.held_out.accuracy - np.mean(right)) < 0.01
    small = [r for e, r in zip(split.test, right, strict=True) if e.query.domain[0] in ("肾内科", "感染科", "普通内科")]
    assert np.mean(small) >= 0.6
