"""The LLMs of an experiment: what tells one from another, how they are opened, and the adapters that are trained.

An answer is kept under what was asked of whom. A name is no identity for a folder of weights, so local models are
told apart by their files; servers can only be told apart by their address.
"""

import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from dmnrag.errors import ConfigError
from dmnrag.experiments.matrix.corpora import digest
from dmnrag.experiments.matrix.spec import LlmSpec
from dmnrag.experiments.matrix.spec_files import LoadedSpec
from dmnrag.experiments.records import Cell
from dmnrag.index.build import Progress
from dmnrag.index.models import MODELS
from dmnrag.llm import make_generator
from dmnrag.llm.adapters import WEIGHTS_FILE, template_values
from dmnrag.llm.builtin import SHA256 as BUILTIN_SHA256
from dmnrag.methods import find_method
from dmnrag.prompts import Template, load_template
from dmnrag.protocols import Generator
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.training.lora_finetune import FinetunePlan, finetune

OpenLlm = Callable[[LlmSpec, Path | None], Generator]
"""Opens an LLM, with an adapter where one is given. Tests bring their own."""

_HASHED = 1 << 16
"""Bytes read at the beginning and the end of each file: training changes weights everywhere."""
_MODEL_FILES = (".json", ".safetensors", ".jinja", ".model", ".txt")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


def make_opener(loaded: LoadedSpec) -> OpenLlm:
    """Opens the LLMs of a spec as it says."""

    def open_llm(llm: LlmSpec, adapter: Path | None) -> Generator:
        return make_generator(
            model_name(loaded, llm),
            adapter=adapter,
            device=llm.device,
            dtype=llm.precision,
            batch_size=llm.at_once,
            timeout_s=llm.timeout_s,
            retries=llm.retries,
            api_key_env=llm.api_key_env,
        )

    return open_llm


def model_name(loaded: LoadedSpec, llm: LlmSpec) -> str:
    """What is opened, without its precision: a folder beside the spec as its path, any other name as it is."""
    if llm.is_server:
        return llm.base
    folder = loaded.path(llm.base)
    return str(folder) if folder.is_dir() else llm.base


def llm_identity(loaded: LoadedSpec, llm: LlmSpec) -> str:
    """What answers of this LLM are kept under."""
    name = model_name(loaded, llm)
    if name == "builtin":
        name = f"builtin {BUILTIN_SHA256}"
    elif not llm.is_server and Path(name).is_dir():
        name = f"files {_hash_files(Path(name))}"
    return name if llm.precision is None else f"{name} {llm.precision}"


def template_of(loaded: LoadedSpec, llm: LlmSpec) -> Template:
    """The template that an LLM's prompts are written with."""
    name = llm.template or loaded.spec.template
    path = loaded.path(name)
    return load_template(path if path.is_file() else name)


def adapter_folder(loaded: LoadedSpec, index: Path, cell: Cell, llm_identity: str) -> Path:
    """Where a cell's adapter is, or will be: beside the index's other models, named by all that it is trained with."""
    plan = _plan(loaded, cell)
    assert plan.template is not None  # as the plan is made
    what: list[Any] = [llm_identity, cell.method, template_values(plan.template), plan.training.to_dict()]
    what += [cell.layer, cell.k, cell.retriever, cell.candidates, cell.domain_filter, cell.domain_weight, plan.limit]
    name = _UNSAFE.sub("-", f"{cell.llm}-{cell.method}")
    return index / MODELS / f"lora-{name[:40]}-{digest(what)[:8]}"


def adapter_identity(adapter: Path | None) -> str:
    """What tells an adapter from others; empty for none."""
    if adapter is None:
        return ""
    path = adapter / WEIGHTS_FILE
    if not path.is_file():
        return "missing"
    return _hash_file(path, path.stat().st_mtime_ns)


@cache
def _hash_file(path: Path, _changed_ns: int) -> str:
    """Asked for every cell; adapters of large models have some 100 MB."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def train_adapter(loaded: LoadedSpec, index: Path, cell: Cell, target: Path, on_progress: Progress) -> None:
    """Train a cell's adapter, unless it is there; goes on where a killed call was.

    Raises:
        TrainingError: training failed.
        DataError: a training set that nothing good can be learnt from.
    """
    finetune(index, _plan(loaded, cell), target, on_progress=on_progress)


def _plan(loaded: LoadedSpec, cell: Cell) -> FinetunePlan:
    assert cell.llm is not None  # LoRA cells have both
    assert cell.layer is not None
    llm = loaded.spec.llm_named(cell.llm)
    if not cell.domain_in_document:
        raise ConfigError("generation lora goes with domain_in_document = true: adapters are trained with it")
    return FinetunePlan(
        llm=model_name(loaded, llm),
        method=find_method(cell.method),
        template=template_of(loaded, llm),
        retrieval=RetrievalSettings(
            k=cell.k,
            layer=cell.layer,
            domain_filter=cell.domain_filter,
            retriever=cell.retriever,
            candidates=cell.candidates,
        ),
        domain_weight=cell.domain_weight,
        training=loaded.spec.training.lora,
        limit=loaded.spec.training.limit,
        device=llm.device,
    )


def _hash_files(folder: Path) -> str:
    """Over names, sizes and ends of the files that make a model."""
    found: list[Any] = []
    for path in sorted(p for p in folder.iterdir() if p.suffix in _MODEL_FILES):
        size = path.stat().st_size
        with path.open("rb") as file:
            part = file.read(_HASHED)
            file.seek(max(0, size - _HASHED))
            part += file.read(_HASHED)
        found.append([path.name, size, hashlib.sha256(part).hexdigest()])
    return digest(found)
