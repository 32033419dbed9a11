"""What a bundle is made for, and what follows from it: extras of the package, models, names on the other machine."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from dmnrag._settings import Rule, check_settings
from dmnrag.bundle.files import NAMED_MODELS, Content, model_folder, under
from dmnrag.errors import ConfigError
from dmnrag.index import Index
from dmnrag.index.models import stored_dense
from dmnrag.llm.factory import check_spec, split_dtype


def _named(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, str) and item for item in value)


@dataclass(frozen=True, slots=True)
class BundleSettings:
    """What goes in beside the index."""

    llm: str | None = None
    """As for `ask`: `builtin`, a folder or hub name, `openai:MODEL@URL` (a server in the other network), `fake`."""
    extras: tuple[str, ...] = ("serve",)
    """Beside those that the index and the LLM need."""
    models: tuple[str, ...] = ()
    """Further models by folder or hub name: adapters, rerankers."""
    pip_args: str = ""
    """Options of pip, as in a shell: `--extra-index-url URL`, `-c constraints.txt`."""

    def __post_init__(self) -> None:
        names: Rule = (_named, "lists of names")
        check_settings(self, {"extras": names, "models": names}, "bundle")
        if self.llm is not None:
            check_spec(split_dtype(self.llm)[0])
        self.pip_options()

    def pip_options(self) -> list[str]:
        """`pip_args` as a list.

        Raises:
            ConfigError: a quotation that does not end.
        """
        try:
            return shlex.split(self.pip_args)
        except ValueError as error:
            raise ConfigError(f"the options of pip {self.pip_args!r} cannot be read: {error}") from error


def needed_extras(index: Index, settings: BundleSettings) -> list[str]:
    """Extras of the package for the index, the LLM, and as asked for; sorted."""
    extras = set(settings.extras)
    if index.manifest.retrievers:
        extras.add("dense")
    if index.settings.segmenter.simplify:
        extras.add("zh")
    local, dtype = split_dtype(settings.llm or "fake")
    if local.startswith("openai:"):
        extras.add("openai")
    elif local != "fake":
        extras |= {"llm"} | ({"int8"} if dtype == "int8" else set())
    return sorted(extras)


def model_files(index: Index, settings: BundleSettings) -> tuple[dict[str, Content], str | None]:
    """The models outside the index, and the LLM's spec on the other machine, where `models/...` is below the release.

    The built-in ones are converted here where the cache has none yet, so that the other machine need not.

    Raises:
        ConfigError: a model that is not on this machine, or two of one name.
        MissingDependencyError: what a built-in one is converted with.
    """
    found: dict[str, Content] = {}
    if any(stored_dense(entry).encoder == "builtin" for entry in index.manifest.retrievers.values()):
        from dmnrag.retrieval.dense.builtin import builtin_encoder_folder

        folder = builtin_encoder_folder()
        found |= under(f"cache/encoders/{folder.name}", folder)
    local, dtype = split_dtype(settings.llm or "fake")
    spec = settings.llm
    if local == "builtin":
        from dmnrag.llm.builtin import builtin_folder

        folder = builtin_folder()
        found |= under(f"cache/llm/{folder.name}", folder)
    elif local != "fake" and not local.startswith("openai:"):
        spec = _add_named(found, local) + (f":{dtype}" if dtype else "")
    for model in settings.models:
        _add_named(found, model)
    return found, spec


def _add_named(found: dict[str, Content], model: str) -> str:
    """Add a model below `models/`; returns its name in the bundle."""
    folder = model_folder(model)
    # A folder in the hub's cache is called by its commit.
    name = f"{NAMED_MODELS}/{folder.resolve().name if Path(model).expanduser().is_dir() else model.replace('/', '--')}"
    files = under(name, folder)
    if not files:
        raise ConfigError(f"the model folder {folder} is empty")
    if files.keys() & found.keys():
        raise ConfigError(f"two of the models are called {name.partition('/')[2]!r}: rename one of the folders")
    found |= files
    return name
