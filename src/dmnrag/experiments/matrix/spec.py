"""What an experiment is: a frozen value, checked when it is made.

`spec_files` reads it from TOML; docs/experiments.md explains the keys. A key here is a key there.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal

from dmnrag.data.options import DOMAIN_SEPARATORS, LabelOrder
from dmnrag.data.samples import SAMPLES
from dmnrag.errors import ConfigError
from dmnrag.experiments.matrix.rows import ABLATIONS, METHOD_ROWS
from dmnrag.experiments.records import Control, Generation
from dmnrag.experiments.score import LENGTH
from dmnrag.index.settings import IndexedText
from dmnrag.llm.factory import check_spec, default_batch_size, split_dtype
from dmnrag.text import SegmenterName
from dmnrag.training.lora_settings import LoraSettings
from dmnrag.training.settings import DprSettings
from dmnrag.types import GenerationSettings, Layer

CONTROLS: tuple[Control, ...] = ("closed-book", "gold", "random", "copy-first")
METRICS = (*(f"ROUGE-{n} ({cut})" for cut in ("word", "character") for n in ("1", "2", "L")), LENGTH)
"""All that the runner computes; reports add what can be told from the folder."""

_NAME = re.compile(r"\w[\w.+-]{0,63}")
_NO_ENCODER = "none"
_WITHOUT_WEIGHTS = ("fake", "openai")


@dataclass(frozen=True, slots=True)
class CorpusSpec:
    """Where questions and documents come from: exactly one of `sample`, `index` and `files`."""

    name: str
    """Shown, and part of file names."""
    sample: str | None = None
    """A corpus that comes with the package: medical or legal."""
    index: str | None = None
    """An index folder with held-out questions (`dmnrag index --test-size`). Retrievers that are missing are trained
    into it."""
    files: tuple[str, ...] = ()
    """Tables of question-answer pairs, indexed into the results folder."""
    question: tuple[str, ...] = ()
    """Of `files`: columns of the question."""
    answer: tuple[str, ...] = ()
    domain: tuple[str, ...] = ()
    """General to specific."""
    doc_id: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    sheet: str | None = None
    domain_separators: str = DOMAIN_SEPARATORS
    domain_map: str | None = None
    domain_kind: LabelOrder = "path"
    mask: bool = False
    test_size: float = 0.2
    """Share of the rows that is held out; re-posts stay together."""
    split_seed: int = 0
    encoder: str = "builtin"
    """Second layer of an index that is built here; `none` builds none."""
    segmenter: SegmenterName = "bigram"
    indexed_text: IndexedText = "question+answer"
    questions: int | None = None
    """For this corpus instead of the spec's."""

    def __post_init__(self) -> None:
        sources = [name for name in ("sample", "index", "files") if getattr(self, name)]
        if len(sources) != 1:
            given = " and ".join(sources) or "none"
            raise ConfigError(f"corpus {self.name!r} needs exactly one of sample, index and files; it has {given}")
        if self.sample is not None:
            one_of("sample", self.sample, SAMPLES)
        if self.files and not (self.question and self.answer):
            raise ConfigError(
                f"corpus {self.name!r} has files: name the columns with question = [..] and answer = [..]"
            )
        _positive("questions", self.questions)

    @property
    def built_here(self) -> bool:
        """Whether its index belongs to the results folder."""
        return self.index is None

    @property
    def has_encoder(self) -> bool:
        """Whether an index that is built here gets a second layer."""
        return self.encoder != _NO_ENCODER


@dataclass(frozen=True, slots=True)
class LlmSpec:
    """An LLM and how it is asked."""

    name: str
    """Shown, and part of file names."""
    model: str | None = None
    """builtin, openai:MODEL@URL, a transformers name or folder, fake; the name itself where it is left out."""
    template: str | None = None
    """For this LLM instead of the spec's."""
    batch_size: int | None = None
    """Prompts together in a local model; requests at once for a server. None: 32 for the built-in LLM, else 8."""
    device: str | None = None
    dtype: str | None = None
    timeout_s: float = 60.0
    retries: int = 4
    """Further tries of a request to a server, each after a longer pause."""
    api_key_env: str = "OPENAI_API_KEY"

    def __post_init__(self) -> None:
        _positive("batch_size", self.batch_size)
        check_spec(self.base)

    @property
    def spec(self) -> str:
        """As `make_generator` takes it."""
        return self.model or self.name

    @property
    def base(self) -> str:
        """`spec` without a precision behind it (builtin:int8)."""
        return split_dtype(self.spec, self.dtype)[0]

    @property
    def precision(self) -> str | None:
        """What `spec` or `dtype` names; None leaves it to the LLM."""
        return split_dtype(self.spec, self.dtype)[1]

    @property
    def at_once(self) -> int:
        """Prompts together, or requests at once."""
        return self.batch_size or default_batch_size(self.base)

    @property
    def is_server(self) -> bool:
        """Whether it answers over a network."""
        return self.spec.startswith("openai:")


@dataclass(frozen=True, slots=True)
class RetrievalSpec:
    """A way to find documents; methods and controls are run with each, ablations fix their own layer."""

    layer: Layer = "hybrid"
    domain_filter: bool = False
    """Hard domain: only documents of the question's domain."""
    domain_weight: float = 1.0
    domain_in_document: bool = True
    candidates: int = 100
    reranker: str | None = None


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """Parameters varied one at a time, everything else as in `generation`, retrieval held fixed."""

    temperature: tuple[float, ...] = ()
    top_k: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NoiseSpec:
    """Domains that are not the right ones, for every method that uses one."""

    wrong: tuple[float, ...] = ()
    """Shares of the questions that get another domain at random."""
    none: bool = False
    """No domain at all."""
    inferred: bool = False
    """The domain that a classifier finds."""

    def __post_init__(self) -> None:
        for share in self.wrong:
            if not 0 < share <= 1:
                raise ConfigError(f"noise: wrong holds {share!r}: allowed are shares above 0, at most 1")

    @property
    def wanted(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.wrong) or self.none or self.inferred


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """What becomes of retrievers and adapters that are not there."""

    missing: Literal["train", "refuse"] = "train"
    """`refuse`: they must exist."""
    limit: int | None = None
    """Train on so many questions only, drawn at random."""
    rounds: int = 2
    """Of the retriever "DPR": rounds of mining, at most."""
    retriever: DprSettings = field(default_factory=DprSettings)
    lora: LoraSettings = field(default_factory=LoraSettings)


@dataclass(frozen=True, slots=True)
class EvidenceSpec:
    """Documents of a method brought in from a file (`cells/ID/evidence.jsonl` of any results folder)."""

    corpus: str
    row: str
    file: str


@dataclass(frozen=True, slots=True)
class Spec:
    """An experiment."""

    corpus: tuple[CorpusSpec, ...]
    llm: tuple[LlmSpec, ...]
    methods: tuple[str, ...] = tuple(METHOD_ROWS)
    ablations: tuple[str, ...] = ()
    controls: tuple[Control, ...] = CONTROLS
    generations: tuple[Generation, ...] = ("zero-shot",)
    retrieval: tuple[RetrievalSpec, ...] = (RetrievalSpec(),)
    retrievers: Literal["trained", "base"] = "trained"
    """`trained`: joint, plain and "DPR" rows use their own; `base`: all use the untrained one."""
    k: int = 3
    template: str = "paper"
    generation: GenerationSettings = field(default_factory=GenerationSettings)
    sweep: SweepSpec = field(default_factory=SweepSpec)
    noise: NoiseSpec = field(default_factory=NoiseSpec)
    training: TrainingSpec = field(default_factory=TrainingSpec)
    evidence: tuple[EvidenceSpec, ...] = ()
    metrics: tuple[str, ...] = METRICS
    questions: int | None = 100
    """Test questions per corpus, a fixed sample; 0 in TOML takes all (None here)."""
    seed: int = 0
    """Of the sample, of random documents and wrong domains, and of sampled decoding."""
    repeats: int = 1
    """Times that each cell with sampled decoding (any temperature but 0) is run, each with another seed."""
    retrieval_table: Literal["pool", "index", "none"] = "pool"
    """Measure retrieval on all held-out questions: in the index and on the answer pool, in the index alone, or not."""

    def __post_init__(self) -> None:
        _check_names("corpus", [corpus.name for corpus in self.corpus])
        _check_names("llm", [llm.name for llm in self.llm])
        for key, names, allowed in (
            ("methods", self.methods, METHOD_ROWS),
            ("ablations", self.ablations, ABLATIONS),
            ("controls", self.controls, CONTROLS),
            ("metrics", self.metrics, METRICS),
        ):
            for name in names:
                one_of(key, name, allowed)
            _check_distinct(key, names)
        for key in ("questions", "k", "repeats"):
            _positive(key, getattr(self, key))
        _check_distinct("generations", self.generations)
        self._check_together()

    def _check_together(self) -> None:
        """What each key allows and all of them together do not."""
        if not (self.methods or self.ablations):
            raise ConfigError("there is nothing to run: name methods or ablations")
        if not self.retrieval:
            raise ConfigError("retrieval is empty: give at least one [[retrieval]], or leave it out for hybrid")
        if self.generation.seed is not None:
            raise ConfigError(
                "generation.seed is not a key of its own: the spec's seed is used, plus 1 for each repeat"
            )
        if self.sweep.top_k and self.generation.temperature == 0:
            raise ConfigError(
                "sweep.top_k changes nothing with generation.temperature = 0, which takes the likeliest token: "
                "raise the temperature, or leave it out for the model's own"
            )
        if "lora" in self.generations:
            self._check_lora()
        known = [corpus.name for corpus in self.corpus]
        for entry in self.evidence:
            one_of("evidence.corpus", entry.corpus, known)
            one_of("evidence.row", entry.row, (*self.methods, *self.ablations))
        _check_distinct("evidence", [f"{entry.corpus}, {entry.row}" for entry in self.evidence])

    def _check_lora(self) -> None:
        if any(variant.reranker for variant in self.retrieval):
            raise ConfigError("generation lora cannot be combined with a reranker: adapters are trained without one")
        for llm in self.llm:
            if llm.base.partition(":")[0] in _WITHOUT_WEIGHTS:
                raise ConfigError(
                    f"generation lora needs weights, and LLM {llm.name!r} ({llm.spec}) has none here: allowed are "
                    "builtin, a folder and a hub name. A server can load an adapter: name it as an LLM of its own"
                )

    def corpus_named(self, name: str) -> CorpusSpec:
        """The corpus of that name."""
        return next(corpus for corpus in self.corpus if corpus.name == name)

    def llm_named(self, name: str) -> LlmSpec:
        """The LLM of that name."""
        return next(llm for llm in self.llm if llm.name == name)


def one_of(key: str, name: str, allowed: Iterable[str]) -> None:
    """Refuse a name that is not there; offers the nearest.

    Raises:
        ConfigError: names key, value and what is allowed.
    """
    names = list(allowed)
    if name not in names:
        near = get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{key} has no {name!r}: allowed are {', '.join(names)}{hint}")


def _check_names(key: str, names: Sequence[str]) -> None:
    if not names:
        raise ConfigError(f"there is no [[{key}]]: give at least one")
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{key} name {name!r} cannot be used in file names: allowed are up to 64 letters, digits, _ . + and -, "
                "with a letter or digit first; where an llm's model has others, give name and model"
            )
    _check_distinct(key, [name.casefold() for name in names])


def _check_distinct(key: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{key} names {', '.join(twice)} more than once: once is enough")


def _positive(key: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ConfigError(f"{key} is {value}: allowed are whole numbers from 1")
