"""The corpora of an experiment: an index, its held-out questions, and the retrievers that the cells use.

Everything here can be killed and called again: indexes and retrievers that are there are used as they are.
"""

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dmnrag._io import write_json_atomic
from dmnrag.data import ColumnMapping, ReadOptions, load_sample, read_documents, read_domain_map, repost_groups
from dmnrag.data.split import split_documents
from dmnrag.errors import ConfigError, QueryError
from dmnrag.experiments.evaluate import held_out
from dmnrag.experiments.matrix.spec import CorpusSpec, Spec
from dmnrag.experiments.matrix.spec_files import LoadedSpec
from dmnrag.experiments.records import Cell, CorpusCard
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.index.build import UNTRAINED, Progress
from dmnrag.index.generations import is_index
from dmnrag.index.models import INFO
from dmnrag.methods import find_method
from dmnrag.pipeline import check_question
from dmnrag.retrieval.dense import DenseSettings, make_encoder
from dmnrag.retrieval.dense.resume import resumable
from dmnrag.text import SegmenterSettings
from dmnrag.training.dpr_retriever import NAMES, RetrieverPlan, train_retriever
from dmnrag.training.negatives_settings import TrainingSetSettings
from dmnrag.types import Document, Example

_SCRATCH = ".vectors"
"""Beside the index: vectors of a build that was killed."""

_ORIGIN = "origin.json"
"""Beside the index: what it was built from."""

Timed = Callable[[str, Callable[[], Any]], Any]
"""Called with the name of a step and the step; keeps how long it took."""


@dataclass(frozen=True)
class Corpus:
    """A corpus that is ready."""

    spec: CorpusSpec
    index: Index
    examples: list[Example]
    """The questions asked."""
    card: CorpusCard
    sample: str
    """sha256 over the questions asked."""

    def retriever_state(self, name: str | None) -> str:
        """What tells a second layer from another one of the same name: settings and vectors, not how long it took."""
        if name is None:
            return ""
        manifest = self.index.manifest
        vectors = {part: entry.sha256 for part, entry in manifest.parts.items() if part.startswith(f"dense/{name}/")}
        settings = manifest.retrievers.get(name, {})
        info = {key: value for key, value in self.index.retriever_info(name).items() if key != "seconds"}
        return digest([settings | {INFO: info}, vectors])


def digest(value: Any) -> str:
    """sha256 of a JSON-ready value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def index_folder(loaded: LoadedSpec, corpus: CorpusSpec, corpus_folder: Path) -> Path:
    """Where the index is, or will be: the one that is named, or one in the results folder."""
    return corpus_folder / "index" if corpus.index is None else loaded.path(corpus.index)


def needed_retrievers(cells: Sequence[Cell], corpus: str) -> list[str]:
    """Second layers that the cells of a corpus search with."""
    names = [c.retriever for c in cells if c.corpus == corpus and c.retriever is not None and c.evidence is None]
    return list(dict.fromkeys(names))


def missing_retrievers(folder: Path, needed: Sequence[str]) -> list[str]:
    """Those that an index does not have; all of them where there is no index yet."""
    if not is_index(folder):
        return [name for name in needed if name != UNTRAINED]
    with Index.open(folder) as index:
        return [name for name in needed if name not in index.manifest.retrievers]


def prepare(
    loaded: LoadedSpec,
    corpus: CorpusSpec,
    cells: Sequence[Cell],
    folder: Path,
    *,
    timed: Timed,
    on_progress: Progress,
) -> Corpus:
    """Build what is missing, and draw the questions.

    Args:
        loaded: the spec.
        corpus: one of its corpora.
        cells: of the experiment.
        folder: of the corpus in the results folder.
        timed: keeps the time of each step.
        on_progress: called as the work goes on.

    Raises:
        ConfigError: an index that is named and is not there, has no held-out questions, or lacks what the cells need.
        DataError: files that cannot be read.
        TrainingError: training a retriever failed.
    """
    spec, target = loaded.spec, index_folder(loaded, corpus, folder)
    _refuse_unusable(loaded, corpus, target)
    if corpus.built_here and not is_index(target):
        folder.mkdir(parents=True, exist_ok=True)
        # Before the index: where there is one, it is known what it was built from.
        write_json_atomic(folder / _ORIGIN, _origin(loaded, corpus))
        timed(f"{corpus.name}: index", partial(_build, loaded, corpus, target, on_progress))
    needed = needed_retrievers(cells, corpus.name)
    with Index.open(target) as index:
        _check(index, [cell for cell in cells if cell.corpus == corpus.name], needed)
    for name in missing_retrievers(target, needed):
        timed(f"{corpus.name}: retriever {name}", partial(_train, target, spec, name, on_progress))
    return _open(spec, corpus, target, needed)


def open_ready(loaded: LoadedSpec, corpus: CorpusSpec, cells: Sequence[Cell], folder: Path) -> Corpus | None:
    """A corpus for which nothing has to be built or trained any more; None for another one.

    Raises:
        ConfigError: an index that is named and is not there, has no held-out questions, or lacks what the cells need.
    """
    target, needed = index_folder(loaded, corpus, folder), needed_retrievers(cells, corpus.name)
    _refuse_unusable(loaded, corpus, target)
    if not is_index(target):
        return None
    with Index.open(target) as index:
        _check(index, [cell for cell in cells if cell.corpus == corpus.name], needed)
    if missing_retrievers(target, needed):
        return None
    return _open(loaded.spec, corpus, target, needed)


def _refuse_unusable(loaded: LoadedSpec, corpus: CorpusSpec, target: Path) -> None:
    """Refuse a named index that is not there, and one that was built here from something else."""
    if not (corpus.built_here or is_index(target)):
        raise ConfigError(
            f"corpus {corpus.name!r} names an index that is not there: {target}. Name an index folder (`dmnrag index` "
            "makes one), or give sample or files instead, and the index is built here"
        )
    origin = target.parent / _ORIGIN
    if not (corpus.built_here and is_index(target) and origin.is_file()):
        return
    former, now = json.loads(origin.read_text(encoding="utf-8")), _origin(loaded, corpus)
    differing = [name for name in now if former.get(name) != now[name]]
    if differing:
        raise ConfigError(
            f"corpus {corpus.name!r} is not the one that {target.parent} was built from ({', '.join(differing)} "
            "differ): name another folder with --out, or give the corpus another name"
        )


def _origin(loaded: LoadedSpec, corpus: CorpusSpec) -> dict[str, Any]:
    """What an index that is built here hangs on: the spec's words, and what the files hold."""
    words = {k: v for k, v in asdict(corpus).items() if k not in ("name", "questions", "index", "files")}
    words["files"] = [_sha256(loaded.path(file)) for file in corpus.files]
    origin: dict[str, Any] = json.loads(json.dumps(words))
    return origin


def _sha256(path: Path) -> str | None:
    """None for what is not one readable file; reading it says why."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _open(spec: Spec, corpus: CorpusSpec, target: Path, needed: Sequence[str]) -> Corpus:
    index = Index.open(target)
    usable = [example for example in held_out(index) if _is_question(example)]
    examples = draw_questions(usable, corpus.questions or spec.questions, spec.seed)
    card = CorpusCard(
        name=corpus.name,
        documents=index.n_documents,
        held_out=len(index.examples),
        sampled=len(examples),
        unusable=len(index.examples) - len(usable),
        labels=tuple(index.domains.items()),
        domain_kind=index.settings.domain_kind,
        generation=index.manifest.generation,
        fingerprint=_fingerprint(index),
        retrievers=tuple(needed),
        source=index.manifest.source,
    )
    return Corpus(corpus, index, examples, card, digest([[e.query.query_id, *e.references] for e in examples]))


def draw_questions(examples: Sequence[Example], n: int | None, seed: int) -> list[Example]:
    """A fixed sample in the order of the index; a smaller one is part of a larger one of the same seed."""
    if n is None or n >= len(examples):
        return list(examples)
    order = list(range(len(examples)))
    random.Random(f"{seed} questions").shuffle(order)
    return [examples[i] for i in sorted(order[:n])]


def _is_question(example: Example) -> bool:
    try:
        check_question(example.query)
    except QueryError:
        return False
    return True


def _fingerprint(index: Index) -> str:
    manifest = index.manifest
    parts = {name: part.sha256 for name, part in manifest.parts.items() if not name.startswith(("dense/", "domain/"))}
    # In a cluster the documents have no files here: what they are is asked of it.
    documents = index.contents.fingerprint()
    return digest([parts, documents, manifest.settings, manifest.n_documents, manifest.domains])


def _check(index: Index, cells: Sequence[Cell], needed: Sequence[str]) -> None:
    """Refuse cells that this index cannot serve, before anything is trained or answered."""
    with_domain = [cell.row for cell in cells if find_method(cell.method).needs_domain or cell.domain == "wrong"]
    if with_domain and not index.domains:
        rows = ", ".join(dict.fromkeys(with_domain))
        raise ConfigError(f"{index.folder} has no domains, and these rows need them: {rows}; leave them out")
    if needed and not index.manifest.retrievers:
        raise ConfigError(
            f"{index.folder} has no second layer, and these cells search with {', '.join(needed)}: build it with an "
            'encoder, or use layer = "sparse"'
        )
    if UNTRAINED in needed and UNTRAINED not in index.manifest.retrievers:
        raise ConfigError(f"{index.folder} has no retriever {UNTRAINED!r}: build it with an encoder")


def _train(folder: Path, spec: Spec, name: str, on_progress: Progress) -> None:
    """The retriever is used whether or not it beats the untrained one: the experiment is to show it."""
    first_layer = next(layer for layer, retriever in NAMES.items() if retriever == name)
    plan = RetrieverPlan(
        training_set=TrainingSetSettings(first_layer=first_layer, seed=spec.training.retriever.seed),
        training=spec.training.retriever,
        rounds=spec.training.rounds,
        limit=spec.training.limit,
    )
    train_retriever(folder, plan, accept_worse=True, on_progress=on_progress)


def _build(loaded: LoadedSpec, corpus: CorpusSpec, target: Path, on_progress: Progress) -> None:
    documents, examples, source = _read(loaded, corpus)
    dense = DenseSettings(encoder=corpus.encoder, passage=corpus.indexed_text) if corpus.has_encoder else None
    settings = IndexSettings(
        segmenter=SegmenterSettings(name=corpus.segmenter),
        indexed_text=corpus.indexed_text,
        domain_kind=corpus.domain_kind,
        dense=dense,
    )
    scratch = target.parent / _SCRATCH
    build_index(
        target,
        documents,
        settings,
        examples=examples,
        source=source,
        encoder=None if dense is None else resumable(make_encoder(dense.encoder), scratch),
        on_progress=on_progress,
    )
    scratch.unlink(missing_ok=True)


def _read(loaded: LoadedSpec, corpus: CorpusSpec) -> tuple[list[Document], list[Example], dict[str, Any]]:
    if corpus.sample is not None:
        return *load_sample(corpus.sample), {"sample": corpus.sample}
    mapping = ColumnMapping(corpus.question, corpus.answer, corpus.domain, corpus.doc_id)
    separators = corpus.domain_separators
    options = ReadOptions(
        encoding=corpus.encoding,
        delimiter=corpus.delimiter,
        sheet=corpus.sheet,
        domain_separators=separators,
        domain_map={} if corpus.domain_map is None else read_domain_map(loaded.path(corpus.domain_map), separators),
        domain_kind=corpus.domain_kind,
        mask=corpus.mask,
    )
    documents, report = read_documents([loaded.path(name) for name in corpus.files], mapping, options=options)
    groups = repost_groups([d.question for d in documents], [d.answers for d in documents])
    split = split_documents(documents, corpus.test_size, corpus.split_seed, groups=groups)
    source = {"files": [Path(name).name for name in corpus.files], "test_size": corpus.test_size} | {
        "seed": corpus.split_seed,
        "read": report.to_dict(),
        "left_out_for_leakage": len(split.dropped.doc_ids),
    }
    return split.train, split.test, source
