"""From an index to an index with a trained retriever: build the set, train, encode anew, switch over.

The work is kept in `INDEX/models/.train-NAME` until the index has the retriever: killed at any point, the same call
goes on there. A call with another plan, or after the documents changed, begins anew.
"""

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from dmnrag._io import delete_folder, write_json_atomic, writer_lock
from dmnrag.data.exchange import DprInstance, read_dpr_json, write_dpr_json
from dmnrag.errors import ConfigError
from dmnrag.index import Index
from dmnrag.index.build import UNTRAINED
from dmnrag.index.models import MODELS
from dmnrag.index.retrievers import add_retriever, encode_apart
from dmnrag.protocols import Encoder
from dmnrag.retrieval.dense import DenseSettings, PassageText, make_encoder
from dmnrag.retrieval.dense.memo import MemoEncoder
from dmnrag.retrieval.dense.resume import resumable
from dmnrag.training.doctor import TrainingError, check_leakage
from dmnrag.training.dpr import Progress, no_measurement, no_progress, train_dpr
from dmnrag.training.dpr_processes import Processes
from dmnrag.training.dpr_record import DprResult
from dmnrag.training.dpr_rounds import Rounds, train_rounds
from dmnrag.training.mining import Rank
from dmnrag.training.negatives_settings import FirstLayer, TrainingSetSettings
from dmnrag.training.settings import DprSettings
from dmnrag.training.training_set import build_training_set
from dmnrag.types import Hit, Query

Row = TypeVar("Row")

NAMES: dict[FirstLayer, str] = {"joint": "joint", "plain": "plain", "none": "dpr"}
"""What a retriever is called in the index, by the first layer whose ranking it learnt from; "none" is the paper's
"DPR"."""

_PLAN_FILE = "plan.json"


@dataclass(frozen=True, slots=True)
class RetrieverPlan:
    """What retriever to train, and from what."""

    training_set: TrainingSetSettings = field(default_factory=TrainingSetSettings)
    """Whose ranking gives the hard negatives, and what passages are. With `first_layer` none it is the retriever's
    own ranking, in rounds."""
    encoder: str | None = None
    """Where to start from, as for `make_encoder`; None takes the index's, or the built-in one where it has none."""
    training: DprSettings = field(default_factory=DprSettings)
    """How to train."""
    dpr_json: Path | None = None
    """A training set from elsewhere instead of one mined in this index."""
    rounds: int = 2
    """With `none`: at most so many rounds of mining behind the first."""
    limit: int | None = None
    """Train on so many questions only, drawn at random."""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"rounds is {self.rounds}: allowed are whole numbers from 1")
        if self.limit is not None and self.limit < 2:
            raise ConfigError(f"limit is {self.limit}: allowed are whole numbers from 2")

    @property
    def name(self) -> str:
        """Of the retriever in the index."""
        return NAMES[self.training_set.first_layer]

    def dense_settings(self, index: Index) -> DenseSettings:
        """What the retriever reads in the index: the same as in training."""
        base = index.dense_settings() if UNTRAINED in index.manifest.retrievers else DenseSettings()
        passage: PassageText = "answer" if self.training_set.passage == "answer" else "question+answer"
        return replace(base, passage=passage, domain_in_passage=self.training_set.domain_in_front)

    def starting_encoder(self, index: Index) -> str:
        """The encoder to start from."""
        if self.encoder is not None:
            return self.encoder
        return index.dense_settings().encoder if UNTRAINED in index.manifest.retrievers else "builtin"


@dataclass(frozen=True, slots=True)
class RetrieverReport:
    """What came of a plan."""

    name: str
    generation: int | None
    """The index's new generation; None in processes other than the first."""
    result: DprResult
    rounds: list[dict[str, Any]]
    """The table of rounds, where there were any."""
    card: dict[str, Any]
    """The training set's data card; empty for a set from elsewhere."""
    seconds: dict[str, float]
    """Of this call: building the set, training, encoding."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "retriever": self.name,
            "generation": self.generation,
            **self.result.to_dict(),
            "rounds": self.rounds,
            "training_set": self.card,
            "timings_s": self.seconds,
        }


def train_retriever(
    folder: Path,
    plan: RetrieverPlan,
    *,
    accept_worse: bool = False,
    on_progress: Progress = no_progress,
    on_measurement: Callable[[dict[str, Any]], None] = no_measurement,
) -> RetrieverReport:
    """Train a retriever and put it into the index; goes on where a killed call was.

    Args:
        folder: an index.
        plan: what to train.
        accept_worse: switch over also where the dev slice speaks against the trained encoder.
        on_progress: called as the work goes on.
        on_measurement: called with each measurement on the dev slice.

    Raises:
        TrainingError: training failed, or the result is no better than the untrained encoder.
        DataError: a training set that cannot be used, or one that holds texts of the test split.
        IndexLockedError: another process trains the same retriever, or writes to the index.
    """
    with Index.open(folder) as index:
        work = _Work(index, plan, on_progress, on_measurement)
        if not work.processes.first:
            return work.report(work.train(), None)
        work.folder.mkdir(parents=True, exist_ok=True)
        with writer_lock(work.folder):
            work.prepare()
            result = work.train()
            if not result.is_gain and not accept_worse:
                raise TrainingError(
                    f"{'; '.join(result.warnings)}. The index was not changed; --accept-worse switches over "
                    "all the same"
                )
            generation = work.switch(result)
            report = work.report(result, generation)
        delete_folder(work.folder)
        return report


class _Work:
    """A plan being carried out."""

    def __init__(
        self,
        index: Index,
        plan: RetrieverPlan,
        on_progress: Progress,
        on_measurement: Callable[[dict[str, Any]], None],
    ) -> None:
        self._index = index
        self._plan = plan
        self._on_progress = on_progress
        self._on_measurement = on_measurement
        self._dense = plan.dense_settings(index)
        self._encoder = plan.starting_encoder(index)
        self._seconds = dict.fromkeys(("training set", "training", "encoding"), 0.0)
        self._rounds: Rounds | None = None
        self._guard_encoder: Encoder | None = None
        self.processes = Processes()
        self.folder = index.folder / MODELS / f".train-{plan.name}"

    def prepare(self) -> None:
        """Keep what belongs to this plan and these documents; remove what another one left."""
        plan = {
            "documents": self._index.contents.fingerprint(),
            "encoder": self._encoder,
            "training": self._plan.training.to_dict(),
            "training_set": self._plan.training_set.to_dict(),
            "dpr_json": None if self._plan.dpr_json is None else str(self._plan.dpr_json.resolve()),
            "rounds": self._plan.rounds,
            "limit": self._plan.limit,
        }
        path = self.folder / _PLAN_FILE
        if path.is_file() and json.loads(path.read_text(encoding="utf-8")) == plan:
            return
        for leftover in self.folder.iterdir():
            if leftover.name != "lock":
                delete_folder(leftover) if leftover.is_dir() else leftover.unlink()
        write_json_atomic(path, plan)

    def train(self) -> DprResult:
        """The trained encoder, in rounds where the plan has them."""
        if self._plan.training_set.first_layer == "none" and self._plan.dpr_json is None:
            self._rounds = train_rounds(self._mine, self._train_round, self._plan.training, self._plan.rounds)
            return self._rounds.kept
        return self._train_round(0, self._mine(0, None), self._plan.training, None)

    def switch(self, result: DprResult) -> int:
        """Encode every document anew and make a generation of it; returns its number."""
        started = time.monotonic()
        training = self._plan.training
        info = {
            "trained_from": self._encoder,
            "first_layer": self._plan.training_set.first_layer,
            "domain_in_question": training.domain_in_question,
            **result.to_dict(),
        }
        generation = add_retriever(
            self._index.folder,
            self._plan.name,
            self._dense,
            resumable(self._load(result.folder), self.folder / "vectors"),
            info=info,
            model_folder=result.folder,
            on_progress=self._on_progress,
        )
        self._seconds["encoding"] += time.monotonic() - started
        return generation

    def report(self, result: DprResult, generation: int | None) -> RetrieverReport:
        """Everything there is to say."""
        path = self._file("card", 0)
        return RetrieverReport(
            self._plan.name,
            generation,
            result,
            [] if self._rounds is None else self._rounds.table(),
            json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {},
            {name: round(seconds, 1) for name, seconds in self._seconds.items()},
        )

    def _train_round(
        self, number: int, instances: Sequence[DprInstance], settings: DprSettings, encoder: str | None
    ) -> DprResult:
        started = time.monotonic()
        result = train_dpr(
            instances,
            self.folder / f"round-{number}",
            settings,
            encoder=encoder or self._encoder,
            first_layer=(self._index.settings.segmenter, self._index.settings.bm25),
            on_progress=self._on_progress,
            on_measurement=self._on_measurement,
        )
        self._seconds["training"] += time.monotonic() - started
        return result

    def _mine(self, number: int, model: Path | None) -> list[DprInstance]:
        """The training set of a round; built once and kept, also over a kill."""
        started = time.monotonic()
        path = self._file("set", number)
        if self.processes.first and not path.is_file():
            instances, card = self._read() if self._plan.dpr_json is not None else self._build(model)
            check_leakage(
                instances,
                (example.query.text for example in self._index.examples),
                (answer for example in self._index.examples for answer in example.references),
            )
            write_json_atomic(self._file("card", number), card)
            write_dpr_json(path, instances)
        self.processes.wait()
        self._seconds["training set"] += time.monotonic() - started
        return list(read_dpr_json(path))

    def _read(self) -> tuple[list[DprInstance], dict[str, Any]]:
        assert self._plan.dpr_json is not None  # the caller looked
        return self._draw(list(read_dpr_json(self._plan.dpr_json))), {}

    def _build(self, model: Path | None) -> tuple[list[DprInstance], dict[str, Any]]:
        questions = self._draw(list(self._index.all_documents()))
        if self._guard_encoder is None:
            self._guard_encoder = MemoEncoder(make_encoder(self._encoder))  # each answer once over all rounds
        with TemporaryDirectory(dir=self.folder) as folder:
            made = build_training_set(
                self._index,
                questions,
                self._plan.training_set,
                encoder=self._guard_encoder,
                rank=None if model is None else self._rank(model, Path(folder)),
                workers=os.cpu_count() or 1,
                on_progress=self._on_progress,
            )
        return list(made.instances), made.card

    def _load(self, model: Path) -> Encoder:
        """A trained encoder, in the precision that the index's documents are encoded in."""
        return make_encoder(str(model), precision=self._dense.encoder_precision)

    def _rank(self, model: Path, folder: Path) -> Rank:
        """The ranking that a trained encoder gives over the index."""
        encoder = self._load(model)
        dense = encode_apart(self._index, self._dense, encoder, folder, self._on_progress)
        with_domain = self._plan.training.domain_in_question

        def rank(queries: Sequence[Query], k: int) -> list[list[Hit]]:
            texts = [(",".join(query.domain) if with_domain else "") + query.text for query in queries]
            return dense.search(encoder.encode_queries(texts), k)

        return rank

    def _draw(self, rows: list[Row]) -> list[Row]:
        """As many at random as the plan wants, in their order."""
        limit = self._plan.limit
        if limit is None or limit >= len(rows):
            return rows
        chosen = random.Random(self._plan.training.seed).sample(range(len(rows)), limit)
        return [rows[i] for i in sorted(chosen)]

    def _file(self, what: str, number: int) -> Path:
        return self.folder / f"{what}-{number}.{'jsonl' if what == 'set' else 'json'}"
