"""Specs are strict, and every shipped one is whole."""

from pathlib import Path
from typing import Any

import pytest
from runner_world import loaded, values

from dmnrag.errors import ConfigError
from dmnrag.experiments.matrix import llms
from dmnrag.experiments.matrix.cells import expand
from dmnrag.experiments.matrix.spec_files import load_spec, spec_from_dict, spec_names, spec_text, spec_to_dict
from dmnrag.prompts import load_template

SPEC = values(Path("index"))


def refused(**changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        spec_from_dict(SPEC | changes, "spec mine.toml")
    assert str(caught.value).startswith("spec mine.toml: ")
    return str(caught.value).removeprefix("spec mine.toml: ")


def test_unknown_keys_are_refused_at_every_depth_and_all_at_once() -> None:
    assert refused(
        mehtods=["Dmn"],
        corpus=[{"name": "m", "index": "i", "encodr": "x"}],
        sweep={"temprature": [0.2]},
        training={"retriever": {"epoch": 1}},
    ) == (
        "unknown key 'corpus[0].encodr' (did you mean 'encoder'?); unknown key 'mehtods' (did you mean 'methods'?); "
        "unknown key 'sweep.temprature' (did you mean 'temperature'?); "
        "unknown key 'training.retriever.epoch' (did you mean 'epochs'?)"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["Dmn-ques-fornt"]}, "methods has no 'Dmn-ques-fornt'.*Did you mean 'Dmn-ques-front'"),
        ({"ablations": ["ES + Dmn"]}, "ablations has no 'ES . Dmn'.*Did you mean 'ES.Dmn'"),
        ({"controls": ["golden"]}, "controls.*'golden'"),
        ({"metrics": ["ROUGE-1"]}, "metrics has no 'ROUGE-1'.*Did you mean 'ROUGE-1 .word.'"),
        ({"methods": [], "ablations": []}, "nothing to run"),
        ({"methods": ["Dmn", "Dmn"]}, "methods names Dmn more than once"),
        ({"questions": -1}, "questions is -1: allowed are whole numbers from 1"),
        ({"questions": "many"}, "questions: .*found 'many'"),
        ({"questions": True}, "questions: .*found True"),
        ({"k": 0}, "k is 0"),
        ({"llm": {"name": "fake"}}, r"llm is one table, and a list of them is meant: write \[\[llm\]\]"),
        ({"corpus": []}, r"there is no \[\[corpus\]\]"),
        ({"corpus": [{"name": "m"}]}, "exactly one of sample, index and files; it has none"),
        ({"corpus": [{"name": "m", "index": "i", "sample": "medical"}]}, "it has sample and index"),
        ({"llm": [{"name": "fakee"}]}, "no LLM 'fakee'.*Did you mean 'fake'"),
        ({"llm": [{"name": "x", "model": "biultin:int8"}]}, "no LLM 'biultin'.*Did you mean 'builtin'"),
        ({"corpus": [{"name": "m", "sample": "medicine"}]}, "sample has no 'medicine'.*Did you mean 'medical'"),
        ({"corpus": [{"name": "m", "files": ["a.csv"]}]}, "name the columns"),
        ({"corpus": [{"name": "a/b", "index": "i"}]}, "'a/b' cannot be used in file names"),
        ({"corpus": [{"name": "M", "index": "i"}, {"name": "m", "index": "j"}]}, "corpus names m more than once"),
        ({"corpus": [{"index": "i"}]}, "missing key 'corpus.0.name'"),
        ({"llm": [{"name": "openai:x@http://h/v1"}]}, "give name and model"),
        ({"llm": [{"name": "a", "batch_size": 0}]}, "batch_size is 0"),
        ({"llm": [{"name": "a", "model": "m:int8", "dtype": "float32"}]}, "names the precision int8, and float32"),
        ({"llm": [{"name": "a", "model": "fake:int8"}]}, "is for models that are loaded here"),
        ({"generation": {"temperature": -1}}, "temperature is -1"),
        ({"generation": {"seed": 3}}, "the spec's seed is used"),
        ({"sweep": {"top_k": [5]}}, "sweep.top_k changes nothing with generation.temperature = 0"),
        ({"generations": ["lora"]}, "LLM 'fake' .fake. has none here"),
        ({"generations": ["lora"], "retrieval": [{"reranker": "fake"}]}, "cannot be combined with a reranker"),
        ({"noise": {"wrong": [0]}}, "shares above 0"),
        ({"retrieval": []}, "retrieval is empty"),
        ({"retrieval": [{"layer": "sparce"}]}, "retrieval.0.layer: .*'sparse'"),
        ({"training": {"retriever": {"epochs": 0}}}, "training setting epochs is 0"),
        ({"training": {"lora": {"rank": 0}}}, "fine-tuning setting rank is 0"),
        ({"evidence": [{"corpus": "x", "row": "Dmn", "file": "f"}]}, "evidence.corpus has no 'x'"),
        ({"evidence": [{"corpus": "medical", "row": "ES", "file": "f"}]}, "evidence.row has no 'ES'"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"spec mine.toml: .*{message}"):
        spec_from_dict(SPEC | changes, "spec mine.toml")


def test_a_precision_behind_a_model_is_no_part_of_its_name(tmp_path: Path) -> None:
    """A folder beside the spec and the built-in LLM are found, and told from those in another precision."""

    def opened(model: str, dtype: str | None = None) -> tuple[str, str]:
        found = loaded(SPEC | {"llm": [{"name": "x", "model": model, **({"dtype": dtype} if dtype else {})}]}, tmp_path)
        [llm] = found.spec.llm
        return llms.model_name(found, llm), llms.llm_identity(found, llm)

    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}", encoding="utf-8")
    assert opened("m:int8")[0] == str(tmp_path / "m")
    assert opened("m:int8") == opened("m", "int8")
    assert opened("m:int8")[1] == f"{opened('m')[1]} int8"
    assert opened("builtin:int8") == ("builtin", f"builtin {llms.BUILTIN_SHA256} int8")
    server = "openai:Qwen@http://localhost:8000/v1"
    assert opened(server) == (server, server)


def test_adapters_are_trained_on_the_model_without_its_precision(tmp_path: Path) -> None:
    lora = {"generations": ["lora"], "llm": [{"name": "x", "model": "builtin:int8"}]}
    found = loaded(SPEC | lora, tmp_path)
    cell = next(cell for cell in expand(found.spec) if cell.generation == "lora")
    assert llms._plan(found, cell).llm == "builtin"


def test_zero_questions_are_all_of_them() -> None:
    assert spec_from_dict(SPEC | {"questions": 0}, "").questions is None


def test_the_resolved_spec_names_every_default() -> None:
    resolved = spec_to_dict(loaded(SPEC).spec)
    assert resolved["k"] == 3
    assert resolved["training"]["lora"]["rank"] == 16
    assert resolved["retrieval"] == [
        {
            "layer": "hybrid", "domain_filter": False, "domain_weight": 1.0, "domain_in_document": True,
            "candidates": 100, "reranker": None,
        }
    ]  # fmt: skip


def test_all_six_specs_of_the_paper_and_more_are_shipped() -> None:
    assert spec_names() == (
        "bundled", "domain-noise", "paper-figures-2-5", "paper-tables-3-4", "paper-tables-5-6", "quick",
    )  # fmt: skip


@pytest.mark.parametrize("name", spec_names())
def test_every_shipped_spec_is_valid(name: str) -> None:
    spec = load_spec(name).spec
    cells = expand(spec)
    assert len({cell.id.casefold() for cell in cells}) == len(cells) > 0
    for llm in spec.llm:
        load_template(llm.template or spec.template)


def test_shipped_specs_hold_the_cells_of_their_tables() -> None:
    def rows(name: str, table: str) -> list[tuple[object, ...]]:
        cells = expand(load_spec(name).spec)
        return [(c.corpus, c.llm, c.generation, c.row) for c in cells if table in c.table and c.control is None]

    # Six methods x two corpora x two LLMs x zero-shot and LoRA; sampled decoding is repeated.
    assert len(set(rows("paper-tables-3-4", "methods"))) == 6 * 2 * 2 * 2
    # Nine ablations x two LLMs, zero-shot.
    assert len({(llm, row) for _, llm, _, row in rows("paper-tables-5-6", "ablations")}) == 9 * 2
    figures = expand(load_spec("paper-figures-2-5").spec)
    for table, value in (("temperature", "temperature"), ("top_k", "top_k")):
        grid = {getattr(c.parameters, value) for c in figures if table in c.table}
        points = {(c.llm, c.row, getattr(c.parameters, value)) for c in figures if table in c.table}
        assert len(points) == 2 * 6 * len(grid)


def test_a_spec_of_ones_own_is_read_relative_to_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(spec_text("quick"), encoding="utf-8")
    found = load_spec(str(path))
    assert (found.name, found.path("index")) == ("mine", tmp_path / "index")
    assert found.spec == load_spec("quick").spec


def test_a_spec_that_is_not_there_offers_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no spec 'quik'.*Did you mean 'quick'"):
        load_spec("quik")


def test_a_file_that_is_no_toml_says_where(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("questions = \n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"is not TOML: .*line 1"):
        load_spec(str(path))
    path.write_bytes("k = 3 # 中文".encode("gb18030"))
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_spec(str(path))
