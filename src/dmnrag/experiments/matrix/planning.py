"""What a run would do: the cells, what is there, and an estimate of tokens and time. Loads no model.

Tokens and time per answer are those of the LLM's answers in the results folder, where there are any. Before the
first ones, tokens are estimated on prompts of the corpus's own documents, and time is known for the built-in LLM alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from dmnrag.experiments.matrix.corpora import Corpus, open_ready
from dmnrag.experiments.matrix.domains import DomainClassifier, refuse_without
from dmnrag.experiments.matrix.setting import Setting
from dmnrag.experiments.matrix.spec import LlmSpec, Spec
from dmnrag.experiments.matrix.spec_files import LoadedSpec
from dmnrag.experiments.records import Cell, CellCost
from dmnrag.experiments.results import ResultsFolder
from dmnrag.index.generations import is_index
from dmnrag.llm.approximate_tokens import ApproximateCounter
from dmnrag.prompts import build_prompt

State = Literal["finished", "begun", "to do"]

_PROBED = 20
"""Prompts that the estimate is made on."""
_BUILTIN_S = (0.0008, 0.009)
"""Seconds for a token read and a token written by the built-in LLM, in batches of 8 in fp32 on 2 cores: half the CPU
time of one thread, measured on prompts of 350 tokens and answers of 33."""


@dataclass(frozen=True, slots=True)
class CellPlan:
    """A cell and how far it is."""

    cell: Cell
    state: State
    answered: int
    questions: int | None
    """None where the corpus is not built yet and all its questions are asked."""


@dataclass(frozen=True, slots=True)
class LlmPlan:
    """What is still to be asked of an LLM."""

    llm: str
    questions: int
    """At most: prompts that cells share are asked once."""
    prompt_tokens: int | None
    completion_tokens: int
    measured: bool
    """Whether the estimate rests on answers of this LLM; otherwise every answer counts as long as it may be."""
    seconds: float | None
    """None where nothing is known of its speed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do."""

    cells: list[CellPlan]
    llms: list[LlmPlan]
    preparations: list[str]
    """Indexes to build, retrievers and adapters to train, in words."""


def plan_experiment(loaded: LoadedSpec, out: Path, *, classifier: DomainClassifier | None = None) -> Plan:
    """Look at a spec and at what is there of it.

    Args:
        loaded: the spec.
        out: the results folder; it need not be there.
        classifier: of domains, for cells that infer them.

    Raises:
        ConfigError: what the spec asks for cannot be done.
        DataError: a results folder that cannot be read.
    """
    if loaded.spec.noise.inferred:
        refuse_without(classifier)
    setting = Setting(loaded, ResultsFolder(out), classifier)
    try:
        for corpus in loaded.spec.corpus:
            ready = open_ready(loaded, corpus, setting.cells, setting.folder.corpus_folder(corpus.name))
            if ready is not None:
                setting.add(ready)
        plans = [_plan_cell(setting, cell) for cell in setting.cells]
        to_do = [plan for plan in plans if plan.state != "finished"]
        built = [f"index of corpus {c.name}" for c in loaded.spec.corpus if not is_index(setting.index_folder(c.name))]
        missing = setting.missing([plan.cell for plan in to_do])
        llms = [_plan_llm(setting, llm, [p for p in to_do if p.cell.llm == llm.name]) for llm in loaded.spec.llm]
        return Plan(plans, [llm for llm in llms if llm.questions], built + missing)
    finally:
        setting.close()


def _plan_cell(setting: Setting, cell: Cell) -> CellPlan:
    corpus = setting.corpora.get(cell.corpus)
    if corpus is None:
        return CellPlan(cell, "to do", 0, _wanted_questions(setting.loaded.spec, cell.corpus))
    n = len(corpus.examples)
    if setting.is_finished(cell):
        return CellPlan(cell, "finished", n, n)
    asked = {example.query.query_id for example in corpus.examples}
    known = (setting.folder.corpus_folder(cell.corpus) / "questions.jsonl").is_file()
    answered = sum(p.error is None and p.query_id in asked for p in setting.folder.predictions(cell)) if known else 0
    return CellPlan(cell, "begun" if answered else "to do", answered, n)


def _wanted_questions(spec: Spec, corpus: str) -> int | None:
    return spec.corpus_named(corpus).questions or spec.questions


def _plan_llm(setting: Setting, llm: LlmSpec, plans: Sequence[CellPlan]) -> LlmPlan:
    counts = {plan.cell.id: max(0, (plan.questions or 0) - plan.answered) for plan in plans}
    questions = sum(counts.values())
    cost = setting.folder.cost()
    known = [cost.cells[c.id] for c in setting.cells if c.llm == llm.name and c.id in cost.cells]
    generated = sum(of_cell.generated for of_cell in known)
    if generated:
        return _measured(llm, questions, known, generated)
    written = sum(counts[plan.cell.id] * plan.cell.parameters.max_tokens for plan in plans)
    per_prompt = {name: _tokens_of_prompt(setting, corpus, llm) for name, corpus in setting.corpora.items()}
    read = None
    if {plan.cell.corpus for plan in plans} <= set(per_prompt):
        read = round(sum(counts[plan.cell.id] * per_prompt[plan.cell.corpus] for plan in plans))
    seconds = None
    if llm.base == "builtin" and read is not None:
        seconds = read * _BUILTIN_S[0] + written * _BUILTIN_S[1]
    return LlmPlan(llm.name, questions, read, written, False, seconds)


def _measured(llm: LlmSpec, questions: int, known: Sequence[CellCost], generated: int) -> LlmPlan:
    share = questions / generated
    return LlmPlan(
        llm.name,
        questions,
        round(share * sum(of_cell.prompt_tokens for of_cell in known)),
        round(share * sum(of_cell.completion_tokens for of_cell in known)),
        True,
        share * sum(of_cell.seconds for of_cell in known),
    )


def _tokens_of_prompt(setting: Setting, corpus: Corpus, llm: LlmSpec) -> float:
    """Mean over a few questions, each with the next documents of the corpus, whichever these are."""
    counter, k = ApproximateCounter(), setting.loaded.spec.k
    examples = corpus.examples[:_PROBED]
    documents = list(islice(corpus.index.all_documents(), k * len(examples)))
    template = setting.templates[llm.name]
    prompts = [
        build_prompt(template, "none", example.query, documents[k * i : k * (i + 1)], count=counter.prompt_tokens)
        for i, example in enumerate(examples)
    ]
    return sum(map(counter.prompt_tokens, prompts)) / max(1, len(prompts))
