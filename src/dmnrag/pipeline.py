"""From a question to an answer: domain, retrieval, prompt, generation (figure 1 of the paper).

    pipeline = Pipeline.open("index-folder", llm="builtin")
    answer = pipeline.ask("高血压能喝酒吗？", domain="心血管内科")

It knows which parts play together, and nothing of files, command lines or HTTP.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from dmnrag import methods
from dmnrag.domain import Inference
from dmnrag.errors import ConfigError, QueryError
from dmnrag.grounding import GroundedStream, citations_of, defuse
from dmnrag.grounding.citations import CitationFilter
from dmnrag.index import Index
from dmnrag.index.build import UNTRAINED
from dmnrag.index.labels import parse_domain, resolve_domain
from dmnrag.llm import make_generator
from dmnrag.llm.adapters import AdapterRecord, check_method, read_record, template_with
from dmnrag.methods import Method
from dmnrag.prompts import Template, build_prompt, load_template
from dmnrag.protocols import Encoder, Generator, Reranker
from dmnrag.retrieval.dense import make_encoder
from dmnrag.retrieval.layers import LayerHits, RetrievalSettings, Retriever
from dmnrag.types import (
    Answer,
    Document,
    Domain,
    DomainUse,
    Generation,
    GenerationSettings,
    Hit,
    Layer,
    Prompt,
    Query,
)

_HAS_WORD = re.compile(r"\w")

MAX_QUESTION_CHARACTERS = 20_000
"""Longer input is a document, not a question: refused instead of silently cut."""

DomainGiven = str | Domain | None

AUTO = "auto"
"""As a domain: infer it."""


@dataclass(frozen=True, slots=True)
class AskSettings:
    """How questions are answered, beside the method."""

    retrieval: RetrievalSettings = field(default_factory=RetrievalSettings)
    """Layer, k and the rest; how the domain acts is taken from the method."""
    generation: GenerationSettings = field(default_factory=GenerationSettings)
    domain_weight: float = 1.0
    """Weight of the domain's terms in joint retrieval."""
    batch_size: int = 32
    """Prompts handed to the LLM at once."""


class Searched(NamedTuple):
    """What was found for one question."""

    hits: tuple[Hit, ...]
    took_ms: float


class Pipeline:
    """Answers questions over one open index with one LLM."""

    def __init__(
        self,
        index: Index,
        *,
        generator: Generator | None = None,
        encoders: Mapping[str, Encoder] | None = None,
        reranker: Reranker | None = None,
        template: Template | None = None,
        adapter: AdapterRecord | None = None,
    ) -> None:
        """Parts that are not given are made when first needed; without a generator only search works.

        Args:
            index: open.
            generator: the LLM.
            encoders: those of the index's retrievers, by their names.
            reranker: for `RetrievalSettings.rerank`.
            template: of the prompt; None is the one that suits the LLM.
            adapter: what the generator's adapter was trained for; brings method, template, layer, k and max_tokens.

        Raises:
            ConfigError: another template than the adapter's.
        """
        self.index = index
        self._generator = generator
        self._encoders = dict(encoders or {})
        self._reranker = reranker
        self._template = template_with(adapter, template)
        self._adapter = adapter
        self._retrievers: dict[str | None, Retriever] = {}

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        llm: str | None = None,
        template: str | None = None,
        adapter: str | Path | None = None,
    ) -> "Pipeline":
        """Open an index folder, with an LLM by its spec (`builtin`, `openai:MODEL@URL`, a name or folder).

        `adapter` is the folder of a LoRA adapter that was trained on this LLM; its method and template are used.

        Raises:
            ConfigError: no such index, LLM or template, an adapter without its LLM, of another one, or of another
                template.
        """
        if adapter is not None and llm is None:
            raise ConfigError(f"adapter {adapter} is put onto an LLM and none is named: give the one it was trained on")
        record = None if adapter is None else read_record(Path(adapter))
        chosen = template_with(record, None if template is None else load_template(template))
        return cls(
            Index.open(folder),
            generator=None if llm is None else make_generator(llm, adapter=adapter),
            template=chosen,
            adapter=record,
        )

    def with_llm(
        self, generator: Generator, template: Template | None = None, adapter: AdapterRecord | None = None
    ) -> "Pipeline":
        """The same index and retrieval with an LLM, and what its adapter was trained for."""
        return Pipeline(
            self.index,
            generator=generator,
            encoders=self._encoders,
            reranker=self._reranker,
            template=template,
            adapter=adapter,
        )

    @property
    def default_layer(self) -> Layer:
        """The layer that measurement favours among those the index has (docs/results.md)."""
        return "hybrid" if self.index.manifest.retrievers else "sparse"

    @property
    def default_settings(self) -> AskSettings:
        """The index's own layer; with an adapter layer, k and max_tokens as it was trained."""
        if self._adapter is None:
            return AskSettings(retrieval=RetrievalSettings(layer=self.default_layer))
        trained = self._adapter.retrieval
        return AskSettings(
            retrieval=RetrievalSettings(layer=trained["layer"], k=int(trained["k"])),
            generation=GenerationSettings(max_tokens=self._adapter.answer_tokens),
        )

    def retriever(self, name: str | None) -> Retriever:
        """Both layers, the second one by its name; None: the first layer alone.

        Raises:
            ConfigError: the index has no such retriever.
        """
        if name not in self._retrievers:
            self._retrievers[name] = Retriever(
                self.index.sparse,
                None if name is None else self.index.dense(name),
                None if name is None else (lambda: self.encoder_of(name)),
                reranker=self._reranker,
                passages_of=self.index.passages,
                domain_kind=self.index.settings.domain_kind,
            )
        return self._retrievers[name]

    def retriever_name(self, use: DomainUse) -> str | None:
        """The second layer for a first layer with or without the domain.

        The joint methods train another DPR than the plain ones (PAPER, "Training set of the retriever"), so each
        uses its own where it was trained, else the untrained one.
        """
        trained = "joint" if use.in_query else "plain"
        return next((name for name in (trained, UNTRAINED) if name in self.index.manifest.retrievers), None)

    def encoder_of(self, retriever: str = UNTRAINED) -> Encoder:
        """The encoder of a second layer, loaded once; that of the untrained one unless another is named.

        Raises:
            ConfigError: the index has no such retriever.
        """
        if retriever not in self._encoders:
            self._encoders[retriever] = make_encoder(self.index.dense_settings(retriever).encoder)
        return self._encoders[retriever]

    @property
    def encoders(self) -> dict[str, Encoder]:
        """Those that are loaded, by the names of their retrievers."""
        return dict(self._encoders)

    @property
    def generator(self) -> Generator:
        """The LLM.

        Raises:
            ConfigError: none was given.
        """
        if self._generator is None:
            raise ConfigError(
                "answering needs an LLM: give one with --llm (builtin, openai:MODEL@URL, a name or folder)"
            )
        return self._generator

    @cached_property
    def template(self) -> Template:
        """The prompt's template: as given, else the one that suits the LLM."""
        return self._template or default_template(self.generator)

    def resolve(self, domain: DomainGiven, *, allow_unknown: bool = False) -> Domain:
        """The index's domain for what a caller gave."""
        if domain is None:
            return ()
        given = parse_domain(domain) if isinstance(domain, str) else domain
        return resolve_domain(given, self.index.domains, allow_unknown=allow_unknown)

    def infer(self, questions: Sequence[str]) -> list[Inference]:
        """The domain of each question, as far down as the index's model is sure; .1 ms each, safe in several threads.

        Where the index has no model (`Index.domain_model`) each is abstained from, without alternatives.
        """
        model = self.index.domain_model
        return [NOT_INFERRED] * len(questions) if model is None else model.infer(questions)

    def search(self, queries: Sequence[Query], settings: RetrievalSettings) -> list[list[Hit]]:
        """The k best documents of each question.

        Raises:
            QueryError: a question without a word, or k below 1.
            ConfigError: the index has no such retriever.
        """
        return [found.hits for found in self.search_layers(queries, settings)]

    def search_layers(self, queries: Sequence[Query], settings: RetrievalSettings) -> list[LayerHits]:
        """The hits of `search` with the rankings of both layers that they came from. Costs nothing more.

        Raises:
            QueryError: a question without a word, or k below 1.
            ConfigError: the index has no such retriever.
        """
        for query in queries:
            check_question(query)
        name = settings.retriever or self.retriever_name(settings.use)
        if name is not None and self.index.retriever_info(name).get("domain_in_question"):
            settings = replace(settings, domain_in_dense_query=True)  # asked as it was trained
        return self.retriever(name).retrieve_layers(queries, settings)

    def choose_method(
        self,
        name: str | None,
        domain: Domain,
        adapter: AdapterRecord | None = None,
        inferred: Inference | None = None,
    ) -> Method:
        """The method by name, or the default for what is known of the question; an adapter's (None: own) is its own.

        `inferred` tells the error why no domain is known.

        Raises:
            ConfigError: the method needs a domain and none is known, or it is not the adapter's.
        """
        adapter = adapter or self._adapter
        if adapter is not None:
            if name is not None:
                check_method(adapter, methods.find_method(name).name)
            name = adapter.method
        if name is None:
            return methods.DEFAULT if domain else methods.BASELINE
        method = methods.find_method(name)
        if method.needs_domain and not domain:
            raise ConfigError(
                f"method {method.name} uses the question's domain and none is known "
                f"({self._why_unknown(inferred)}); "
                f"or use --method {methods.BASELINE.name}"
            )
        return method

    def _why_unknown(self, inferred: Inference | None) -> str:
        if not self.index.domains:
            return "the index has none"
        if inferred is None or not inferred.alternatives:
            return "give one with --domain"
        return f"{abstention_text(inferred)}; give one with --domain"

    def ask(
        self,
        question: str,
        domain: DomainGiven = AUTO,
        *,
        method: str | None = None,
        settings: AskSettings | None = None,
        allow_unknown_domain: bool = False,
    ) -> Answer:
        """Answer one question; its domain is inferred (`AUTO`), named, or None: none."""
        [inferred] = self.infer([question]) if domain == AUTO else [None]
        resolved = self.resolve(domain, allow_unknown=allow_unknown_domain) if inferred is None else inferred.domain
        chosen = self.choose_method(method, resolved, inferred=inferred)
        return self.ask_all([Query("1", question, resolved)], chosen, settings)[0]

    def ask_all(
        self,
        queries: Sequence[Query],
        method: Method,
        settings: AskSettings | None = None,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> list[Answer]:
        """Answer many questions with one method; retrieval and generation go in batches. Texts are the LLM's own."""
        settings = settings or self.default_settings
        started = time.perf_counter()
        rankings = self.search(queries, self.retrieval_settings(method, settings))
        searched_ms = _milliseconds_since(started) / max(1, len(queries))
        prompts = [self.prompt(q, hits, method, settings) for q, hits in zip(queries, rankings, strict=True)]
        answers: list[Answer] = []
        for start in range(0, len(prompts), settings.batch_size):
            batch = slice(start, start + settings.batch_size)
            started = time.perf_counter()
            generations = self.generator.generate(prompts[batch], settings.generation)
            timings = {
                "retrieval": searched_ms,
                "generation": _milliseconds_since(started) / len(generations),
            }
            rows = zip(queries[batch], rankings[batch], prompts[batch], generations, strict=True)
            answers.extend(self._answer(q, h, p, g, method, timings) for q, h, p, g in rows)
            on_progress(len(generations))
        return answers

    def stream(
        self,
        query: Query,
        method: Method,
        settings: AskSettings | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        searched: Searched | None = None,
    ) -> Iterator[str | Answer]:
        """Pieces of the answer as a client may see them (`dmnrag.grounding`), then the whole `Answer`.

        `searched` is what `search` found for the question already.
        """
        settings = settings or self.default_settings
        hits, searched_ms = searched or self._search_one(query, method, settings)
        timings = {"retrieval": searched_ms}
        prompt = self.prompt(query, hits, method, settings)
        started = time.perf_counter()
        grounding = GroundedStream(
            prompt.excerpts, secret=self.template.system_text, fence=self.template.fence, question=query.text
        )
        pieces = self.generator.stream(prompt, settings.generation, lambda: cancelled() or grounding.withheld)
        for piece in pieces:
            shown = grounding.close() if isinstance(piece, Generation) else grounding.feed(piece)
            yield from (text for text in shown if isinstance(text, str))
            if isinstance(piece, Generation):
                timings["generation"] = _milliseconds_since(started)
                answer = self._answer(query, hits, prompt, replace(piece, text=grounding.text), method, timings)
                spans = tuple((span.start, span.end) for span in grounding.unsupported)
                yield replace(answer, unsupported=spans, withheld=grounding.withheld)

    def _search_one(self, query: Query, method: Method, settings: AskSettings) -> Searched:
        started = time.perf_counter()
        hits = self.search([query], self.retrieval_settings(method, settings))[0]
        return Searched(tuple(hits), _milliseconds_since(started))

    def retrieval_settings(self, method: Method, settings: AskSettings) -> RetrievalSettings:
        """Retrieval as the method has it: the domain acts in the first layer or does not."""
        joint: DomainUse = replace(method.use, weight=settings.domain_weight) if method.joint else method.use
        return replace(settings.retrieval, use=joint)

    def prompt(self, query: Query, hits: Sequence[Hit], method: Method, settings: AskSettings) -> Prompt:
        """The prompt of one question from its ranking, within the LLM's context.

        Raises:
            PromptTooLongError: the question alone does not fit.
        """
        documents: list[Document] = self.index.documents([hit.doc_id for hit in hits])
        if self.template.fence:  # the paper's prompt stays exactly as it is
            documents = [defuse(document, self.template.fence) for document in documents]
        context = self.generator.context_tokens
        budget = None if context is None else context - settings.generation.max_tokens
        return build_prompt(
            self.template,
            method.position,
            query,
            documents,
            count=self.generator.prompt_tokens,
            budget=budget,
        )

    def _answer(
        self,
        query: Query,
        hits: Sequence[Hit],
        prompt: Prompt,
        generation: Generation,
        method: Method,
        timings_ms: dict[str, float],
    ) -> Answer:
        citations = CitationFilter({excerpt.number for excerpt in prompt.excerpts})
        cited = citations_of(citations.feed(generation.text) + citations.close())
        return Answer(
            text=generation.text,
            hits=tuple(hits),
            domain=query.domain,
            prompt=prompt,
            method=method.name,
            llm=self.generator.name,
            citations=cited,
            finish_reason=generation.finish_reason,
            usage=generation.usage,
            timings_ms=timings_ms,
        )


NOT_INFERRED = Inference((), 0.0, True, ())
"""Of a question where there is no model to infer a domain with."""


def abstention_text(inferred: Inference) -> str:
    """Why no domain is given, for people."""
    likeliest = ", ".join(f"{label} {100 * probability:.0f} %" for label, probability in inferred.alternatives[:3])
    return f"no domain is probable enough (likeliest: {likeliest})"


_BASE_MODELS = frozenset({"builtin"})
"""LLMs without instruction tuning: they continue a text rather than follow an instruction."""


def default_template(generator: Generator) -> Template:
    """The template that suits an LLM."""
    return load_template("base" if _bare_name(generator) in _BASE_MODELS else "cited")


def _bare_name(generator: Generator) -> str:
    """Without precision and adapter: `builtin:int8+lora-x` is the built-in model."""
    return re.split("[:+]", generator.name)[0]


def check_question(query: Query) -> None:
    """Refuse what cannot be searched for.

    Raises:
        QueryError: empty, only punctuation or emoji, or far too long.
    """
    if not _HAS_WORD.search(query.text):
        raise QueryError(f"the question {query.text[:40]!r} holds no word: write it in letters, digits or characters")
    if len(query.text) > MAX_QUESTION_CHARACTERS:
        raise QueryError(
            f"the question has {len(query.text):,} characters, at most {MAX_QUESTION_CHARACTERS:,} are allowed: "
            "shorten it"
        )


def _milliseconds_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
