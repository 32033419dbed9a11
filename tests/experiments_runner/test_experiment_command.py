"""`dmnrag experiment`: runs, says what it would do, and says what failed."""

from pathlib import Path

import pytest
from runner_world import Llms, loaded, run, values
from typer.testing import CliRunner

from dmnrag.cli import experiment as command
from dmnrag.cli.main import app
from dmnrag.errors import ConfigError, GenerationError
from dmnrag.experiments.matrix import planning
from dmnrag.experiments.matrix.spec_files import spec_text


@pytest.fixture
def spec(small_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(
        f"""
questions = 6
methods = ["no-Dmn", "Dmn"]
controls = ["copy-first"]
retrieval_table = "none"
[[corpus]]
name = "medical"
index = "{small_index}"
[[llm]]
name = "fake"
[generation]
max_tokens = 50
temperature = 0
""",
        encoding="utf-8",
    )
    return path


def call(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["experiment", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_results_go_to_a_folder_of_the_specs_name_and_a_second_run_says_so(spec: Path, tmp_path: Path) -> None:
    code, out, err = call(spec)
    assert code == 0
    assert out == "4 cells in results-mine. Tables and figures: dmnrag report results-mine\n"
    assert "cells: 4 done" in err
    assert (tmp_path / "results-mine" / "spec.json").is_file()
    code, _, err = call(spec)
    assert code == 0
    assert "nothing was left to do" in err


def test_a_dry_run_shows_cells_and_estimate_and_writes_nothing(spec: Path, tmp_path: Path) -> None:
    code, out, _ = call(spec, "--dry-run", "--out", tmp_path / "out")
    assert code == 0
    assert not (tmp_path / "out").exists()
    lines = out.splitlines()
    assert sum("0 of 6" in line for line in lines) == 4
    assert f"4 cells, 0 finished, in {tmp_path / 'out'}" in lines
    assert "LLM fake: at most 12 answers; tokens read: about" in lines[-1]
    assert "written: up to 600; time unknown before its first answers" in lines[-1]


def test_a_dry_run_knows_what_is_there(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    call(spec, "--out", out)
    code, shown, _ = call(spec, "--dry-run", "--out", out)
    assert (code, shown.count("finished  "), "LLM fake" in shown) == (0, 4, False)
    spec.write_text(spec.read_text(encoding="utf-8").replace('"Dmn"]', '"Dmn", "ques-rear"]'), encoding="utf-8")
    _, shown, _ = call(spec, "--dry-run", "--out", out)
    assert "5 cells, 4 finished" in shown
    assert "LLM fake: at most 6 answers" in shown
    assert "written: about" in shown  # by the answers that are there


def test_a_dry_run_names_what_has_to_be_built_and_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(spec_text("quick").replace('retrievers = "base"', 'retrievers = "trained"'), encoding="utf-8")
    _, shown, _ = call(path, "--dry-run")
    made_first = [line for line in shown.splitlines() if line.startswith("to make first: ")]
    assert made_first == [
        "to make first: index of corpus medical",
        "to make first: retriever plain of corpus medical",
        "to make first: retriever joint of corpus medical",
    ]
    assert "tokens read: unknown (the corpus is not built yet)" in shown


@pytest.mark.parametrize("options", [["--dry-run"], []])
@pytest.mark.parametrize("there", [False, True])
def test_an_index_that_is_named_and_is_not_there_is_refused(
    spec: Path, small_index: Path, tmp_path: Path, options: list[str], there: bool
) -> None:
    nowhere = tmp_path / "nowhere"
    if there:
        nowhere.mkdir()
    spec.write_text(spec.read_text(encoding="utf-8").replace(str(small_index), str(nowhere)), encoding="utf-8")
    with pytest.raises(ConfigError, match=f"corpus 'medical' names an index that is not there: {nowhere}"):
        call(spec, *options)


def test_a_dry_run_promises_no_retriever_for_an_index_that_cannot_have_one(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("q,a\n" + "".join(f"头疼{i}怎么办,休息{i}天\n" for i in range(10)), "utf-8")
    corpus = {"name": "m", "files": [str(rows)], "question": ["q"], "answer": ["a"], "encoder": "none"}
    plain = values(Path(), corpus=[corpus], methods=["no-Dmn"], controls=[], retrieval=[{"layer": "sparse"}])
    run(plain, tmp_path / "out")
    with pytest.raises(ConfigError, match="has no second layer, and these cells search with plain"):
        planning.plan_experiment(loaded(plain | {"retrieval": [{"layer": "hybrid"}]}), tmp_path / "out")


def test_a_folder_that_is_no_index_yet_is_still_to_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results-quick" / "corpora" / "medical" / "index").mkdir(parents=True)
    assert "to make first: index of corpus medical" in call("quick", "--dry-run")[1]


def test_domains_are_inferred_with_what_the_index_teaches(spec: Path, tmp_path: Path) -> None:
    spec.write_text(spec.read_text(encoding="utf-8") + "[noise]\ninferred = true\n", encoding="utf-8")
    out = tmp_path / "out"
    assert call(spec, "--out", out)[0] == 0
    code, _, err = call(spec, "--out", out)
    assert (code, "nothing was left to do" in err) == (0, True)
    assert "0 of 6" not in call(spec, "--dry-run", "--out", out)[1]


def test_the_estimate_of_tokens_is_near_the_truth(small_index: Path, tmp_path: Path) -> None:
    """The fake counts a character as a token, as the estimate does for Chinese."""

    spec = values(small_index, methods=["no-Dmn"], controls=[])
    plan = planning.plan_experiment(loaded(spec), tmp_path / "out")
    llms = Llms()
    run(spec, tmp_path / "out", llms)
    read = sum(map(llms.fake.prompt_tokens, llms.fake.prompts))
    [estimate] = plan.llms
    assert estimate.questions == len(llms.asked)
    assert estimate.prompt_tokens == pytest.approx(read, rel=0.3)


def test_the_time_of_the_built_in_llm_is_known_whatever_its_precision(small_index: Path, tmp_path: Path) -> None:

    for model in ("builtin", "builtin:int8"):
        spec = values(small_index, methods=["no-Dmn"], controls=[], llm=[{"name": "x", "model": model}])
        [estimate] = planning.plan_experiment(loaded(spec), tmp_path / "out").llms
        assert estimate.seconds is not None


def test_gaps_are_told_with_the_command_that_fills_them(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Llms(failures={number: GenerationError("NaN") for number in range(100)})
    monkeypatch.setattr(command, "run_experiment", lambda *a, **k: _run_with(broken, *a, **k))
    code, _, err = call(spec)
    assert code == 1
    assert "incomplete: medical-no-Dmn-hybrid-fake" in err
    assert f"2 cells have gaps; try again what failed: dmnrag experiment {spec}\n" in err


def _run_with(llms: Llms, *arguments: object, **options: object) -> object:
    from dmnrag.experiments.matrix.runner import run_experiment

    return run_experiment(*arguments, open_llm=llms, **options)  # type: ignore[arg-type]


def test_a_shipped_spec_is_printed_as_it_is() -> None:
    assert call("quick", "--print") == (0, spec_text("quick"), "")


def test_lines_say_how_far_it_is_and_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 0.0, 10.0, 40.0, 70.0, 200.0])
    monkeypatch.setattr(command.time, "monotonic", lambda: next(clock))
    show = command._Lines()
    show("answers", 0, 100)
    show("answers", 10, 100)  # 10 s: too early to say something again
    show("answers", 20, 100)  # 40 s
    show("answers", 50, 100)  # 70 s
    show("answers", 100, 100)
    assert capsys.readouterr().err.splitlines() == [
        "answers: 20 of 100, 3 min left",  # 40 s for 20, so 160 s for 80
        "answers: 50 of 100, 1 min left",
        "answers: 100 done",
    ]
