"""An LLM with or without an adapter, as `ask` and `evaluate` take it."""

from pathlib import Path

from dmnrag.cli.console import talk
from dmnrag.llm import make_generator
from dmnrag.llm.adapters import AdapterRecord, check_method, check_template, read_record
from dmnrag.methods import Method, find_method
from dmnrag.pipeline import AskSettings, Pipeline
from dmnrag.prompts import load_template
from dmnrag.training.lora_finetune import describe_retrieval

DEFAULT_K, DEFAULT_MAX_TOKENS = 3, 256
"""The paper's value, and a few sentences."""


def open_record(adapter: Path | None) -> AdapterRecord | None:
    """What an adapter was trained for; says so where an adapter does not tell."""
    if adapter is None:
        return None
    record = read_record(adapter)
    if record is None:
        talk(f"warning: {adapter} was not trained by dmnrag finetune, so its method, template and base are not checked")
    return record


def answering_defaults(
    record: AdapterRecord | None, layer: str, k: int | None, max_tokens: int | None
) -> tuple[str, int, int]:
    """(layer, k, max_tokens) as given, else as the adapter was trained, else as usual; no layer is the index's own."""
    if record is None:
        return layer, DEFAULT_K if k is None else k, DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    trained = record.retrieval
    return (
        layer or str(trained["layer"]),
        int(trained["k"]) if k is None else k,
        record.answer_tokens if max_tokens is None else max_tokens,
    )


def method_with(record: AdapterRecord | None, name: str | None) -> str | None:
    """The method by name: the adapter's own, also where none is given.

    Raises:
        ConfigError: another one is given.
    """
    if record is None:
        return name
    if name is not None:
        check_method(record, find_method(name).name)
    return record.method


def pipeline_with(
    searcher: Pipeline, llm: str, template: str | None, adapter: Path | None, record: AdapterRecord | None
) -> Pipeline:
    """The pipeline with its LLM; with an adapter the template is the adapter's.

    Raises:
        ConfigError: another template is given, or the adapter belongs to another base model.
    """
    given = None if template is None else load_template(template)
    if record is not None and given is not None:
        check_template(record, given)
    return searcher.with_llm(make_generator(llm, adapter=adapter), given if record is None else record.template)


def tell_differences(record: AdapterRecord | None, pipeline: Pipeline, method: Method, settings: AskSettings) -> None:
    """Say where documents are found otherwise than in training: no error, as a better search is worth a try."""
    if record is None:
        return
    now = describe_retrieval(pipeline, method, settings) | {"max_tokens": settings.generation.max_tokens}
    trained = record.retrieval | {"max_tokens": record.answer_tokens}
    differing = [f"{name} {now[name]} ({trained.get(name)})" for name in now if now[name] != trained.get(name)]
    if differing:
        talk(f"warning: not as the adapter was trained (in brackets): {', '.join(differing)}")
