"""What the cells of an experiment rest on: corpora, LLMs, templates, adapters. Shared by running and planning."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dmnrag.experiments.matrix.cells import expand
from dmnrag.experiments.matrix.corpora import Corpus, digest, index_folder, missing_retrievers, needed_retrievers
from dmnrag.experiments.matrix.domains import DomainClassifier
from dmnrag.experiments.matrix.evidence import EvidenceStore
from dmnrag.experiments.matrix.llms import adapter_folder, adapter_identity, llm_identity, template_of
from dmnrag.experiments.matrix.spec_files import LoadedSpec
from dmnrag.experiments.records import Cell, to_json
from dmnrag.experiments.results import ResultsFolder
from dmnrag.llm.adapters import template_values


class Setting:
    """The cells of a spec, and for each corpus that is ready its evidence."""

    def __init__(self, loaded: LoadedSpec, folder: ResultsFolder, classifier: DomainClassifier | None = None) -> None:
        """Reads templates and looks at model folders; opens no model and no index.

        Raises:
            ConfigError, PromptError: a template that is not there or wrong.
        """
        self.loaded = loaded
        self.folder = folder
        self.cells = expand(loaded.spec)
        self.templates = {llm.name: template_of(loaded, llm) for llm in loaded.spec.llm}
        self.corpora: dict[str, Corpus] = {}
        self.stores: dict[str, EvidenceStore] = {}
        self._llms = {llm.name: llm_identity(loaded, llm) for llm in loaded.spec.llm}
        self._classifier = classifier

    def add(self, corpus: Corpus) -> None:
        """A corpus is ready."""
        name = corpus.spec.name
        imported = {e.file: self.loaded.path(e.file) for e in self.loaded.spec.evidence if e.corpus == name}
        home = self.folder.corpus_folder(name) / "evidence"
        self.corpora[name] = corpus
        self.stores[name] = EvidenceStore(
            corpus, home, seed=self.loaded.spec.seed, imported=imported, classifier=self._classifier
        )

    def close(self) -> None:
        """Let the indexes go."""
        for corpus in self.corpora.values():
            corpus.index.close()

    def index_folder(self, corpus: str) -> Path:
        """Where a corpus's index is, or will be."""
        return index_folder(self.loaded, self.loaded.spec.corpus_named(corpus), self.folder.corpus_folder(corpus))

    def adapter(self, cell: Cell) -> Path | None:
        """Where a cell's adapter is, or will be; None where it uses none."""
        if cell.generation != "lora":
            return None
        assert cell.llm is not None  # LoRA cells have one
        return adapter_folder(self.loaded, self.index_folder(cell.corpus), cell, self._llms[cell.llm])

    def missing(self, cells: Sequence[Cell]) -> list[str]:
        """Retrievers and adapters that cells need and that are not there, in words."""
        found = []
        for corpus in self.loaded.spec.corpus:
            names = missing_retrievers(self.index_folder(corpus.name), needed_retrievers(cells, corpus.name))
            found += [f"retriever {name} of corpus {corpus.name}" for name in names]
        adapters = dict.fromkeys(self.adapter(cell) for cell in cells)
        found += [f"adapter {adapter}" for adapter in adapters if adapter_identity(adapter) == "missing"]
        return found

    def identity(self, llm: str, adapter: Path | None) -> str:
        """What answers of an LLM, with an adapter or without, are kept under."""
        return digest([self._llms[llm], adapter_identity(adapter)])

    def inputs(self, cell: Cell) -> str:
        """sha256 over everything that a cell's figures depend on; its corpus is ready."""
        what: list[Any] = [{k: v for k, v in to_json(cell).items() if k not in ("id", "table")}]
        what += [self.stores[cell.corpus].state(cell), self.loaded.spec.metrics]
        if cell.llm is not None:
            what += [self.identity(cell.llm, self.adapter(cell)), template_values(self.templates[cell.llm])]
        return digest(what)

    def is_finished(self, cell: Cell) -> bool:
        """Whether a cell's figures are there, whole, and rest on what they should."""
        known = self.folder.metrics(cell)
        return known is not None and known.complete and known.inputs == self.inputs(cell)
