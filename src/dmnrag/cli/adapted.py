"""An LLM with or without an adapter, as `ask` and `evaluate` take it."""

from pathlib import Path

from dmnrag.cli.console import talk
from dmnrag.llm import make_generator
from dmnrag.llm.adapters import AdapterRecord, read_record, template_with
from dmnrag.llm.speed import Metered, tokens_per_second
from dmnrag.methods import Method
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


def pipeline_with(
    searcher: Pipeline, llm: str, template: str | None, adapter: Path | None, record: AdapterRecord | None
) -> Pipeline:
    """The pipeline with its LLM; with an adapter the template is the adapter's.

    Raises:
        ConfigError: another template is given, or the adapter belongs to another base model.
    """
    chosen = template_with(record, None if template is None else load_template(template))
    return searcher.with_llm(Metered(make_generator(llm, adapter=adapter)), chosen, record)


def tell_differences(record: AdapterRecord | None, pipeline: Pipeline, method: Method, settings: AskSettings) -> None:
    """Say where documents are found otherwise than in training: no error, as a better search is worth a try."""
    if record is None:
        return
    now = describe_retrieval(pipeline, method, settings) | {"max_tokens": settings.generation.max_tokens}
    trained = record.retrieval | {"max_tokens": record.answer_tokens}
    differing = [f"{name} {now[name]} ({trained.get(name)})" for name in now if now[name] != trained.get(name)]
    if differing:
        talk(f"warning: not as the adapter was trained (in brackets): {', '.join(differing)}")


def tell_speed(pipeline: Pipeline) -> None:
    """Say how fast the LLM of `pipeline_with` wrote."""
    llm = pipeline.generator
    if isinstance(llm, Metered) and (rate := tokens_per_second(llm.completion_tokens, llm.seconds)) is not None:
        talk(f"LLM {llm.name}: {llm.completion_tokens:,} tokens in {llm.seconds:,.1f} s, {rate:.1f}/s")
