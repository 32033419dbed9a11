"""Options that several commands share, and how they become settings."""

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from dmnrag.errors import ConfigError
from dmnrag.types import LAYERS, GenerationSettings, Layer

IndexFolder = Annotated[Path, typer.Argument(help="Index folder made by `dmnrag index`.", metavar="DIR")]
Question = Annotated[str, typer.Argument(help="The question.", metavar="QUESTION")]
DomainOption = Annotated[
    str | None,
    typer.Option(
        "--domain",
        help="Domain labels, general to specific: 内科,心血管内科. 'auto': infer it; 'none': no domain.",
    ),
]
AskedDomain = Annotated[
    str,
    typer.Option(
        "--domain",
        help="Domain labels, general to specific: 内科,心血管内科. 'auto': infer it, and do without where none is "
        "probable enough; 'none': no domain.",
    ),
]
AllowUnknown = Annotated[
    bool, typer.Option("--allow-unknown-domain", help="Take a domain that no document carries as it is.")
]
LayerOption = Annotated[
    str,
    typer.Option(
        "--layer",
        help=f"How the layers combine: {', '.join(LAYERS)}. Default: hybrid where the index has vectors, else sparse.",
        show_default=False,
    ),
]
K = Annotated[int, typer.Option("-k", help="Documents to retrieve.")]
AnswerK = Annotated[
    int | None,
    typer.Option("-k", help="Documents to retrieve. Default: the adapter's, else 3.", show_default=False),
]
Candidates = Annotated[int, typer.Option(help="Documents that the first layer hands to cascade, hybrid and reranker.")]
DomainFilter = Annotated[bool, typer.Option("--domain-filter", help="Only documents of the question's domain.")]
DomainWeight = Annotated[float, typer.Option(help="Weight of the domain's terms in joint retrieval; 0 = off.")]
RetrieverOption = Annotated[
    str | None,
    typer.Option(
        help="Second layer by name (dmnrag info lists them). Default: the one trained for the first layer, else base.",
        show_default=False,
    ),
]
RerankOption = Annotated[str | None, typer.Option("--rerank", help="Cross-encoder, a name or folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
AnswerAnyway = Annotated[
    bool,
    typer.Option(
        "--answer-anyway",
        "--no-refusal",
        help="Ask the LLM even where the evidence is judged too weak (see `dmnrag calibrate`).",
    ),
]
LlmOption = Annotated[
    str | None,
    typer.Option(
        "--llm",
        help="builtin, openai:MODEL@http://HOST:PORT/v1, a transformers name or folder, fake. A local one may name its "
        "precision: builtin:int8.",
    ),
]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="no-Dmn, Dmn, ques-front, ques-rear, Dmn-ques-front or Dmn-ques-rear. "
        "Default: Dmn-ques-front where a domain is known, else no-Dmn.",
        show_default=False,
    ),
]
TemplateOption = Annotated[
    str | None,
    typer.Option("--template", help="paper, cited, base, or a file. Default: base for the built-in LLM, else cited."),
]
AdapterOption = Annotated[
    Path | None,
    typer.Option(
        "--adapter",
        help="LoRA adapter made by `dmnrag finetune` on this LLM; brings its method and template.",
        show_default=False,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(help="Longest answer, in the model's tokens. Default: the adapter's, else 256.", show_default=False),
]
Temperature = Annotated[float | None, typer.Option(help="0 = greedy. Default: the model's own.", show_default=False)]
TopK = Annotated[int | None, typer.Option(help="Sample among the k likeliest tokens.", show_default=False)]
TopP = Annotated[float | None, typer.Option(help="Sample among tokens of this total probability.", show_default=False)]
RepetitionPenalty = Annotated[float | None, typer.Option(help="Above 1 discourages repeats.", show_default=False)]
Stop = Annotated[list[str] | None, typer.Option("--stop", help="End the answer before this text; may be repeated.")]
Seed = Annotated[int | None, typer.Option(help="Seed of sampling.", show_default=False)]


def parse_layer(name: str) -> Layer | None:
    """A layer's name; None for the empty default."""
    if not name:
        return None
    if name.lower() not in get_args(Layer):
        raise ConfigError(f"--layer {name!r}: allowed are {', '.join(LAYERS)}")
    return cast(Layer, name.lower())


def split_columns(text: str | None) -> tuple[str, ...]:
    """Column names from `title,ask`."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def generation_settings(
    max_tokens: int,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    repetition_penalty: float | None,
    stop: list[str] | None,
    seed: int | None,
) -> GenerationSettings:
    """Decoding parameters from the options."""
    return GenerationSettings(max_tokens, temperature, top_k, top_p, repetition_penalty, tuple(stop or ()), seed)
