"""The cells of one loaded LLM: prompts, answers as they come, figures.

Cells with the same decoding parameters are asked together, and a prompt that several of them share is asked once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dmnrag.experiments.matrix.asking import Question, Reply, ask
from dmnrag.experiments.matrix.cache import AnswerCache, CachedAnswer, answer_key
from dmnrag.experiments.matrix.finishing import Asked, answered, cost_of, measure, predictions_of
from dmnrag.experiments.matrix.prompting import Written, write_prompts
from dmnrag.experiments.matrix.spec import LlmSpec
from dmnrag.experiments.records import Cell, Cost, Evidence, json_line
from dmnrag.experiments.results import ResultsFolder
from dmnrag.index.build import Progress
from dmnrag.methods import find_method
from dmnrag.prompts import Template
from dmnrag.protocols import Generator
from dmnrag.types import Example, GenerationSettings


@dataclass(frozen=True)
class PendingCell:
    """A cell that has no figures yet."""

    cell: Cell
    inputs: str
    examples: Sequence[Example]
    rows: Sequence[Evidence]
    source: Path
    """The file that `rows` came from; cells that share it share prompts."""


@dataclass
class _Group:
    """Cells that are asked with the same parameters."""

    settings: GenerationSettings
    cells: list[tuple[PendingCell, list[Asked]]] = field(default_factory=list)


class LlmSession:
    """Answers the questions of pending cells."""

    def __init__(
        self,
        llm: LlmSpec,
        generator: Generator,
        identity: str,
        template: Template,
        folder: ResultsFolder,
        cache: AnswerCache,
        metrics: Sequence[str],
        on_progress: Progress,
    ) -> None:
        """`identity` tells the LLM with its adapter from others; the rest is the experiment's."""
        self._llm = llm
        self._generator = generator
        self._identity = identity
        self._template = template
        self._folder = folder
        self._cache = cache
        self._metrics = metrics
        self._on_progress = on_progress
        self._written: dict[tuple[Path, str, int], list[Written]] = {}

    def answer(self, pending: Sequence[PendingCell], on_finished: Callable[[], None]) -> None:
        """Answer, measure and write every cell; `on_finished` is called after each."""
        groups: dict[GenerationSettings, _Group] = {}
        for one in pending:
            settings = one.cell.parameters
            groups.setdefault(settings, _Group(settings)).cells.append((one, self._asked(one)))
        counter = _Counter(self._on_progress, f"answers {self._llm.name}", map(self._missing, groups.values()))
        for group in groups.values():
            failed = self._ask(group, counter)
            for one, asked in group.cells:
                self._finish(one, asked, failed)
                on_finished()

    def _asked(self, one: PendingCell) -> list[Asked]:
        """A cell's questions as they are put, and the keys of their answers."""
        position = find_method(one.cell.method).position
        settings = one.cell.parameters
        shared = (one.source, position, settings.max_tokens)
        if shared not in self._written:
            self._written[shared] = write_prompts(
                one.rows, position, self._template, self._generator, settings.max_tokens
            )
        return [
            Asked(w, None if w.prompt is None else answer_key(self._identity, w.prompt, settings))
            for w in self._written[shared]
        ]

    def _missing(self, group: _Group) -> dict[str, Question]:
        """What nobody has asked yet, each once."""
        return {
            one.key: Question(one.key, one.written.prompt)
            for _, asked in group.cells
            for one in asked
            if one.key is not None and one.written.prompt is not None and one.key not in self._cache
        }

    def _ask(self, group: _Group, counter: "_Counter") -> Mapping[str, str]:
        log = _Log(self._folder, group, self._cache)
        log.start()

        def keep(replies: Sequence[Reply]) -> None:
            new = [CachedAnswer.of(r.key, r.generation, r.ms, log.first_cell(r.key)) for r in replies]
            self._cache.add(new)
            log.append(new)
            counter.add(len(new))

        return ask(
            self._generator,
            list(self._missing(group).values()),
            group.settings,
            batch_size=self._llm.at_once,
            concurrent=self._llm.is_server,
            on_replies=keep,
        )

    def _finish(self, one: PendingCell, asked: Sequence[Asked], failed: Mapping[str, str]) -> None:
        predictions = predictions_of(asked, self._cache, failed)
        self._folder.write_predictions(one.cell.id, predictions)
        known = self._folder.cost()
        cells = {**known.cells, one.cell.id: cost_of(one.cell, asked, self._cache)}
        self._folder.write_cost(Cost(cells, known.steps))
        self._folder.write_metrics(one.cell.id, measure(predictions, one.examples, self._metrics, one.inputs))


class _Log:
    """Appends answers to the predictions of every cell that waits for them."""

    def __init__(self, folder: ResultsFolder, group: _Group, cache: AnswerCache) -> None:
        self._folder = folder
        self._group = group
        self._cache = cache
        self._wanted: dict[str, list[tuple[str, Written]]] = {}
        for one, asked in group.cells:
            for question in asked:
                if question.key is not None:
                    self._wanted.setdefault(question.key, []).append((one.cell.id, question.written))

    def start(self) -> None:
        """Write what the cells have already."""
        for one, asked in self._group.cells:
            self._folder.write_predictions(one.cell.id, predictions_of(asked, self._cache, {}))

    def first_cell(self, key: str) -> str:
        """The cell that the cost of an answer is counted for."""
        return self._wanted[key][0][0]

    def append(self, answers: Sequence[CachedAnswer]) -> None:
        """Add a line to each cell for each answer that it waits for."""
        lines: dict[str, list[bytes]] = {}
        for answer in answers:
            for cell_id, written in self._wanted[answer.key]:
                lines.setdefault(cell_id, []).append(json_line(answered(written, answer)))
        for cell_id, of_cell in lines.items():
            with self._folder.predictions_file(cell_id).open("ab") as file:
                file.write(b"".join(of_cell))


class _Counter:
    """Progress over all groups."""

    def __init__(self, on_progress: Progress, stage: str, missing: Iterable[Mapping[str, Question]]) -> None:
        self._on_progress = on_progress
        self._stage = stage
        self._done, self._total = 0, sum(map(len, missing))
        self.add(0)

    def add(self, n_more: int) -> None:
        self._done += n_more
        self._on_progress(self._stage, self._done, self._total)
