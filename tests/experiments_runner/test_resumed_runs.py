"""Stopped at any point, the same experiment goes on and ends with the tables of an uninterrupted one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runner_world import Llms, read_json, run, tables, values

from dmnrag import _io
from dmnrag.errors import DataError
from dmnrag.experiments.matrix.cache import AnswerCache, CachedAnswer
from dmnrag.types import Usage


class Killed(BaseException):
    """Stands for the end of the process."""


class KillAt:
    """Ends the program at the n-th step that changes the disk, and leaves half of what was to be appended."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, _step: str, path: Path) -> None:
        self.left -= 1
        if self.left < 0:
            if path.name == "answers.jsonl":
                with path.open("ab") as file:
                    file.write(b'{"answers": [{"key": "0123')
            raise Killed


def file_corpus(folder: Path) -> dict[str, object]:
    """A corpus whose index belongs to the results folder."""
    rows = [f"{i},{'头疼胃疼'[i % 2 * 2 :][:2]}第{i}天怎么办,多休息{i}天,{'内外'[i % 2]}科" for i in range(30)]
    (folder / "rows.csv").write_text("\n".join(["id,q,a,d", *rows]), encoding="utf-8")
    return {
        "name": "medical", "files": [str(folder / "rows.csv")], "question": ["q"], "answer": ["a"], "domain": ["d"],
        "doc_id": "id", "test_size": 0.3, "encoder": "fake",
    }  # fmt: skip


_STOPS = 9
"""How often it is stopped, from the first step to the last."""


def spec_of(index: Path) -> dict[str, object]:
    return values(
        index,
        methods=["no-Dmn", "Dmn-ques-front", "ques-rear"],
        controls=["closed-book", "copy-first"],
        noise={"wrong": [0.5]},
        retrieval_table="index",
    )


@pytest.mark.parametrize("built_here", [False, True])
def test_stopped_at_every_step_it_ends_with_the_same_tables(
    small_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built_here: bool
) -> None:
    spec = spec_of(small_index)
    if built_here:
        spec |= {"corpus": [file_corpus(tmp_path)], "methods": ["no-Dmn", "Dmn"], "retrievers": "base"}
    run(spec, tmp_path / "whole")
    wanted = tables(tmp_path / "whole")
    steps = 0
    counted = tmp_path / "counted"

    def count(_step: str, _path: Path) -> None:
        nonlocal steps
        steps += 1

    monkeypatch.setattr(_io, "FAULT_HOOK", count)
    run(spec, counted)
    assert steps > 100
    for number in range(0, steps, steps // _STOPS):
        out = tmp_path / f"killed-{number}"
        monkeypatch.setattr(_io, "FAULT_HOOK", KillAt(number))
        with pytest.raises(Killed):
            run(spec, out)
        monkeypatch.setattr(_io, "FAULT_HOOK", None)
        assert run(spec, out).incomplete == {}
        assert tables(out) == wanted, number


def test_answers_that_came_are_not_asked_for_again(
    small_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = values(small_index, methods=["no-Dmn", "Dmn-ques-front"], controls=[], questions=10)
    whole = Llms()
    run(spec, tmp_path / "whole", whole)
    out, first, seen = tmp_path / "out", Llms(), 0

    def stop(_step: str, path: Path) -> None:
        nonlocal seen
        seen += path.name == "answers.jsonl"
        if seen == 4:  # three batches of four are safe, the fourth was asked and is lost
            raise Killed

    monkeypatch.setattr(_io, "FAULT_HOOK", stop)
    with pytest.raises(Killed):
        run(spec, out, first)
    monkeypatch.setattr(_io, "FAULT_HOOK", None)
    second = Llms()
    run(spec, out, second)
    assert len(first.asked) == 16
    assert first.asked[:12] + second.asked == whole.asked
    assert tables(out) == tables(tmp_path / "whole")


def test_batches_after_a_kill_are_those_of_an_uninterrupted_run(
    small_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model whose answers hang on their batch gives the same answers after a kill."""
    spec = values(small_index, methods=["no-Dmn", "Dmn-ques-front"], controls=[], questions=10)

    def sensitive() -> Llms:
        llms = Llms()
        generate = llms.fake.generate

        def together(prompts, settings):  # type: ignore[no-untyped-def]
            mark = sum(len(prompt.user) * (i + 1) for i, prompt in enumerate(prompts))
            return [type(g)(f"{g.text} {mark}", g.finish_reason, g.usage) for g in generate(prompts, settings)]

        llms.fake.generate = together  # type: ignore[method-assign]
        return llms

    run(spec, tmp_path / "whole", sensitive())
    for number in (1, 2, 3, 4):
        out, left = tmp_path / f"killed-{number}", number

        def stop(_step: str, path: Path) -> None:
            nonlocal left
            left -= path.name == "answers.jsonl"
            if left < 0:
                raise Killed

        monkeypatch.setattr(_io, "FAULT_HOOK", stop)
        with pytest.raises(Killed):
            run(spec, out, sensitive())
        monkeypatch.setattr(_io, "FAULT_HOOK", None)
        run(spec, out, sensitive())
        assert tables(out) == tables(tmp_path / "whole")


def test_a_line_that_was_cut_off_is_dropped_and_a_spoilt_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    cache = AnswerCache(path)
    answer = CachedAnswer("k", "答", "stop", Usage(3, 1), 2.5, "cell")
    cache.add([answer])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    again = AnswerCache(path)
    assert again.get("k") == answer
    assert path.read_bytes() == whole
    again.add([CachedAnswer("l", "二", "length", Usage(3, 1), 2.5, "cell")])
    assert len(AnswerCache(path)) == 2
    path.write_bytes(b'{"answers": 3}\n' + whole)
    with pytest.raises(DataError, match="line 1: no answers of this release"):
        AnswerCache(path)


def test_a_run_that_goes_on_is_written_down(small_index: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    spec = values(small_index, methods=["no-Dmn"], controls=[])
    run(spec, out)
    run(spec, out)
    run(spec | {"methods": ["no-Dmn", "Dmn"]}, out)
    assert len(read_json(out / "env.json")["runs"]) == 2  # the second had nothing to do


SLOW_SPEC = """
questions = 10
retrieval_table = "index"
[[corpus]]
name = "medical"
index = {index}
[[llm]]
name = "slow"
model = "fake"
batch_size = 2
[generation]
max_tokens = 200
temperature = 0
"""
SLOW_RUN = """
import sys
from pathlib import Path
from dmnrag.experiments.matrix.runner import run_experiment
from dmnrag.experiments.matrix.spec_files import load_spec
from dmnrag.llm import FakeGenerator
run_experiment(load_spec(sys.argv[1]), Path(sys.argv[2]), open_llm=lambda *_: FakeGenerator(delay_s=0.05))
"""


@pytest.mark.slow
def test_killed_by_the_system_again_and_again_it_ends_with_the_same_tables(small_index: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SLOW_SPEC.replace("{index}", repr(str(small_index))), encoding="utf-8")

    def start(out: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", SLOW_RUN, str(spec), str(out)])

    assert start(tmp_path / "whole").wait() == 0
    out, kills, tries = tmp_path / "out", 0, 0
    answers = out / "answers.jsonl"
    while True:
        tries += 1
        assert tries < 40
        before = answers.stat().st_size if answers.is_file() else 0
        process = start(out)
        # Killed as soon as it has got on, wherever it then is; a little later each time.
        while process.poll() is None and (answers.stat().st_size if answers.is_file() else 0) <= before:
            time.sleep(0.01)
        time.sleep(0.013 * (tries % 5))
        if process.poll() is not None:
            assert process.returncode == 0
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills >= 3
    assert tables(out) == tables(tmp_path / "whole")
