"""From an index and a local LLM to an adapter folder: build the set, train, check, put it in place.

The adapter goes to `INDEX/models/lora-NAME`, or where the caller says. The work is kept beside it in `.train-lora-NAME`
until it is there: killed at any point, the same call goes on. A call with another plan, or after the documents
changed, begins anew. An adapter that is there is never replaced.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dmnrag._io import delete_folder, fsync_path, read_jsonl, rename, write_json_atomic, write_jsonl_atomic, writer_lock
from dmnrag._optional import require
from dmnrag.data import find_leakage
from dmnrag.errors import ConfigError
from dmnrag.index import Index
from dmnrag.llm.adapters import RECORD_FILE, AdapterRecord, read_record, template_values
from dmnrag.llm.base_model import LocalModel, describe_base, open_local
from dmnrag.llm.transformers_lm import TransformersGenerator
from dmnrag.methods import BASELINE, DEFAULT, Method, find_method
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.prompts import Template
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.training.lora import LoraRows, Progress, train_lora
from dmnrag.training.lora_doctor import check_card, check_prompts, check_split
from dmnrag.training.lora_examples import LoraExample, LoraSet, SetPlan, build_lora_set
from dmnrag.training.lora_model import LoraModel, precision_of
from dmnrag.training.lora_result import LoraResult
from dmnrag.training.lora_rows import encode_rows
from dmnrag.training.lora_settings import LoraSettings
from dmnrag.training.lora_targets import choose_targets
from dmnrag.types import GenerationSettings, Hit, Prompt, Query

_PLAN_FILE, _CARD_FILE = "plan.json", "card.json"
_PARTS = ("train", "dev", "shuffled")

_CHECKED = 50
"""Prompts that are made once more, as inference would make them."""

_LIBRARIES = ("dmnrag", "torch", "transformers", "peft", "safetensors", "numpy")


@dataclass(frozen=True, slots=True)
class FinetunePlan:
    """What adapter to train, and from what."""

    llm: str
    """The base model: `builtin`, a folder or a hub name."""
    method: Method | None = None
    """None: the one that `ask` takes where it knows a domain, else the baseline."""
    template: Template | None = None
    """None: the one that suits the LLM."""
    retrieval: RetrievalSettings = field(default_factory=RetrievalSettings)
    """How documents are found; how the domain acts is taken from the method."""
    domain_weight: float = 1.0
    """Weight of the domain's terms in joint retrieval."""
    training: LoraSettings = field(default_factory=LoraSettings)
    """How to train."""
    limit: int | None = None
    """Train on so many questions only, drawn at random."""
    device: str | None = None
    """None takes a GPU where there is one."""

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 2:
            raise ConfigError(f"limit is {self.limit}: allowed are whole numbers from 2")

    @property
    def ask(self) -> AskSettings:
        """How the adapter's prompts are asked for."""
        generation = GenerationSettings(max_tokens=self.training.answer_tokens)
        return AskSettings(self.retrieval, generation, self.domain_weight)


@dataclass(frozen=True, slots=True)
class FinetuneReport:
    """What came of a plan."""

    folder: Path
    """The adapter."""
    record: AdapterRecord
    result: LoraResult

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "adapter": str(self.folder),
            "base": self.record.base.name,
            "method": self.record.method,
            "template": self.record.template.name,
            "retrieval": self.record.retrieval,
            "card": self.record.card,
            **self.result.to_dict(),
        }


def finetune(
    folder: Path,
    plan: FinetunePlan,
    target: Path,
    *,
    on_progress: Progress = lambda _stage, _done, _total: None,
    on_measurement: Callable[[dict[str, Any]], None] = lambda _entry: None,
) -> FinetuneReport:
    """Train an adapter; goes on where a killed call was, and returns what is there where it was done.

    Args:
        folder: an index.
        plan: what to train.
        target: the adapter's folder, such as `INDEX/models/lora-NAME`.
        on_progress: called as the work goes on.
        on_measurement: called with each measurement on the dev slice.

    Raises:
        ConfigError: a plan that cannot be carried out, or `target` holds something else.
        DataError: a training set that nothing good can be learnt from.
        TrainingError: training failed.
        IndexLockedError: another process trains to the same folder.
    """
    require("peft", "lora")  # an error before the work, not behind it
    target = target.resolve()
    work = target.with_name(f".train-{target.name}")
    with Index.open(folder) as index:
        work.mkdir(parents=True, exist_ok=True)
        try:
            with writer_lock(work):
                device, dtype = precision_of(plan.training, plan.device)
                local = open_local(plan.llm, device=device, dtype=dtype, four_bit=plan.training.four_bit)
                job = _Job(index, plan, local, work)
                if not target.exists():
                    job.prepare()
                    job.train(on_progress, on_measurement)
                    rename(work / "adapter", target)
                return job.finished(target)
        finally:
            if target.exists() or not (work / _PLAN_FILE).is_file():  # nothing to go on from
                delete_folder(work)


class _Job:
    """A plan being carried out."""

    def __init__(self, index: Index, plan: FinetunePlan, local: LocalModel, work: Path) -> None:
        self._index = index
        self._plan = plan
        self._local = local
        self._work = work
        self._base = describe_base(local)
        self._pipeline = Pipeline(index, generator=_generator(local, plan.training.max_length), template=plan.template)
        choose_targets(local.model, plan.training.target_modules)  # likewise
        self._method = plan.method or (DEFAULT if index.domains else BASELINE)
        self._retrieval = describe_retrieval(self._pipeline, self._method, plan.ask)
        self._identity = {
            "documents": index.contents.fingerprint(),
            "weights": self._base.weights,
            "tokenizer": self._base.tokenizer,
            "method": self._method.name,
            "template": template_values(self._pipeline.template),
            "retrieval": self._retrieval,
            "training": plan.training.to_dict(),
            "limit": plan.limit,
        }

    def prepare(self) -> None:
        """Keep what belongs to this plan; remove what another one left."""
        path = self._work / _PLAN_FILE
        if path.is_file() and json.loads(path.read_text(encoding="utf-8")) == self._identity:
            return
        for leftover in self._work.iterdir():
            if leftover.name != "lock":
                delete_folder(leftover) if leftover.is_dir() else leftover.unlink()
        write_json_atomic(path, self._identity)

    def train(self, on_progress: Progress, on_measurement: Callable[[dict[str, Any]], None]) -> None:
        """Leave the adapter in the work folder, whole."""
        made = self._set(on_progress)
        warnings = check_card(made.card)
        generator = _generator(self._local, self._plan.training.max_length)
        end_id = generator.counter.end_token(generator.end_ids)
        rows = LoraRows(
            *(encode_rows(part, generator.counter, end_id, self._plan.training) for part in _parts_of(made))
        )
        model = LoraModel(self._local, self._plan.training)
        result = train_lora(
            model,
            rows,
            self._work,
            self._plan.training,
            on_progress=on_progress,
            on_measurement=on_measurement,
        )
        staging = self._work / "adapter"
        delete_folder(staging)
        staging.mkdir()
        model.save(staging)
        record = self._record(made.card, result, warnings)
        write_json_atomic(staging / RECORD_FILE, record.to_dict())
        self._check(staging, [*made.train, *made.dev])
        for path in sorted(staging.iterdir()):
            fsync_path(path)

    def finished(self, target: Path) -> FinetuneReport:
        """The report of the adapter at `target`.

        Raises:
            ConfigError: it is another plan's.
        """
        record = read_record(target)
        if record is None:
            raise ConfigError(f"{target} is there and was not trained here; it is not replaced: give another --name")
        trained = record.training["plan"]
        differing = [name for name, value in self._identity.items() if trained.get(name) != value]
        if differing:
            raise ConfigError(
                f"{target} is there and was trained otherwise ({', '.join(differing)}); it is not replaced: "
                "give another --name, or delete it"
            )
        return FinetuneReport(target, record, LoraResult.from_dict(record.training["result"]))

    def _set(self, on_progress: Progress) -> LoraSet:
        """The training set; built once and kept, also over a kill."""
        card_path = self._work / _CARD_FILE
        if not card_path.is_file():
            check_split(find_leakage(list(self._index.all_documents()), self._index.examples), str(self._index.folder))
            settings = self._plan.training
            wanted = SetPlan(self._method, self._plan.ask, settings.dev_questions, self._plan.limit, settings.seed)
            made = build_lora_set(self._pipeline, wanted, on_progress)
            for name, part in zip(_PARTS, _parts_of(made), strict=True):
                write_jsonl_atomic(self._work / f"{name}.jsonl", (example.to_dict() for example in part))
            write_json_atomic(card_path, made.card)
        train, dev, shuffled = (_read_examples(self._work / f"{name}.jsonl") for name in _PARTS)
        return LoraSet(train, dev, shuffled, json.loads(card_path.read_text(encoding="utf-8")))

    def _record(self, card: dict[str, Any], result: LoraResult, warnings: Iterable[str]) -> AdapterRecord:
        settings = self._plan.training
        training = {
            "plan": self._identity,
            "settings": settings.to_dict(),
            "device": str(self._local.model.device),
            "dtype": str(self._local.model.dtype),
            "library_versions": {name: version(name) for name in _LIBRARIES},
            "result": {**result.to_dict(), "warnings": [*warnings, *result.warnings]},
        }
        return AdapterRecord(
            base=self._base,
            method=self._method.name,
            template=self._pipeline.template,
            retrieval=self._retrieval,
            max_length=settings.max_length,
            answer_tokens=settings.answer_tokens,
            training=training,
            card=card,
        )

    def _check(self, adapter: Path, examples: list[LoraExample]) -> None:
        """Ask as `ask --adapter` would, from the record alone, and compare."""
        record = read_record(adapter)
        assert record is not None  # just written
        generator = _generator(self._local, record.max_length)
        pipeline = self._pipeline.with_llm(generator, record.template)
        method = find_method(record.method)
        settings = AskSettings(generation=GenerationSettings(max_tokens=record.answer_tokens))
        chosen = examples[:: max(1, len(examples) // _CHECKED)]
        check_prompts(
            [example.prompt for example in chosen],
            [_ask_again(pipeline, example, method, settings) for example in chosen],
            generator.counter,
        )


def describe_retrieval(pipeline: Pipeline, method: Method, settings: AskSettings) -> dict[str, Any]:
    """How a method's documents are found, in JSON: what an adapter's record and its user compare."""
    wanted = pipeline.retrieval_settings(method, settings)
    second = wanted.layer != "sparse"
    return {
        "layer": wanted.layer,
        "k": wanted.k,
        "retriever": (wanted.retriever or pipeline.retriever_name(wanted.use)) if second else None,
        "candidates": wanted.candidates,
        "domain_filter": wanted.domain_filter,
        "domain_weight": wanted.use.weight if method.joint else None,
        "rerank": wanted.rerank,
    }


def _ask_again(pipeline: Pipeline, example: LoraExample, method: Method, settings: AskSettings) -> Prompt:
    (document,) = pipeline.index.documents([example.doc_id])
    query = Query(document.doc_id, document.question, document.domain)
    hits = [Hit(excerpt.doc_id, 0.0, excerpt.number) for excerpt in example.prompt.excerpts]
    return pipeline.prompt(query, hits, method, settings)


def _generator(local: LocalModel, max_length: int) -> TransformersGenerator:
    return TransformersGenerator(local.model, local.tokenizer, name=local.name, context_tokens=max_length)


def _parts_of(made: LoraSet) -> tuple[list[LoraExample], list[LoraExample], list[LoraExample]]:
    return made.train, made.dev, made.shuffled


def _read_examples(path: Path) -> list[LoraExample]:
    return [LoraExample.from_dict(row) for row in read_jsonl(path)]
