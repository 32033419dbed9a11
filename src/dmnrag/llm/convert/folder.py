"""From an original model folder to a stock one, in one step: the new folder is there whole, or not at all.

The work is done in `.NAME.converting` beside the new folder, under a lock, and renamed at the end. What a killed run
left there is cleared away by the next one.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dmnrag
from dmnrag._io import delete_folder, fsync_path, rename, write_json_atomic, writer_lock
from dmnrag._optional import require
from dmnrag.errors import ConfigError, DataError
from dmnrag.llm.convert.baichuan2 import baichuan2_recipe
from dmnrag.llm.convert.chatglm2 import chatglm2_recipe
from dmnrag.llm.convert.checkpoint import Checkpoint
from dmnrag.llm.convert.recipe import Recipe, Source
from dmnrag.llm.convert.sentencepiece_file import read_pieces
from dmnrag.llm.convert.weights import SHARD_BYTES, check_weights, write_weights

RECIPES: dict[str, Callable[[Source], Recipe]] = {"chatglm": chatglm2_recipe, "baichuan": baichuan2_recipe}
"""By the model_type of the original config.json."""

RECORD = "conversion.json"
"""In every folder that was converted: of what and by which release."""

_TOKENIZER_CODE = {"chatglm": "tokenization_chatglm.py", "baichuan": "tokenization_baichuan.py"}
_SMALL_FILES = 50 * 10**6
"""Bytes on disk for everything beside the weights; tokenizers take the most."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Converted:
    """What came out."""

    title: str
    folder: Path
    n_bytes: int
    """Of all tensors."""


def convert_checkpoint(
    source: Path,
    target: Path,
    *,
    replace: bool = False,
    progress: Progress | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Converted:
    """Write the stock folder of an original ChatGLM2-6B or Baichuan2-7B-Chat folder.

    Nothing of the folder's code is run. Tensors are streamed from file to file.

    Args:
        source: The original folder: config.json, tokenizer.model, weights (.bin or safetensors, in shards or not).
        target: The folder to make.
        replace: Take the place of a former conversion at `target`; nothing else is ever replaced.
        progress: Called with a stage, bytes done and all bytes.
        shard_bytes: Largest file of weights.

    Raises:
        ConfigError: not such a folder, a variant that cannot be converted, or `target` is in use.
        DataError: a file is missing or damaged, or a tensor is missing, unknown or another.
        IndexLockedError: another process is converting to `target`.
    """
    read_json(source / "config.json", what="an original model folder")
    with staging(target, replace=replace) as work:
        recipe = read_recipe(source)
        checkpoint = Checkpoint.of_model(source)
        check_weights(checkpoint, recipe)
        _check_class(recipe)
        _check_room(checkpoint, work)
        n_bytes = write_weights(checkpoint, recipe, work, _staged(progress, "weights (bytes)"), shard_bytes)
        _write_rest(source, checkpoint, recipe, work)
    return Converted(recipe.title, target, n_bytes)


def read_recipe(source: Path) -> Recipe:
    """The recipe for an original folder; its weights are not looked at."""
    config = read_json(source / "config.json", what="an original model folder")
    kind = config.get("model_type")
    if kind not in RECIPES:
        raise ConfigError(
            f"{source} has the model_type {kind!r}: only original ChatGLM2-6B and Baichuan2-7B-Chat folders need and "
            "allow a conversion (chatglm, baichuan)"
        )
    generation = source / "generation_config.json"
    code = source / _TOKENIZER_CODE[kind]
    return RECIPES[kind](
        Source(
            config=config,
            generation=read_json(generation, what="") if generation.is_file() else None,
            pieces=read_pieces(source / "tokenizer.model"),
            tokenizer_code=code.read_text(encoding="utf-8", errors="replace") if code.is_file() else "",
        )
    )


def read_json(path: Path, *, what: str) -> dict[str, Any]:
    """The object in a JSON file; `what` its folder should be, for the message where it is missing."""
    if not path.is_file():
        raise ConfigError(f"{path.parent} is not {what}: it has no {path.name}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}): copy it again") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no JSON object: copy it again")
    return found


@contextmanager
def staging(target: Path, *, replace: bool) -> Iterator[Path]:
    """An empty folder that becomes `target` when the block ends well, and vanishes when it does not."""
    target = target.resolve()
    work = target.with_name(f".{target.name}.converting")
    model, former = work / "model", work / "former"
    work.mkdir(parents=True, exist_ok=True)
    with writer_lock(work):
        try:
            _restore(former, target)  # A run was killed between its two renames.
            _check_target(target, replace=replace)
            for leftover in (model, former):
                delete_folder(leftover)
            model.mkdir()
            yield model
            for path in sorted(model.iterdir()):
                fsync_path(path)
            if target.exists():
                rename(target, former)
            rename(model, target)
        finally:
            _restore(former, target)
            delete_folder(work)


def _restore(former: Path, target: Path) -> None:
    if former.exists() and not target.exists():
        rename(former, target)


def _check_target(target: Path, *, replace: bool) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / RECORD).is_file():
        raise ConfigError(f"{target} exists and is not a conversion, so it is never replaced: name a new folder")
    if not replace:
        raise ConfigError(f"{target} exists: name a new folder, or replace that conversion with --replace")


def _staged(progress: Progress | None, stage: str) -> Callable[[int, int], None]:
    return (lambda done, total: progress(stage, done, total)) if progress is not None else (lambda done, total: None)


def _check_class(recipe: Recipe) -> None:
    """The installed transformers must want exactly the tensors that the recipe makes."""
    torch = require("torch", "llm")
    with torch.device("meta"):
        model = require("transformers", "llm").AutoModelForCausalLM.from_config(recipe.config)
    wanted = set(model.state_dict())
    made = {target.name for weight in recipe.weights.values() for target in weight.targets}
    if wanted != made:
        raise ConfigError(
            f"{type(model).__name__} of the installed transformers has other tensors than expected "
            f"({', '.join(sorted(wanted ^ made)[:3])}): install a release of transformers 5"
        )


def _check_room(checkpoint: Checkpoint, work: Path) -> None:
    needed = sum(path.stat().st_size for path in checkpoint.files) + _SMALL_FILES
    free = shutil.disk_usage(work).free
    if free < needed:
        raise DataError(
            f"{work.parent.parent} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB are needed: free some space, "
            "or name a folder on another disk"
        )


def _write_rest(source: Path, checkpoint: Checkpoint, recipe: Recipe, folder: Path) -> None:
    recipe.config.dtype = checkpoint[next(iter(recipe.weights))].dtype
    recipe.config.save_pretrained(folder)
    require("transformers", "llm").GenerationConfig(**recipe.generation).save_pretrained(folder)
    recipe.tokenizer.save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    # The name that transformers 4 and servers built on it know too.
    write_json_atomic(settings, read_json(settings, what="") | {"tokenizer_class": "PreTrainedTokenizerFast"})
    # For converters to other formats that read the original vocabulary.
    shutil.copyfile(source / "tokenizer.model", folder / "tokenizer.model")
    write_record(folder, recipe.title)
    for path in folder.glob("*.safetensors"):
        shutil.copymode(folder / "config.json", path)  # The library leaves them to their owner alone.


def write_record(folder: Path, title: str) -> None:
    """Mark a folder as a conversion of `title`."""
    write_json_atomic(folder / RECORD, {"converted_from": title, "dmnrag": dmnrag.__version__})
