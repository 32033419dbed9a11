"""LoRA adapters on local models: what an adapter was trained for, and how it is put onto its base model.

An adapter folder has peft's layout (adapter_config.json, adapter_model.safetensors) and `dmnrag.json`, the record: base
model, method, template, retrieval, limits, data card. An adapter used in another way than it was trained answers
badly without a word, so differences are errors that name them. An adapter from elsewhere has no record; only its
shapes can be checked.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from dmnrag._optional import require
from dmnrag.errors import ConfigError
from dmnrag.llm.base_model import BaseModel, describe_base, open_local
from dmnrag.llm.int8 import round_linear_layers
from dmnrag.llm.loading import check_int8_device
from dmnrag.llm.transformers_lm import TransformersGenerator
from dmnrag.prompts import Template

CONFIG_FILE, WEIGHTS_FILE, RECORD_FILE = "adapter_config.json", "adapter_model.safetensors", "dmnrag.json"

_FORMAT = 1
_TEMPLATE_KEYS = tuple(item.name for item in fields(Template) if item.init)
_WORDLESS = frozenset({"name", "description"})
"""Keys of a template that change no prompt."""


@dataclass(frozen=True, slots=True)
class AdapterRecord:
    """What an adapter was trained for."""

    base: BaseModel
    method: str
    template: Template
    retrieval: dict[str, Any]
    """Layer, k and the rest, as the training prompts were retrieved."""
    max_length: int
    """Tokens of prompt and answer together; prompts were cut to fit, and are cut so when it is used."""
    answer_tokens: int
    """The share of `max_length` that was kept for the answer."""
    training: dict[str, Any]
    """Settings, layers, figures and versions; JSON-ready."""
    card: dict[str, Any]
    """The data card of the training set; JSON-ready."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "format": _FORMAT,
            "base": asdict(self.base),
            "method": self.method,
            "template": template_values(self.template),
            "retrieval": self.retrieval,
            "max_length": self.max_length,
            "answer_tokens": self.answer_tokens,
            "training": self.training,
            "card": self.card,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AdapterRecord":
        """What `to_dict` gave.

        Raises:
            ConfigError: written by another format.
        """
        if values["format"] != _FORMAT:
            raise ConfigError(f"the adapter's record has format {values['format']!r}, and this release reads {_FORMAT}")
        return cls(
            base=BaseModel(**values["base"]),
            method=values["method"],
            template=_template(values["template"]),
            **{key: values[key] for key in ("retrieval", "max_length", "answer_tokens", "training", "card")},
        )


def template_values(template: Template) -> dict[str, Any]:
    """The keys of a template's file."""
    values = {key: getattr(template, key) for key in _TEMPLATE_KEYS}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _template(values: dict[str, Any]) -> Template:
    arguments: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return Template(**arguments)


def read_record(folder: Path) -> AdapterRecord | None:
    """The record in an adapter folder; None where it was trained elsewhere.

    Raises:
        ConfigError: not an adapter folder, or a record that cannot be read.
    """
    _read_config(folder)
    path = folder / RECORD_FILE
    if not path.is_file():
        return None
    try:
        return AdapterRecord.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be used ({error}): train the adapter again") from error


def check_method(record: AdapterRecord, method: str) -> None:
    """Refuse another method than the adapter's.

    Raises:
        ConfigError: names both.
    """
    if method != record.method:
        raise ConfigError(
            f"the adapter was trained with method {record.method} and is asked with {method}: use --method "
            f"{record.method}, or train one with `dmnrag finetune --method {method}`"
        )


def check_template(record: AdapterRecord, template: Template) -> None:
    """Refuse a template that writes other prompts than the adapter's.

    Raises:
        ConfigError: names the keys that differ.
    """
    trained, given = template_values(record.template), template_values(template)
    keys = [key for key in _TEMPLATE_KEYS if key not in _WORDLESS and trained[key] != given[key]]
    if keys:
        raise ConfigError(
            f"the adapter was trained with template {record.template.name!r} and is asked with {template.name!r}, "
            f"which differs in {', '.join(keys)}: leave --template out, or train one with --template {template.name}"
        )


def template_with(record: AdapterRecord | None, given: Template | None) -> Template | None:
    """The template that goes with an adapter, its own; the given one where there is no adapter that tells.

    Raises:
        ConfigError: another one is given.
    """
    if record is None:
        return given
    if given is not None:
        check_template(record, given)
    return record.template


def check_base(record: AdapterRecord, found: BaseModel) -> None:
    """Refuse another base model than the adapter's; its name and place do not matter.

    Raises:
        ConfigError: names what differs.
    """
    trained = record.base
    differing = [
        f"{what} ({before} and {now})"
        for what, before, now in (
            ("model_type", trained.model_type, found.model_type),
            ("weights", trained.weights[:12], found.weights[:12]),
            ("tokenizer or chat template", trained.tokenizer[:12], found.tokenizer[:12]),
        )
        if before != now
    ]
    if differing:
        raise ConfigError(
            f"the adapter was trained on {trained.name} and is put onto {found.name}, which has another "
            f"{', '.join(differing)}: name the base model that it was trained on, or train one on {found.name}"
        )


def open_adapted(
    spec: str, adapter: Path, *, name: str | None = None, batch_size: int = 8, **loading: Any
) -> TransformersGenerator:
    """A local model with an adapter as a generator named `SPEC+ADAPTER`.

    In int8 the update is added to the weights first, and the sum is rounded.

    Args:
        spec: of the base model: `builtin`, a folder or a hub name.
        adapter: the adapter's folder.
        name: to call the base model by; None is `spec`.
        batch_size: prompts generated together.
        loading: device, dtype and progress, as for `open_local`.

    Raises:
        ConfigError: no such model or adapter, or the adapter belongs to another base model.
        MissingDependencyError: peft is not installed.
    """
    record = read_record(adapter)
    in_int8 = loading.get("dtype") == "int8"
    if in_int8:
        check_int8_device(loading.get("device") or "cpu")
        loading |= {"device": "cpu", "dtype": "float32"}
    local = open_local(spec, **loading)
    if record is not None:
        check_base(record, describe_base(local))
    model = attach_adapter(local.model, adapter)
    if in_int8:
        model = round_linear_layers(model.merge_and_unload(safe_merge=True), spec)
    return TransformersGenerator(
        model,
        local.tokenizer,
        name=f"{name or spec}+{adapter.resolve().name}",
        batch_size=batch_size,
        context_tokens=None if record is None else record.max_length,
    )


def attach_adapter(model: Any, adapter: Path) -> Any:
    """The model with the adapter's weights beside its own, in eval mode.

    Raises:
        ConfigError: the adapter is no LoRA, is damaged, or does not fit the model.
    """
    _read_config(adapter)
    peft = require("peft", "lora")
    damaged = require("safetensors", "lora").SafetensorError
    try:
        with quiet_peft():
            adapted = peft.PeftModel.from_pretrained(model, str(adapter))
        with require("safetensors", "lora").safe_open(str(adapter / WEIGHTS_FILE), framework="pt") as file:
            stored = set(file.keys())
    except (ValueError, RuntimeError, KeyError, OSError, TypeError, damaged) as error:
        raise ConfigError(f"adapter {adapter} cannot be put onto the model: {_first_line(error)}") from error
    needed = set(peft.get_peft_model_state_dict(adapted, save_embedding_layers=False))
    if stored != needed:
        raise ConfigError(
            f"adapter {adapter} does not fit the model: {len(needed - stored)} tensors are missing and "
            f"{len(stored - needed)} are unknown ({', '.join(sorted(stored ^ needed)[:2])})"
        )
    return adapted.eval()


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Without warnings of old names that peft uses, and of tensors that are missing: those become an error here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*gradient_checkpointing.* is deprecated", FutureWarning)
        warnings.filterwarnings("ignore", "Found missing adapter keys", UserWarning)
        yield


def _read_config(folder: Path) -> None:
    """Refuse what is no LoRA adapter in safetensors; a pickle beside it is never read."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise ConfigError(f"{folder} is not an adapter folder: it has no {CONFIG_FILE}")
    if not (folder / WEIGHTS_FILE).is_file():
        raise ConfigError(f"{folder} has no {WEIGHTS_FILE}: adapters in other files are not read, convert it first")
    try:
        kind = json.loads(path.read_text(encoding="utf-8")).get("peft_type")
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{path} is not an adapter's configuration ({error})") from error
    if kind != "LORA":
        raise ConfigError(f"{folder} holds an adapter of type {kind!r}: only LORA is supported")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
