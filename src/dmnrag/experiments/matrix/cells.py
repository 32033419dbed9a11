"""Every cell that a spec asks for: corpus x row x LLM x zero-shot or LoRA x parameters.

Cells that several tables share are there once and name all of them. A cell's id hangs on nothing but the cell, so a
longer spec keeps those that are there.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dmnrag.experiments.matrix.rows import ABLATIONS, METHOD_ROWS, Row, retriever_for
from dmnrag.experiments.matrix.spec import CorpusSpec, LlmSpec, RetrievalSpec, Spec
from dmnrag.experiments.records import (
    ABLATIONS_TABLE,
    METHODS_TABLE,
    NOISE_TABLE,
    TEMPERATURE_FIGURE,
    TOP_K_FIGURE,
    Cell,
    Control,
    DomainSource,
    Generation,
    to_json,
)
from dmnrag.methods import BASELINE
from dmnrag.types import GenerationSettings

_UNSAFE = re.compile(r"[^\w.+()-]+")
_COPY: Control = "copy-first"
_JOINT = "Dmn"
"""The method with which joint retrieval is copied from."""


def expand(spec: Spec) -> list[Cell]:
    """The cells of a spec, corpora and tables in its order."""
    cells: dict[str, Cell] = {}
    for cell in _wanted(spec):
        named = replace(cell, id=cell_id(cell))
        known = cells.get(named.id, named)
        cells[named.id] = replace(known, table=tuple(dict.fromkeys((*known.table, *named.table))))
    return list(cells.values())


def cell_id(cell: Cell) -> str:
    """A readable name that no other cell has, on any file system."""
    identity = {name: value for name, value in to_json(cell).items() if name not in ("id", "table")}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]
    layer = cell.layer if cell.control in (None, _COPY) else None
    parts = [cell.corpus, cell.row, layer, cell.llm, cell.generation if cell.generation == "lora" else None]
    if cell.domain != "given":
        parts.append(f"{cell.domain}{cell.domain_noise:g}" if cell.domain_noise else cell.domain)
    for name, value in (("t", cell.parameters.temperature), ("k", cell.parameters.top_k), ("r", cell.repeat or None)):
        parts.append(None if value is None else f"{name}{value:g}")
    return "-".join(_UNSAFE.sub("_", part) for part in (*parts, digest) if part)


def _wanted(spec: Spec) -> Iterator[Cell]:
    for corpus in spec.corpus:
        for llm in spec.llm:
            maker = _Maker(spec, corpus, llm)
            yield from maker.methods()
            yield from maker.controls()
            yield from maker.ablations()
            yield from maker.sweeps()
            yield from maker.noise()


@dataclass(frozen=True)
class _Maker:
    """The cells of one corpus and one LLM."""

    spec: Spec
    corpus: CorpusSpec
    llm: LlmSpec

    def methods(self) -> Iterator[Cell]:
        """Tables 3 and 4."""
        for variant in self.spec.retrieval:
            for generation in self.spec.generations:
                for row in self._method_rows():
                    yield from self._repeated(self._cell(row, variant, METHODS_TABLE, generation=generation))

    def controls(self) -> Iterator[Cell]:
        """What bounds the methods: without documents, with the right one, with random ones, and copying."""
        for control in self.spec.controls:
            if control == "copy-first":
                yield from self._copies()
                continue
            # Documents come from elsewhere: how others are found means nothing, and nothing must be trained for it.
            cell = self._cell(METHOD_ROWS[BASELINE.name], RetrievalSpec(layer="sparse"), self._main_table)
            yield from self._repeated(replace(cell, row=control, control=control, evidence=None))

    def _copies(self) -> Iterator[Cell]:
        """The first document copied, with each way of finding documents: the plain one, and the joint one."""
        names = [BASELINE.name, *([_JOINT] if any(row.method.joint for row in self._method_rows()) else [])]
        for variant in self.spec.retrieval:
            for name in names:
                cell = self._cell(METHOD_ROWS[name], variant, self._main_table)
                row = _COPY if name == BASELINE.name else f"{_COPY} ({name})"
                yield replace(cell, row=row, control=_COPY, llm=None, parameters=GenerationSettings())

    def ablations(self) -> Iterator[Cell]:
        """Tables 5 and 6, zero-shot."""
        for name in self.spec.ablations:
            yield from self._repeated(self._cell(ABLATIONS[name], self.spec.retrieval[0], ABLATIONS_TABLE))

    def sweeps(self) -> Iterator[Cell]:
        """Figures 2 to 5, zero-shot, with the first way of retrieval."""
        changes: list[tuple[str, dict[str, Any]]] = [
            (TEMPERATURE_FIGURE, {"temperature": value}) for value in self.spec.sweep.temperature
        ]
        changes += [(TOP_K_FIGURE, {"top_k": value}) for value in self.spec.sweep.top_k]
        for table, change in changes:
            for row in self._method_rows():
                cell = self._cell(row, self.spec.retrieval[0], table)
                yield from self._repeated(replace(cell, parameters=replace(cell.parameters, **change)))

    def noise(self) -> Iterator[Cell]:
        """The methods with other domains than the right ones, and beside them with the right ones."""
        noise = self.spec.noise
        if not noise.wanted:
            return
        shares: dict[DomainSource, tuple[float, ...]] = {
            "given": (0.0,),
            "wrong": noise.wrong,
            "inferred": (0.0,) * noise.inferred,
            "none": (0.0,) * noise.none,
        }
        for source, share in ((source, share) for source, of_source in shares.items() for share in of_source):
            for row in self._method_rows():
                if row.method.needs_domain or source == "given":
                    cell = self._cell(row, self.spec.retrieval[0], NOISE_TABLE)
                    yield from self._repeated(replace(cell, domain=source, domain_noise=share))

    @property
    def _main_table(self) -> str:
        """Where the controls stand."""
        return METHODS_TABLE if self.spec.methods else ABLATIONS_TABLE

    def _method_rows(self) -> list[Row]:
        return [METHOD_ROWS[name] for name in self.spec.methods]

    def _cell(self, row: Row, variant: RetrievalSpec, table: str, *, generation: Generation = "zero-shot") -> Cell:
        spec = self.spec
        layer = row.layer or variant.layer
        evidence = next((e.file for e in spec.evidence if (e.corpus, e.row) == (self.corpus.name, row.name)), None)
        return Cell(
            id="",
            corpus=self.corpus.name,
            row=row.name,
            method=row.method.name,
            layer=layer,
            retriever=retriever_for(row, layer, trained=spec.retrievers == "trained"),
            llm=self.llm.name,
            generation=generation,
            domain="given",
            domain_noise=0.0,
            k=spec.k,
            parameters=spec.generation,
            repeat=0,
            control=None,
            domain_filter=variant.domain_filter,
            domain_weight=variant.domain_weight,
            domain_in_document=variant.domain_in_document,
            candidates=variant.candidates,
            reranker=variant.reranker,
            evidence=evidence,
            table=(table,),
        )

    def _repeated(self, cell: Cell) -> Iterator[Cell]:
        """Once where decoding is greedy; else as often as the spec says, each time with its seed."""
        if cell.parameters.temperature == 0:
            yield cell
            return
        for repeat in range(self.spec.repeats):
            seed = self.spec.seed + repeat
            yield replace(cell, repeat=repeat, parameters=replace(cell.parameters, seed=seed))
