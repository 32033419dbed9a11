"""A whole experiment with the fake LLM: what it writes, what it asks, and what it does not ask again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from runner_world import (
    N_DOCUMENTS,
    N_QUESTIONS,
    Llms,
    every_file,
    example,
    loaded,
    read_json,
    run,
    tables,
    values,
)

from dmnrag.errors import ConfigError, IndexLockedError
from dmnrag.experiments.matrix.answering import LlmSession
from dmnrag.experiments.matrix.cells import expand
from dmnrag.experiments.results import ResultsFolder
from dmnrag.types import Prompt


def test_every_cell_is_finished_and_every_file_is_there(small_index: Path, tmp_path: Path) -> None:
    outcome = run(values(small_index), tmp_path / "out")
    assert (outcome.cells, outcome.worked_on, outcome.incomplete) == (11, 11, {})
    folder = ResultsFolder.open(tmp_path / "out")
    assert folder.corpora() == ["medical"]
    card = folder.card("medical")
    assert (card.documents, card.held_out, card.sampled, card.unusable) == (N_DOCUMENTS, N_QUESTIONS, 6, 0)
    assert set(card.retrievers) == {"plain", "joint"}
    assert len(folder.questions("medical")) == 6
    for cell in folder.cells():
        metrics = folder.metrics(cell)
        assert metrics is not None
        assert (metrics.n, metrics.answered, metrics.failed, metrics.complete) == (6, 6, 0, True)
        assert len(folder.predictions(cell)) == 6
        wanted = {row.query_id: [d.doc_id for d in row.documents] for row in folder.evidence(cell)}
        given = {query_id: [hit.doc_id for hit in hits] for query_id, hits in folder.run(cell).items()}
        assert given == {query_id: ids for query_id, ids in wanted.items() if ids}
    assert folder.env["runs"][0]["versions"]["dmnrag"]


def test_questions_are_a_fixed_sample_in_the_order_of_the_index(small_index: Path, tmp_path: Path) -> None:
    small = values(small_index, questions=4, methods=["no-Dmn"], controls=[])
    run(small, tmp_path / "a")
    run(small, tmp_path / "b")
    run(small | {"questions": 8}, tmp_path / "c")
    run(small | {"seed": 1}, tmp_path / "d")
    ids = {
        name: [e.query.query_id for e in ResultsFolder.open(tmp_path / name).questions("medical")] for name in "abcd"
    }
    assert ids["a"] == ids["b"] != ids["d"]
    assert set(ids["a"]) < set(ids["c"])
    assert ids["c"] == sorted(ids["c"])


def test_figures_are_those_of_the_answers(small_index: Path, tmp_path: Path) -> None:
    """Each question is answered with its own right answer, or with one character of it that stands for nothing else."""
    right = {example(i).query.text: example(i).references[0] for i in range(N_QUESTIONS)}

    def answer(prompt: Prompt) -> str:
        text = next(right[q] for q in right if q in prompt.user)
        return text if "心血管内科" not in prompt.user else "X"

    run(values(small_index, methods=["ques-front"], controls=[], questions=10), tmp_path / "out", Llms(answer))
    folder = ResultsFolder.open(tmp_path / "out")
    [cell] = folder.cells()
    metrics = folder.metrics(cell)
    assert metrics is not None
    wrong = [i for i in range(10) if i % 3 == 0]  # of the department that the fake knows nothing of
    expected = tuple(0.0 if i in wrong else 1.0 for i in range(10))
    assert metrics.values["ROUGE-1 (word)"] == metrics.values["ROUGE-L (character)"] == expected
    assert metrics.values["length (characters)"] == tuple(
        1.0 if i in wrong else float(len(example(i).references[0])) for i in range(10)
    )


def test_a_second_run_opens_no_llm_and_changes_no_file(small_index: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    spec = values(small_index, retrieval_table="index")
    run(spec, out)
    before = every_file(out)
    llms = Llms()
    outcome = run(spec, out, llms)
    assert (outcome.worked_on, llms.opened) == (0, [])
    assert every_file(out) == before


def test_a_finished_experiment_loads_no_torch(small_index: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(
        f'questions = 3\nmethods = ["no-Dmn"]\nretrieval_table = "none"\n[[corpus]]\nname = "m"\n'
        f'index = "{small_index}"\n[[llm]]\nname = "fake"\n',
        encoding="utf-8",
    )
    command = (
        "import sys; from dmnrag.cli.main import app; app(sys.argv[1:], standalone_mode=False);"
        "print([m for m in ('torch', 'transformers', 'sentence_transformers', 'faiss') if m in sys.modules])"
    )
    for wanted in ("", "[]"):
        done = subprocess.run(
            [sys.executable, "-c", command, "experiment", str(spec), "--out", str(tmp_path / "out")],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1].endswith(wanted)


def test_one_more_temperature_asks_only_that(small_index: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    spec = values(small_index, generation={"max_tokens": 200}, sweep={"temperature": [0.2, 0.4]})
    run(spec, out)
    llms = Llms()
    before = every_file(out)
    outcome = run(spec | {"sweep": {"temperature": [0.2, 0.4, 0.6]}}, out, llms)
    assert outcome.worked_on == 6
    assert {settings.temperature for _, settings in llms.asked} == {0.6}
    assert len(llms.asked) == len({user for user, _ in llms.asked}) <= 36
    after = every_file(out)
    grows = "corpora/medical/agreement.json"  # one file with values for each cell
    old_cells = {name for name in before if name.startswith(("cells/", "corpora/"))} - {grows}
    assert {name: after[name] for name in old_cells} == {name: before[name] for name in old_cells}
    old, new = (json.loads(files[grows][0])["cells"] for files in (before, after))
    assert {cell: new[cell] for cell in old} == old
    ranked = [name for name in after if name.startswith("corpora/medical/evidence/")]
    assert sorted(ranked) == sorted(name for name in before if name.startswith("corpora/medical/evidence/"))


def test_identical_prompts_are_asked_once(small_index: Path, tmp_path: Path) -> None:
    """Without any domain, front and rear write the prompt that has none."""
    spec = values(small_index, methods=["ques-front", "ques-rear"], controls=[], noise={"none": True})
    llms = Llms()
    run(spec, tmp_path / "out", llms)
    # Two positions with 6 questions each, and 6 questions without a domain for both of them.
    assert len(llms.asked) == 18 == len(set(llms.asked))
    folder = ResultsFolder.open(tmp_path / "out")
    cost = folder.cost().cells
    shared = [cost[cell.id] for cell in folder.cells() if cell.domain == "none"]
    assert sorted((c.generated, c.from_cache) for c in shared) == [(0, 6), (6, 0)]


def test_more_questions_ask_only_the_new_ones(small_index: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    spec = values(small_index, methods=["no-Dmn", "Dmn-ques-front"], controls=["copy-first"], questions=4)
    run(spec, out)
    llms = Llms()
    run(spec | {"questions": 7}, out, llms)
    assert len(llms.asked) == 2 * 3
    fresh = tmp_path / "fresh"
    run(spec | {"questions": 7}, fresh)
    assert tables(out) == tables(fresh)


def test_sampled_decoding_is_repeated_with_its_own_seeds(small_index: Path, tmp_path: Path) -> None:
    spec = values(small_index, methods=["no-Dmn"], controls=[], repeats=3, seed=5, generation={"temperature": 0.7})
    llms = Llms()
    run(spec, tmp_path / "out", llms)
    assert sorted({s.seed for _, s in llms.asked if s.seed is not None}) == [5, 6, 7]
    assert len(llms.asked) == 18
    assert [cell.repeat for cell in ResultsFolder.open(tmp_path / "out").cells()] == [0, 1, 2]


def test_greedy_decoding_is_not_repeated(small_index: Path) -> None:
    cells = expand(loaded(values(small_index, methods=["no-Dmn"], controls=[], repeats=3)).spec)
    assert [(cell.repeat, cell.parameters.seed) for cell in cells] == [(0, None)]


def test_local_models_get_batches_of_like_length(
    small_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    llms = Llms()
    generate = llms.fake.generate
    monkeypatch.setattr(llms.fake, "generate", lambda ps, s: (sizes.append(len(ps)), generate(ps, s))[1])
    run(values(small_index, methods=["no-Dmn", "Dmn-ques-front"], controls=[]), tmp_path / "out", llms)
    assert sizes == [4, 4, 4]
    lengths = [len(user) for user, _ in llms.asked]
    assert lengths == sorted(lengths, reverse=True)


def test_another_corpus_under_the_same_name_is_refused(small_index: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(values(small_index, methods=["no-Dmn"], controls=[]), out)
    other = values(small_index, methods=["no-Dmn"], controls=[], retrieval=[{"layer": "sparse"}])
    other["corpus"] = [{"name": "medical", "sample": "medical", "encoder": "none"}]
    with pytest.raises(ConfigError, match=r"not the one that .* was begun with"):
        run(other, out)


def test_two_processes_do_not_write_to_the_same_folder(
    small_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, out = values(small_index, methods=["no-Dmn"], controls=[]), tmp_path / "out"
    met: list[str] = []

    def answer(self: LlmSession, *_: object) -> None:
        with pytest.raises(IndexLockedError, match="is being written by"):
            run(spec, out)
        met.append("refused")

    monkeypatch.setattr(LlmSession, "answer", answer)
    run(spec, out)
    assert met == ["refused"]


def test_a_folder_of_something_else_is_refused(small_index: Path, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(ConfigError, match="not a results folder"):
        run(values(small_index), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_question_without_a_word_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = [f'{{"id": {i}, "q": "{"？？？" if i == 3 else f"头疼{i}怎么办"}", "a": "休息{i}天。"}}' for i in range(20)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    spec = {
        "methods": ["no-Dmn"],
        "questions": 0,
        "retrieval": [{"layer": "sparse"}],
        "corpus": [
            {
                "name": "m", "files": [str(tmp_path / "rows.jsonl")], "question": ["q"], "answer": ["a"],
                "doc_id": "id", "test_size": 0.9, "encoder": "none",
            }
        ],
        "llm": [{"name": "fake"}],
    }  # fmt: skip
    said: list[str] = []
    run(spec, tmp_path / "out", on_message=said.append)
    folder = ResultsFolder.open(tmp_path / "out")
    card = folder.card("m")
    assert (card.held_out, card.unusable, card.sampled) == (18, 1, 17)
    assert "3" not in [question.query.query_id for question in folder.questions("m")]
    assert said == ["corpus m: no retrieval table, as 1 held-out questions hold no word"]


def test_methods_that_need_domains_are_refused_where_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("q,a\n" + "".join(f"头疼{i}怎么办,休息{i}天\n" for i in range(10)), "utf-8")
    spec = {
        "retrieval": [{"layer": "sparse"}],
        "corpus": [{"name": "m", "files": [str(tmp_path / "rows.csv")], "question": ["q"], "answer": ["a"]}],
        "llm": [{"name": "fake"}],
    }
    spec["corpus"][0]["encoder"] = "none"  # type: ignore[index]
    with pytest.raises(ConfigError, match=r"has no domains.*Dmn, ques-front"):
        run(spec, tmp_path / "out")


def test_missing_retrievers_are_refused_where_the_spec_says_so(small_index: Path, tmp_path: Path) -> None:
    spec = values(small_index, training={"missing": "refuse"})
    run(spec, tmp_path / "out")
    spec["corpus"] = [{"name": "medical", "sample": "medical", "encoder": "fake"}]
    with pytest.raises(ConfigError, match="retriever plain of corpus medical; retriever joint of corpus medical"):
        run(spec, tmp_path / "other")


def test_each_row_searches_with_its_own_retriever(small_index: Path, tmp_path: Path) -> None:
    spec = values(small_index, ablations=["ES+Dmn", "DPR"], controls=[], retrieval=[{"layer": "cascade"}])
    run(spec, tmp_path / "out")
    used = {cell.row: (cell.layer, cell.retriever) for cell in ResultsFolder.open(tmp_path / "out").cells()}
    assert used == {
        "no-Dmn": ("cascade", "plain"),
        "ques-front": ("cascade", "plain"),
        "ques-rear": ("cascade", "plain"),
        "Dmn": ("cascade", "joint"),
        "Dmn-ques-front": ("cascade", "joint"),
        "Dmn-ques-rear": ("cascade", "joint"),
        "ES+Dmn": ("sparse", None),
        "DPR": ("dense", "dpr"),
    }
    assert read_json(tmp_path / "out" / "corpora" / "medical" / "card.json")["retrievers"] == ["plain", "joint", "dpr"]


def test_files_or_settings_that_changed_are_another_corpus(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"q": f"第{i}问", "a": f"第{i}答"}, ensure_ascii=False) + "\n" for i in range(20)),
        encoding="utf-8",
    )
    corpus = {"name": "m", "files": [str(rows)], "question": ["q"], "answer": ["a"], "encoder": "none"}
    spec = values(Path(), corpus=[corpus], methods=["no-Dmn"], retrieval=[{"layer": "sparse"}], controls=[])
    assert run(spec, tmp_path / "out").worked_on == 1
    assert run(spec, tmp_path / "out").worked_on == 0
    for change in ({"test_size": 0.3}, {"segmenter": "jieba"}):
        with pytest.raises(ConfigError, match=rf"was built from .{next(iter(change))} differ"):
            run(spec | {"corpus": [corpus | change]}, tmp_path / "out")
    rows.write_text(rows.read_text(encoding="utf-8").replace("第1答", "另一答"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"was built from .files differ"):
        run(spec, tmp_path / "out")
