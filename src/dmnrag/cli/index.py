"""`dmnrag index`: from files of question-answer pairs to an index folder."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from dmnrag.cli import cluster_options as co
from dmnrag.cli import options as o
from dmnrag.cli import reading as r
from dmnrag.cli.console import print_json, progress, talk
from dmnrag.cli.data_card import data_card_text
from dmnrag.cli.reading_beir import is_beir
from dmnrag.data import ReadReport, Split
from dmnrag.index import BuildReport, IndexSettings, build_index
from dmnrag.index.settings import DomainKind, IndexedText
from dmnrag.protocols import Encoder
from dmnrag.retrieval.dense import DenseSettings, make_encoder
from dmnrag.retrieval.dense.resume import resumable
from dmnrag.retrieval.elastic import connect
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.text import SegmenterName, SegmenterSettings

_NO_ENCODER = "none"
_SCRATCH = "generations/.vectors"
"""Vectors of a build that was killed, where they hurt no index; another build of the same texts goes on there."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("index")(index)


def index(
    files: r.Files,
    out: Annotated[Path, typer.Option(help="Folder of the index; an existing index gets a new generation.")],
    question_column: r.QuestionColumn = None,
    answer_column: r.AnswerColumn = None,
    domain_column: r.DomainColumn = None,
    id_column: r.IdColumn = None,
    metadata_column: r.MetadataColumn = None,
    encoding: r.Encoding = None,
    delimiter: r.Delimiter = None,
    sheet: r.Sheet = None,
    domain_separators: r.DomainSeparators = r.SEPARATORS,
    domain_map: r.DomainMapFile = None,
    mask: r.Mask = False,
    test_size: Annotated[
        float, typer.Option(help="Share of rows held out for `evaluate`; re-posts stay together.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    domain_kind: r.DomainKindOption = "path",
    segmenter: Annotated[str, typer.Option(help="bigram, unigram+bigram, jieba or mixed.")] = SegmenterSettings().name,
    simplify: Annotated[bool, typer.Option("--simplify", help="Traditional characters to simplified ones.")] = False,
    dictionary: Annotated[Path | None, typer.Option(help="Words to keep whole, one a line.")] = None,
    stop_words: Annotated[Path | None, typer.Option(help="Words to leave out, one a line.")] = None,
    synonyms: Annotated[Path | None, typer.Option(help="Words of one meaning, a group a line: 心梗,心肌梗死.")] = None,
    indexed_text: Annotated[str, typer.Option(help="question+answer or answer: what both layers search.")] = (
        "question+answer"
    ),
    k1: Annotated[float, typer.Option(help="BM25 k1 (eq. 2).")] = Bm25Settings().k1,
    b: Annotated[float, typer.Option(help="BM25 b (eq. 2).")] = Bm25Settings().b,
    encoder: Annotated[
        str, typer.Option(help="Second layer: builtin, a sentence-transformers name or folder, none.")
    ] = ("builtin"),
    encoder_precision: Annotated[
        str,
        typer.Option(
            help="What documents are encoded in: fp32; int8 (CPUs, several times as fast, needs the extra int8); "
            "bf16 (processors that have it)."
        ),
    ] = DenseSettings().encoder_precision,
    vectors: Annotated[str, typer.Option(help="exact or hnsw: how the second layer searches in the folder.")] = "exact",
    backend: Annotated[
        str | None,
        typer.Option(
            help="embedded: all is in the folder; elasticsearch: documents, terms and vectors are in a cluster. "
            "Default: as DIR is, else embedded.",
            show_default=False,
        ),
    ] = None,
    es_url: co.EsUrl = None,
    es_index: co.EsIndex = None,
    shards: co.EsShards = None,
    replicas: co.EsReplicas = None,
    es_vectors: co.EsVectors = None,
    es_oversample: co.EsOversample = None,
    es_replace: co.EsReplace = False,
    as_json: o.JsonOption = False,
) -> None:
    """Build an index from files of question-answer pairs."""
    columns = (question_column, answer_column, domain_column, id_column, metadata_column)
    mapping = None if is_beir(files) and not any(columns) else r.column_mapping(*columns)
    reading = r.reading_options(encoding, delimiter, sheet, domain_separators, domain_map, domain_kind, mask)
    settings = IndexSettings(
        segmenter=SegmenterSettings.from_files(
            cast(SegmenterName, segmenter),
            simplify=simplify,
            dictionary=dictionary,
            stop_words=stop_words,
            synonyms=synonyms,
        ),
        bm25=Bm25Settings(k1=k1, b=b),
        indexed_text=cast(IndexedText, indexed_text),
        domain_kind=cast(DomainKind, domain_kind),
        dense=None
        if encoder == _NO_ENCODER
        else DenseSettings(
            encoder=encoder,
            passage=cast(IndexedText, indexed_text),
            kind=cast(Any, vectors),
            encoder_precision=cast(Any, encoder_precision),
        ),
    )
    cluster = co.ClusterOptions(es_url, es_index, shards, replicas, es_vectors, es_oversample, es_replace)
    target = cluster.target(out, backend, "--backend")
    if target is not None:
        connect(target.connection).close()  # an error now is better than one after an hour of reading
    split, report = r.read_and_split(files, mapping, reading, test_size, seed)
    source = {
        "files": [f.name for f in files],
        "columns": {} if mapping is None else asdict(mapping),
        "reading": reading.to_dict(),
        "test_size": test_size,
        "seed": seed,
        "read": report.to_dict(),
    }
    scratch = out / _SCRATCH
    with progress() as show:
        built = build_index(
            out,
            split.train,
            settings,
            examples=split.test,
            source=source,
            encoder=None if settings.dense is None else _encoder(settings.dense, scratch),
            target=target,
            on_progress=show,
        )
    scratch.unlink(missing_ok=True)
    if as_json:
        print_json(_to_dict(out, built, report, split))
    else:
        _tell(out, built, report, split)


def _encoder(dense: DenseSettings, scratch: Path) -> Encoder:
    return resumable(make_encoder(dense.encoder, precision=dense.encoder_precision), scratch)


def _to_dict(out: Path, built: BuildReport, report: ReadReport, split: Split) -> dict[str, Any]:
    return {
        "folder": str(out),
        "generation": built.generation,
        "documents": built.n_documents,
        "examples": len(split.test),
        "left_out_for_leakage": len(split.dropped.doc_ids),
        "long_passages": built.n_long_passages,
        "read": report.to_dict(),
        **({} if built.backend is None else {"backend": built.backend.model_dump()}),
    }


def _tell(out: Path, built: BuildReport, report: ReadReport, split: Split) -> None:
    talk(data_card_text(report))
    if split.test:
        talk(
            f"held out {len(split.test):,} questions; {len(split.dropped.doc_ids):,} rows that hold one of their "
            "questions or answers were left out"
        )
    if built.n_long_passages:
        talk(f"{built.n_long_passages:,} documents are longer than the encoder reads; each was split at sentence ends")
    where = "" if built.backend is None else f", Elasticsearch index {built.backend.name} ({built.backend.physical})"
    typer.echo(f"{built.n_documents:,} documents in {out} (generation {built.generation}{where})")
