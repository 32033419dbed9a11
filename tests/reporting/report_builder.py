"""Results folders made without indexes and LLMs: answers of known quality, written as an experiment writes them."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dmnrag._io import write_jsonl_atomic
from dmnrag.experiments.records import (
    ABLATIONS_TABLE,
    METHODS_TABLE,
    NOISE_TABLE,
    Cell,
    CellCost,
    CellMetrics,
    CorpusCard,
    Cost,
    Evidence,
    EvidenceDocument,
    Prediction,
    Retrieval,
    to_json,
)
from dmnrag.experiments.results import ResultsFolder
from dmnrag.experiments.score import answer_columns
from dmnrag.methods import METHODS
from dmnrag.types import Example, GenerationSettings, Query, Usage

DOMAINS = ("内科", "外科", "儿科")
_CHARACTERS = "".join(chr(0x4E00 + 7 * i) for i in range(900))
ABLATIONS = (
    "ES", "ES+Dmn", "ES(ques-front)", "ES(ques-rear)", "ES+Dmn(ques-front)", "ES+Dmn(ques-rear)",
    "DPR", "DPR(ques-front)", "DPR(ques-rear)",
)  # fmt: skip
Quality = Callable[[Cell], float]


def questions(n: int, seed: int = 0) -> list[Example]:
    """Questions with references of 24 characters, in three domains."""
    rng = random.Random(seed)
    return [
        Example(
            Query(f"q{i}", f"第{i}个问题怎么办？", (DOMAINS[i % 3],)),
            ("".join(rng.sample(_CHARACTERS, 24)),),
            (f"d{i}",),
            f"c{i}",
        )
        for i in range(n)
    ]


def answer(example: Example, quality: float, seed: str) -> str:
    """The reference with a share of its characters replaced; the share varies a little from question to question."""
    rng = random.Random(f"{seed} {example.query.query_id}")
    kept = max(0.0, min(1.0, quality + rng.uniform(-0.1, 0.1)))
    return "".join(c if rng.random() < kept else rng.choice(_CHARACTERS) for c in example.references[0])


def cell(row: str, corpus: str = "medical", **changes: Any) -> Cell:
    """A zero-shot cell of the methods table."""
    method = row if row in {m.name for m in METHODS} else "no-Dmn"
    made = Cell(
        id="",
        corpus=corpus,
        row=row,
        method=method,
        layer="hybrid",
        retriever="base",
        llm="fake",
        generation="zero-shot",
        domain="given",
        domain_noise=0.0,
        k=2,
        parameters=GenerationSettings(temperature=0),
        repeat=0,
        control=None,
        table=(METHODS_TABLE,),
    )
    return replace(made, **changes)


def named(cells: Iterable[Cell]) -> list[Cell]:
    return [replace(c, id=f"{i:03d}-{c.row}".replace("/", "-")) for i, c in enumerate(cells)]


def write(
    path: Path,
    cells: Sequence[Cell],
    quality: Quality,
    *,
    n: int = 12,
    unanswered: Mapping[str, int] | None = None,
    texts: Callable[[Cell, Example], str] | None = None,
    examples: list[Example] | None = None,
    retrieval: Mapping[str, Retrieval] | None = None,
    extra: Callable[[Cell, Sequence[str]], dict[str, tuple[float | None, ...]]] | None = None,
) -> ResultsFolder:
    """An experiment's folder; `unanswered` maps a row to the number of its questions without an answer."""
    folder = ResultsFolder.create(path)
    cells = named(cells)
    asked = examples or questions(n)
    corpora = list(dict.fromkeys(c.corpus for c in cells))
    folder.add_env({"started": "2026-01-01T00:00:00+00:00", "versions": {"dmnrag": "0"}})
    for corpus in corpora:
        folder.write_corpus(card(corpus, asked), asked)
        if retrieval and corpus in retrieval:
            folder.write_retrieval(corpus, retrieval[corpus])
    folder.write_spec({"corpus": [{"name": corpus} for corpus in corpora]}, cells)
    for one in cells:
        _write_cell(folder, one, asked, quality(one), (unanswered or {}).get(one.row, 0), texts, extra)
    folder.write_cost(Cost({c.id: CellCost(1.5, 1000, 200, len(asked), 0) for c in cells}, {"rank": 2.0}))
    return folder


def card(corpus: str, asked: Sequence[Example]) -> CorpusCard:
    return CorpusCard(
        name=corpus,
        documents=100,
        held_out=len(asked),
        sampled=len(asked),
        unusable=0,
        labels=tuple(((name,), 30) for name in DOMAINS),
        domain_kind="path",
        generation=1,
        fingerprint="f" * 64,
        retrievers=("base",),
        source={},
    )


def _write_cell(
    folder: ResultsFolder,
    one: Cell,
    asked: Sequence[Example],
    quality: float,
    missing: int,
    texts: Callable[[Cell, Example], str] | None,
    extra: Callable[[Cell, Sequence[str]], dict[str, tuple[float | None, ...]]] | None,
) -> None:
    seed = f"{one.row} {one.corpus} {one.llm} {one.generation} {one.parameters} {one.repeat} {one.domain}"
    said = [texts(one, e) if texts else answer(e, quality, seed) for e in asked]
    answered = len(asked) - missing
    if one.control != "closed-book":
        write_jsonl_atomic(folder.cell_folder(one.id) / "evidence.jsonl", [to_json(_evidence(e, one)) for e in asked])
    rows = [
        Prediction(e.query.query_id, None, text, "stop", Usage(10, 5), {"generation": 1.0})
        if i < answered
        else Prediction(e.query.query_id, None, "", None, None, {}, "the server died")
        for i, (e, text) in enumerate(zip(asked, said, strict=True))
    ]
    folder.write_predictions(one.id, rows)
    columns = {m: tuple(c) for m, c in answer_columns(said, asked).items()}
    columns |= extra(one, said) if extra else {}
    values = {m: (*c[:answered], *(None,) * missing) for m, c in columns.items()}
    folder.write_metrics(one.id, CellMetrics(len(asked), answered, missing, missing == 0, values, "i" * 64))


def _evidence(example: Example, one: Cell) -> Evidence:
    domain = example.query.domain if one.method.startswith("Dmn") else ("外科",)
    documents = (
        EvidenceDocument(example.gold_doc_ids[0], 2.0, domain, "库里的问题？", (example.references[0],)),
        EvidenceDocument("other", 1.0, ("外科",), "另一个问题？", ("毫不相干的一段话。",)),
    )
    return Evidence(example.query.query_id, example.query.text, example.query.domain, documents)


def whole_paper(llms: Sequence[str] = ("ChatGLM2-6B", "Baichuan2-7B-chat")) -> list[Cell]:
    """Tables 3 to 6, figures 2 to 5, controls and domain noise over two corpora, smaller than the paper's grids."""
    cells = []
    for llm in llms:
        for corpus in ("medical", "legal"):
            for method in METHODS:
                for generation in ("zero-shot", "lora"):
                    cells.append(cell(method.name, corpus, llm=llm, generation=generation))
                for value in (0.2, 0.4, 0.6):
                    settings = GenerationSettings(temperature=value)
                    cells.append(cell(method.name, corpus, llm=llm, parameters=settings, table=("temperature",)))
                for top_k in (20, 40):
                    settings = GenerationSettings(top_k=top_k)
                    cells.append(cell(method.name, corpus, llm=llm, parameters=settings, table=("top_k",)))
            for name in ABLATIONS:
                cells.append(cell(name, corpus, llm=llm, table=(ABLATIONS_TABLE,)))
            cells.append(cell("closed-book", corpus, llm=llm, control="closed-book", layer="sparse"))
            for name, row in (("no-Dmn", "copy-first"), ("Dmn", "copy-first (Dmn)")):
                cells.append(cell(row, corpus, method=name, llm=None, control="copy-first"))
            for method in METHODS[1:]:
                changes = {"domain": "wrong", "domain_noise": 0.5, "table": (NOISE_TABLE,)}
                cells.append(cell(method.name, corpus, llm=llm, **changes))
    unique = {replace(c, table=()): c for c in cells}
    return list(unique.values())
