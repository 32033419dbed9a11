"""Finds and loads a sentence-transformers model by name or folder: no foreign code, no pickled weights.

Knows nothing of what the model is for. A folder and a model that is whole in the hub's cache load
without any network; only then is the hub asked, after a short look whether it answers at all.
"""

import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dmnrag._optional import require
from dmnrag.errors import ConfigError
from dmnrag.retrieval.dense.quiet import quiet_transformers

Model = TypeVar("Model")

_HUB_TIMEOUT_S = 5.0
"""Without this look the hub's client tries each file six times: more than a minute until the error."""

SAFE_WEIGHTS = {"use_safetensors": True, "dtype": "float32"}
"""Pickled weights are refused. Half precision, which some models are stored in, is widened."""


def load_model(name: str, what_else: str, load: Callable[..., Model]) -> Model:
    """Load a model with `load(name, trust_remote_code=..., local_files_only=..., model_kwargs=...)`.

    Args:
        name: a folder, or a name on the hub.
        what_else: what the user can name instead, for the error.
        load: a class of sentence-transformers, or a partial of one.

    Raises:
        ConfigError: no such folder or model, the hub does not answer, weights only as pickle, the
            model needs code of its own, or its files are damaged.
    """
    errors = (OSError, ValueError, RuntimeError, ImportError, require("safetensors", "dense").SafetensorError)
    in_folder = Path(name).is_dir()
    if not in_folder and _looks_like_path(name):
        raise ConfigError(f"there is no folder {name!r}; {what_else}")
    offline = in_folder or _in_hub_cache(name)
    if not offline and not _hub_answers():
        raise ConfigError(
            f"{name!r} is no folder here and not in the hub's cache, and {_hub_url()} does not answer; {what_else}"
        )
    try:
        with quiet_transformers():
            return load(name, trust_remote_code=False, local_files_only=offline, model_kwargs=dict(SAFE_WEIGHTS))
    except errors as error:
        raise ConfigError(
            f"{name!r} cannot be loaded ({error}). Needed are safetensors weights and a model without "
            f"code of its own; {what_else}"
        ) from error


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def _in_hub_cache(name: str) -> bool:
    """Whether the cache knows the model's modules, or knows that it has none.

    Without that file a model would load with mean pooling, right or wrong: then the hub is asked.
    """
    hub = require("huggingface_hub", "dense")
    try:
        return any(hub.try_to_load_from_cache(repository, "modules.json") for repository in _repositories(name))
    except ValueError as error:
        raise ConfigError(f"{name!r} is neither a folder nor a possible model name ({error})") from error


def _repositories(name: str) -> list[str]:
    # sentence-transformers looks under its own account for names without one.
    return [name] if "/" in name else [f"sentence-transformers/{name}", name]


def _hub_url() -> str:
    url: str = require("huggingface_hub", "dense").constants.ENDPOINT
    return url


def _hub_answers() -> bool:
    if require("huggingface_hub", "dense").constants.HF_HUB_OFFLINE:
        return False
    try:
        with urllib.request.urlopen(_hub_url(), timeout=_HUB_TIMEOUT_S):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
