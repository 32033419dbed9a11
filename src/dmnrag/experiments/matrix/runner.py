"""Runs an experiment into a results folder, and goes on where a killed run was.

Order: indexes and retrievers, documents of every cell, the retrieval-only table, then one LLM after the other. A cell
whose figures are there and rest on the same inputs is not touched, so a second run loads no model.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from dmnrag._io import writer_lock
from dmnrag.errors import ConfigError, DataError, MissingDependencyError
from dmnrag.experiments.matrix.answering import LlmSession, PendingCell
from dmnrag.experiments.matrix.cache import FILE as ANSWERS_FILE
from dmnrag.experiments.matrix.cache import AnswerCache
from dmnrag.experiments.matrix.corpora import prepare
from dmnrag.experiments.matrix.domains import DomainClassifier, refuse_without
from dmnrag.experiments.matrix.environment import describe_environment
from dmnrag.experiments.matrix.finishing import copied, measure
from dmnrag.experiments.matrix.llms import OpenLlm, make_opener, train_adapter
from dmnrag.experiments.matrix.retrieval_table import measure_retrieval, retrieval_state
from dmnrag.experiments.matrix.setting import Setting
from dmnrag.experiments.matrix.spec import CorpusSpec
from dmnrag.experiments.matrix.spec_files import LoadedSpec, spec_to_dict
from dmnrag.experiments.records import Cell, Cost
from dmnrag.experiments.reporting.measures.agreement_file import measure_agreement
from dmnrag.experiments.results import ResultsFolder
from dmnrag.index.build import Progress, no_progress

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left."""

    folder: Path
    cells: int
    worked_on: int
    """Cells that were not finished before."""
    incomplete: dict[str, int]
    """Cells with questions that have no answer, and how many."""


def run_experiment(
    loaded: LoadedSpec,
    out: Path,
    *,
    open_llm: OpenLlm | None = None,
    classifier: DomainClassifier | None = None,
    on_progress: Progress = no_progress,
    on_message: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run what a spec asks for, as far as it is not there yet.

    Args:
        loaded: the spec.
        out: the results folder; new, empty, or of an earlier run.
        open_llm: opens an LLM; None: as the spec says.
        classifier: of domains, for cells that infer them.
        on_progress: called as the work goes on, also with the stage `cells`.
        on_message: takes what a person should know and is no error.

    Raises:
        ConfigError: what the spec asks for cannot be done, or `out` holds something else.
        DataError: files that cannot be read.
        IndexLockedError: another process runs into the same folder.
    """
    if loaded.spec.noise.inferred:
        refuse_without(classifier)
    folder = ResultsFolder.create(out)
    with writer_lock(folder.path):
        setting = Setting(loaded, folder, classifier)
        try:
            return _Run(setting, open_llm or make_opener(loaded), on_progress).go(on_message)
        finally:
            setting.close()


class _Run:
    """One run of an experiment."""

    def __init__(self, setting: Setting, open_llm: OpenLlm, on_progress: Progress) -> None:
        self._setting = setting
        self._spec = setting.loaded.spec
        self._folder = setting.folder
        self._open_llm = open_llm
        self._on_progress = on_progress
        self._unfinished = len(setting.cells)
        self._began = False

    def go(self, on_message: Callable[[str], None]) -> Outcome:
        """Everything that is missing."""
        cells = self._setting.cells
        if self._spec.training.missing == "refuse":
            self._refuse_missing()
        self._folder.write_spec(spec_to_dict(self._spec), cells)
        for corpus in self._spec.corpus:
            self._prepare(corpus)
        pending = [cell for cell in cells if not self._setting.is_finished(cell)]
        self._unfinished = len(pending)
        self._show_cells()
        if pending:
            self._begin()
            self._find_documents(pending)
        for name in self._setting.corpora:
            self._measure_retrieval(name, on_message)
        self._copy([cell for cell in pending if cell.llm is None])
        self._answer([cell for cell in pending if cell.llm is not None])
        self._measure_agreement(on_message)
        found = {cell.id: self._folder.metrics(cell) for cell in cells}
        incomplete = {name: metrics.failed for name, metrics in found.items() if metrics and not metrics.complete}
        return Outcome(self._folder.path, len(cells), len(pending), incomplete)

    def _measure_agreement(self, on_message: Callable[[str], None]) -> None:
        """Whether answers show their question's domain (claim 8); done once for a folder."""
        for name, corpus in self._setting.corpora.items():
            try:
                measure_agreement(self._folder, name, corpus.index.all_documents)
            except (MissingDependencyError, DataError) as error:
                on_message(f"corpus {name}: domain agreement is not measured: {error}")

    def _refuse_missing(self) -> None:
        missing = self._setting.missing(self._setting.cells)
        if missing:
            raise ConfigError(
                f'not there, and training.missing is "refuse": {"; ".join(missing)}. Train them with `dmnrag train` '
                'or `dmnrag finetune`, or set training.missing = "train"'
            )

    def _prepare(self, corpus: CorpusSpec) -> None:
        home = self._folder.corpus_folder(corpus.name)
        known = self._folder.card(corpus.name) if (home / "card.json").is_file() else None
        made = prepare(
            self._setting.loaded,
            corpus,
            self._setting.cells,
            home,
            timed=self._timed,
            on_progress=self._on_progress,
        )
        self._setting.add(made)
        if known is not None and known.fingerprint != made.card.fingerprint:
            raise ConfigError(
                f"corpus {corpus.name} is not the one that {self._folder.path} was begun with (documents, held-out "
                "questions or settings of its index differ): name another folder with --out"
            )
        self._folder.write_corpus(made.card, made.examples)

    def _find_documents(self, pending: Sequence[Cell]) -> None:
        started = time.perf_counter()
        for done, cell in enumerate(pending):
            self._on_progress("documents", done, len(pending))
            store = self._setting.stores[cell.corpus]
            self._folder.write_evidence(cell, store.rows(cell), store.file(cell))
        self._on_progress("documents", len(pending), len(pending))
        self._add_step("documents of the cells", time.perf_counter() - started)

    def _measure_retrieval(self, name: str, on_message: Callable[[str], None]) -> None:
        corpus, wanted = self._setting.corpora[name], self._spec.retrieval_table
        if wanted == "none":
            return
        if corpus.card.unusable:
            on_message(
                f"corpus {name}: no retrieval table, as {corpus.card.unusable:,} held-out questions hold no word"
            )
            return
        pool = wanted == "pool"
        known = self._folder.retrieval(name)
        if known is None or known.fingerprint != retrieval_state(corpus, pool=pool):
            home = self._folder.corpus_folder(name)
            make = partial(measure_retrieval, corpus, home, pool=pool, on_progress=self._on_progress)
            self._folder.write_retrieval(name, self._timed(f"{name}: retrieval table", make))

    def _copy(self, cells: Sequence[Cell]) -> None:
        for cell in cells:
            predictions = copied(self._setting.stores[cell.corpus].rows(cell))
            self._folder.write_predictions(cell.id, predictions)
            examples = self._setting.corpora[cell.corpus].examples
            metrics = measure(predictions, examples, self._spec.metrics, self._setting.inputs(cell))
            self._folder.write_metrics(cell.id, metrics)
            self._finish_cell()

    def _answer(self, cells: Sequence[Cell]) -> None:
        if not cells:
            return
        cache = AnswerCache(self._folder.path / ANSWERS_FILE)
        for llm_name, adapter, of_llm in self._by_model(cells):
            if adapter is not None:
                index = self._setting.index_folder(of_llm[0].corpus)
                train = partial(train_adapter, self._setting.loaded, index, of_llm[0], adapter, self._on_progress)
                self._timed(f"adapter {adapter.name}", train)
            self._answer_with(llm_name, adapter, of_llm, cache)
            gc.collect()  # before the next model is loaded: two may not fit

    def _answer_with(self, llm_name: str, adapter: Path | None, cells: Sequence[Cell], cache: AnswerCache) -> None:
        llm = self._spec.llm_named(llm_name)
        session = LlmSession(
            llm,
            self._timed(f"{llm_name}: loading", partial(self._open_llm, llm, adapter)),
            self._setting.identity(llm_name, adapter),
            self._setting.templates[llm_name],
            self._folder,
            cache,
            self._spec.metrics,
            self._on_progress,
        )
        session.answer([self._pending(cell) for cell in cells], self._finish_cell)

    def _pending(self, cell: Cell) -> PendingCell:
        store, corpus = self._setting.stores[cell.corpus], self._setting.corpora[cell.corpus]
        return PendingCell(cell, self._setting.inputs(cell), corpus.examples, store.rows(cell), store.file(cell))

    def _by_model(self, cells: Sequence[Cell]) -> list[tuple[str, Path | None, list[Cell]]]:
        """Cells that one loaded model answers, in the spec's order."""
        groups: dict[tuple[str, Path | None], list[Cell]] = {}
        for cell in cells:
            assert cell.llm is not None  # the caller looked
            groups.setdefault((cell.llm, self._setting.adapter(cell)), []).append(cell)
        return [(llm, adapter, of_llm) for (llm, adapter), of_llm in groups.items()]

    def _finish_cell(self) -> None:
        self._unfinished -= 1
        self._show_cells()

    def _show_cells(self) -> None:
        n_cells = len(self._setting.cells)
        self._on_progress("cells", n_cells - self._unfinished, n_cells)

    def _timed(self, step: str, work: Callable[[], _Value]) -> _Value:
        self._begin()
        started = time.perf_counter()
        value = work()
        self._add_step(step, time.perf_counter() - started)
        return value

    def _add_step(self, step: str, seconds: float) -> None:
        known = self._folder.cost()
        steps = {**known.steps, step: round(known.steps.get(step, 0.0) + seconds, 1)}
        self._folder.write_cost(Cost(known.cells, steps))

    def _begin(self) -> None:
        """Write down what this run works on, before its first work."""
        if not self._began:
            self._began = True
            self._folder.add_env(describe_environment())
