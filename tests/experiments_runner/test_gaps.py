"""Questions that fail and servers that die: recorded, tried again, and never averaged over."""

from pathlib import Path

import pytest
from runner_world import Llms, run, values

from dmnrag.errors import EndpointError, GenerationError
from dmnrag.experiments.matrix.asking import Question, Reply, ask
from dmnrag.experiments.records import Cell
from dmnrag.experiments.results import ResultsFolder
from dmnrag.llm import FakeGenerator
from dmnrag.types import Generation, GenerationSettings, Prompt

GREEDY = GenerationSettings(temperature=0)


def fragile(bad: str, error: Exception | None = None) -> Llms:
    """Fails at every prompt that holds a text."""
    llms = Llms()
    generate = llms.fake.generate

    def checked(prompts: list[Prompt], settings: GenerationSettings) -> list[Generation]:
        if any(bad in prompt.user for prompt in prompts):
            raise error or GenerationError("the model said NaN")
        return generate(prompts, settings)

    llms.fake.generate = checked  # type: ignore[method-assign, assignment]
    return llms


def only_cell(out: Path) -> tuple[ResultsFolder, Cell]:
    folder = ResultsFolder.open(out)
    [cell] = folder.cells()
    return folder, cell


def test_one_failing_question_is_recorded_and_the_cell_says_so(small_index: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    spec = values(small_index, methods=["no-Dmn"], controls=[], questions=10)
    outcome = run(spec, out, fragile("处理7"))
    folder, cell = only_cell(out)
    assert outcome.incomplete == {cell.id: 1}
    metrics = folder.metrics(cell)
    assert metrics is not None
    assert (metrics.n, metrics.answered, metrics.failed, metrics.complete) == (10, 9, 1, False)
    place = [e.query.query_id for e in folder.questions("medical")].index("q7")
    for column in metrics.values.values():
        assert [i for i, value in enumerate(column) if value is None] == [place]
    [failed] = [row for row in folder.predictions(cell) if row.error]
    assert (failed.query_id, failed.answer) == ("q7", "")
    assert failed.error == "GenerationError: the model said NaN"
    assert failed.prompt is not None


def test_the_same_command_asks_what_failed_and_nothing_else(small_index: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    spec = values(small_index, methods=["no-Dmn"], controls=[], questions=10)
    run(spec, out, fragile("处理7"))
    healthy = Llms()
    assert run(spec, out, healthy).incomplete == {}
    assert len(healthy.asked) == 1
    assert "处理7" in healthy.asked[0][0]
    folder, cell = only_cell(out)
    assert [row.error for row in folder.predictions(cell)] == [None] * 10


def test_what_fails_once_is_asked_again_in_the_same_run(small_index: Path, tmp_path: Path) -> None:
    llms = Llms(failures={0: GenerationError("hiccup"), 5: GenerationError("hiccup")})
    assert run(values(small_index, methods=["no-Dmn"], controls=[]), tmp_path / "out", llms).incomplete == {}


def test_a_question_that_is_too_long_is_a_gap(small_index: Path, tmp_path: Path) -> None:
    llms = Llms(context_tokens=230)
    long = "头疼" * 200
    spec = values(small_index, methods=["no-Dmn"], controls=[])
    rows = "".join(f'{{"q": "{long if i == 2 else "头疼"}第{i}天", "a": "休息{i}天"}}\n' for i in range(20))
    (tmp_path / "rows.jsonl").write_text(rows, encoding="utf-8")
    spec["corpus"] = [
        {
            "name": "m", "files": [str(tmp_path / "rows.jsonl")], "question": ["q"], "answer": ["a"],
            "test_size": 0.9, "encoder": "none",
        }
    ]  # fmt: skip
    spec |= {"retrieval": [{"layer": "sparse"}], "questions": 0}
    outcome = run(spec, tmp_path / "out", llms)
    folder, cell = only_cell(tmp_path / "out")
    assert outcome.incomplete == {cell.id: 1}
    [failed] = [row for row in folder.predictions(cell) if row.error]
    assert failed.error is not None
    assert failed.error.startswith("PromptTooLongError: the question and the template alone have")
    assert failed.prompt is None


class Server(FakeGenerator):
    """Answers so many requests and is gone then."""

    def __init__(self, lives: int) -> None:
        super().__init__(["好"])
        self.lives = lives
        self.requests = 0

    def generate(self, prompts, settings):  # type: ignore[no-untyped-def]
        self.requests += 1
        if self.requests > self.lives:
            raise EndpointError("LLM server h:1 cannot be reached")
        return super().generate(prompts, settings)


def test_a_server_that_died_is_not_asked_for_every_question() -> None:
    server, got = Server(lives=10), list[Reply]()
    questions = [Question(f"k{i:03}", Prompt(f"问{i:03}")) for i in range(200)]
    failed = ask(server, questions, GREEDY, batch_size=2, concurrent=True, on_replies=got.extend)
    assert {reply.key for reply in got} | set(failed) == {question.key for question in questions}
    assert len(got) == 10
    assert server.requests <= 10 + 5 + 1  # five failures in a row, and one request that was under way meanwhile
    assert set(failed.values()) == {
        "EndpointError: LLM server h:1 cannot be reached",
        "EndpointError: not asked, because the server does not answer",
    }


def test_prompts_that_a_server_refuses_do_not_stop_the_others() -> None:
    """The longest come first: many refusals in a row, from a server that works."""
    server = Server(lives=10**6)
    generate = server.generate

    def refuses_long(prompts, settings):  # type: ignore[no-untyped-def]
        if len(prompts[0].user) > 10:
            raise EndpointError("LLM server h:1 answered 400", answered=True)
        return generate(prompts, settings)

    server.generate = refuses_long  # type: ignore[method-assign]
    long = [Question(f"long{i}", Prompt("问" * 20 + str(i))) for i in range(20)]
    short = [Question(f"short{i}", Prompt(f"问{i}")) for i in range(20)]
    got: list[Reply] = []
    failed = ask(server, [*long, *short], GREEDY, batch_size=2, concurrent=True, on_replies=got.extend)
    assert {reply.key for reply in got} == {question.key for question in short}
    assert failed == {question.key: "EndpointError: LLM server h:1 answered 400" for question in long}


def test_answers_of_a_server_are_kept_one_by_one_as_they_come() -> None:
    together: list[int] = []
    questions = [Question(f"k{i}", Prompt(f"问{i}")) for i in range(9)]
    failed = ask(
        Server(lives=99), questions, GREEDY, batch_size=3, concurrent=True, on_replies=lambda r: together.append(len(r))
    )
    assert (failed, together) == ({}, [1] * 9)


def test_failures_here_and_there_do_not_stop_a_server() -> None:
    """Every third request fails once; all are answered in the end."""
    server = Server(lives=10**6)
    failing = {f"问{i}" for i in range(0, 60, 3)}
    generate = server.generate

    def sometimes(prompts, settings):  # type: ignore[no-untyped-def]
        if prompts[0].user in failing:
            failing.discard(prompts[0].user)
            raise EndpointError("LLM server h:1 answered 503")
        return generate(prompts, settings)

    server.generate = sometimes  # type: ignore[method-assign]
    got: list[Reply] = []
    questions = [Question(f"k{i}", Prompt(f"问{i}")) for i in range(60)]
    assert ask(server, questions, GREEDY, batch_size=2, concurrent=True, on_replies=got.extend) == {}
    assert len({reply.key for reply in got}) == 60


def test_an_error_that_is_no_llms_fault_ends_the_run_and_loses_nothing(small_index: Path, tmp_path: Path) -> None:
    spec, out = values(small_index, methods=["no-Dmn"], controls=[], questions=10), tmp_path / "out"
    with pytest.raises(ZeroDivisionError):
        run(spec, out, fragile("处理7", ZeroDivisionError()))
    healthy = Llms()
    assert run(spec, out, healthy).incomplete == {}
    assert len(healthy.asked) < 10
