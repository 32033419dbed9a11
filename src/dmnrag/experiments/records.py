"""What the files of a results folder hold, as frozen values with strict reading and writing.

Knows shapes, not places: `dmnrag.experiments.results` says which file is where. Unknown and missing keys are errors,
so that a folder of another release is never half understood.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from dmnrag.errors import DataError
from dmnrag.retrieval.layers import DomainKind
from dmnrag.types import Domain, FinishReason, GenerationSettings, Layer, Prompt, Usage

Generation = Literal["zero-shot", "lora"]
DomainSource = Literal["given", "none", "inferred", "wrong"]
"""Whose domain a cell works with: the question's own, none, a classifier's, or its own with a share of wrong ones."""
Control = Literal["closed-book", "gold", "random", "copy-first"]

METHODS_TABLE, ABLATIONS_TABLE = "methods", "ablations"
"""Tables 3 and 4 (one per LLM over all corpora), and 5 and 6, of the paper; controls stand in the first."""
TEMPERATURE_FIGURE, TOP_K_FIGURE = "temperature", "top_k"
"""Figures 2 and 3, and 4 and 5."""
NOISE_TABLE = "domain-noise"
"""The same methods with domains that are right, inferred, wrong for a share of the questions, or absent."""

_Value = TypeVar("_Value")
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the matrix: a way of answering, over the sampled questions of one corpus."""

    id: str
    """Name of its folder."""
    corpus: str
    row: str
    """The name shown: a method, an ablation (`ES+Dmn(ques-front)`) or a control (`closed-book`, `copy-first (Dmn)`)."""
    method: str
    """The paper's method that says how the domain acts; of a control, the one whose retrieval it uses."""
    layer: Layer | None
    """None where answers came from elsewhere."""
    retriever: str | None
    """Second layer by its name in the index; None for layer `sparse`."""
    llm: str | None
    """Name of the LLM in the spec; None where nothing is generated (copy-first)."""
    generation: Generation
    domain: DomainSource
    domain_noise: float
    """Share of the questions whose domain is wrong; above 0 exactly where `domain` is `wrong`."""
    k: int
    """Documents handed to the LLM."""
    parameters: GenerationSettings
    repeat: int
    """0, 1, ...: the same cell again with another seed of sampling."""
    control: Control | None
    domain_filter: bool = False
    """Hard domain: only documents of the question's domain."""
    domain_weight: float = 1.0
    """Of the domain's terms in joint retrieval."""
    domain_in_document: bool = True
    """Joint retrieval searches the documents' labels too."""
    candidates: int = 100
    """Depth of each layer for cascade and hybrid, and what a reranker reads."""
    reranker: str | None = None
    evidence: str | None = None
    """The file that the documents were brought in with instead of being retrieved, as the spec names it."""
    table: tuple[str, ...] = ()
    """Tables and figures that it belongs to: `METHODS_TABLE` and the others above."""
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True)
class CorpusCard:
    """What a corpus is."""

    name: str
    documents: int
    held_out: int
    """Questions held out."""
    sampled: int
    """Of these, how many are asked; `questions.jsonl` holds them."""
    unusable: int
    """Of these, how many hold no word or are far too long; never asked."""
    labels: tuple[tuple[Domain, int], ...]
    """Each domain of the index with its number of documents, most frequent first."""
    domain_kind: DomainKind
    generation: int
    """Of the index, when the questions were drawn."""
    fingerprint: str
    """sha256 over documents, held-out questions and the index's settings."""
    retrievers: tuple[str, ...]
    """Second layers that the cells use."""
    source: Mapping[str, Any]
    """Where the documents came from, as the index knows it."""
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The retrieval-only table: every system of the index on all held-out questions."""

    n: int
    clusters: tuple[str, ...]
    """Group of near-identical posts of each question."""
    values: Mapping[str, Mapping[str, tuple[float | None, ...]]]
    """system -> metric -> a value per question."""
    pairs: tuple[tuple[str, str], ...]
    """Systems to compare."""
    fingerprint: str
    """Of the corpus it was measured on."""
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True)
class EvidenceDocument:
    """A document as a method found it."""

    doc_id: str
    score: float
    domain: Domain
    question: str
    answers: tuple[str, ...]
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True)
class Evidence:
    """A row of the paper's knowledge-intensive data set: question, domain, documents best first."""

    query_id: str
    question: str
    domain: Domain
    """The one that the method worked with, right or not."""
    documents: tuple[EvidenceDocument, ...]
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was asked and what came back."""

    query_id: str
    prompt: Prompt | None
    """None where nothing was generated, or no prompt could be written."""
    answer: str
    """Empty where there is an error."""
    finish_reason: FinishReason | None
    usage: Usage | None
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    """Why there is no answer."""
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True)
class CellMetrics:
    """The figures of a cell, a value per question."""

    n: int
    answered: int
    failed: int
    complete: bool
    """False where a question has no answer: means over the others are not the cell's."""
    values: Mapping[str, tuple[float | None, ...]]
    """metric -> a value per question in the order of `questions.jsonl`; None where there is no answer, or where the
    metric means nothing for it."""
    inputs: str
    """sha256 over everything that the answers depend on."""
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True)
class CellCost:
    """What a cell's answers cost. Answers that several cells share count for the first one that asked."""

    seconds: float
    """In the LLM, of its own answers; a batch's time is divided evenly."""
    prompt_tokens: int
    completion_tokens: int
    generated: int
    from_cache: int
    """Answers that another cell had asked for."""
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True)
class Cost:
    """What the whole experiment cost so far, over all its runs."""

    cells: Mapping[str, CellCost]
    steps: Mapping[str, float]
    """Seconds of what is done once for many cells: building, training, ranking."""
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


def to_json(value: Any) -> dict[str, Any]:
    """JSON-ready form of one of the values above."""
    row: dict[str, Any] = asdict(value)
    return row


def from_json(kind: type[_Value], content: str | bytes, where: str) -> _Value:
    """The value that `to_json` described.

    Raises:
        DataError: not JSON, a key missing or unknown, or a value of the wrong kind; begins with `where`.
    """
    try:
        return _adapter(kind).validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise DataError(
            f"{where}: {f'{key}: ' if key else ''}{first['msg']}; it is not a {kind.__name__} of this release: "
            "restore the file, or delete its cell's folder and run the experiment again"
        ) from error


def _adapter(kind: type[_Value]) -> TypeAdapter[_Value]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
"""Each takes some milliseconds to make."""


def read_value(kind: type[_Value], path: Path) -> _Value:
    """The one value in a JSON file.

    Raises:
        DataError: the file is missing, or as `from_json`.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}): is this a results folder, and did its experiment get so far?"
        ) from error
    return from_json(kind, content, str(path))


def read_values(kind: type[_Value], path: Path) -> Iterator[_Value]:
    """The values in a JSON-lines file. A last line without its end is passed over: a write was cut off there.

    Raises:
        DataError: the file is missing, or as `from_json`; names the line.
    """
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.endswith(b"\n") and line.strip():
                    yield from_json(kind, line, f"{path}, line {number:,}")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): run the experiment again") from error


def json_line(value: Any) -> bytes:
    """A value as one line."""
    return (json.dumps(to_json(value), ensure_ascii=False) + "\n").encode()
