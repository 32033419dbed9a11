"""A small corpus and a fake LLM for the tests of the experiment runner."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dmnrag.experiments.matrix.runner import Outcome, run_experiment
from dmnrag.experiments.matrix.spec import LlmSpec
from dmnrag.experiments.matrix.spec_files import LoadedSpec, spec_from_dict
from dmnrag.experiments.results import ResultsFolder
from dmnrag.index import IndexSettings, build_index
from dmnrag.index.retrievers import add_retriever
from dmnrag.llm import FakeGenerator
from dmnrag.protocols import Generator
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document, Example, GenerationSettings, Prompt, Query

DENSE = DenseSettings(encoder="fake")
DOMAINS = (("内科", "心血管内科"), ("内科", "消化内科"), ("外科", "骨科"))
SYMPTOMS = ("高血压", "胃疼", "骨折", "咳嗽", "失眠", "头晕", "发烧", "腹泻")
N_DOCUMENTS, N_QUESTIONS = 24, 10


def document(number: int) -> Document:
    symptom = SYMPTOMS[number % len(SYMPTOMS)]
    return Document(
        f"d{number}", f"{symptom}第{number}天怎么办", (f"{symptom}要注意休息{number}次。",), DOMAINS[number % 3]
    )


def example(number: int) -> Example:
    symptom = SYMPTOMS[number % len(SYMPTOMS)]
    query = Query(f"q{number}", f"{symptom}应该怎么处理{number}", DOMAINS[number % 3])
    return Example(query, (f"{symptom}请多休息{number}。",), cluster=f"c{number // 2}")


def make_index(folder: Path) -> Path:
    """An index with three second layers that were not trained but stand where trained ones would."""
    build_index(
        folder,
        map(document, range(N_DOCUMENTS)),
        IndexSettings(dense=DENSE),
        examples=[example(i) for i in range(N_QUESTIONS)],
        encoder=HashEncoder(),
    )
    for name in ("plain", "joint", "dpr"):
        add_retriever(folder, name, DENSE, HashEncoder())
    return folder


def values(index: Path, **changes: Any) -> dict[str, Any]:
    """A spec as TOML would give it."""
    base: dict[str, Any] = {
        "questions": 6,
        "retrieval_table": "none",
        "corpus": [{"name": "medical", "index": str(index)}],
        "llm": [{"name": "fake", "batch_size": 4}],
        "generation": {"max_tokens": 200, "temperature": 0},
    }
    return base | changes


def loaded(spec: Mapping[str, Any], folder: Path | None = None) -> LoadedSpec:
    return LoadedSpec("test", spec_from_dict(spec, "spec test"), folder or Path())


def reply(prompt: Prompt) -> str:
    """An answer that hangs on the whole prompt."""
    return f"答{sum(map(ord, prompt.user)) % 9973}：{prompt.user[:12]}"


class Llms:
    """Opens fakes and counts."""

    def __init__(
        self,
        replies: Callable[[Prompt], str] = reply,
        failures: Mapping[int, Exception] | None = None,
        context_tokens: int | None = 4096,
    ) -> None:
        self.opened: list[str] = []
        self.fake = FakeGenerator(replies, failures=failures, context_tokens=context_tokens)

    def __call__(self, llm: LlmSpec, adapter: Path | None) -> Generator:
        self.opened.append(llm.name)
        return self.fake

    @property
    def asked(self) -> list[tuple[str, GenerationSettings]]:
        """Every prompt with its settings, in order."""
        return [(prompt.user, s) for prompt, s in zip(self.fake.prompts, self.fake.settings, strict=True)]


def run(spec: Mapping[str, Any], out: Path, llms: Llms | None = None, **options: Any) -> Outcome:
    return run_experiment(loaded(spec), out, open_llm=llms or Llms(), **options)


def tables(out: Path) -> dict[str, bytes]:
    """All that a report's tables are made of, byte by byte."""
    folder = ResultsFolder.open(out)
    found = {"spec": (out / "spec.json").read_bytes()}
    for corpus in folder.corpora():
        for name in ("card.json", "questions.jsonl", "retrieval.json"):
            path = folder.corpus_folder(corpus) / name
            found[f"{corpus} {name}"] = path.read_bytes() if path.is_file() else b""
    for cell in folder.cells():
        home = folder.cell_folder(cell.id)
        for name in ("cell.json", "run.trec", "evidence.jsonl", "metrics.json"):
            found[f"{cell.id} {name}"] = (home / name).read_bytes()
        answers = [(row.query_id, row.prompt, row.answer, row.error) for row in folder.predictions(cell)]
        found[f"{cell.id} answers"] = repr(answers).encode()
    return found


def every_file(out: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of change of every file."""
    return {
        str(path.relative_to(out)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
