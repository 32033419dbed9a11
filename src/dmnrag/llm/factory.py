"""From the name a user writes to a generator.

To add a back end: a module here with a class that passes `dmnrag.testing.generator_contract`, and a case below.
"""

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from dmnrag.errors import ConfigError
from dmnrag.protocols import Generator

FORMS = (
    "'builtin' (small model from the package index), 'openai:MODEL@URL' (any OpenAI-compatible server, such as "
    "openai:Qwen3-4B@http://localhost:8000/v1), a folder or hub name of a transformers model (Qwen/Qwen3-4B), "
    "or 'fake' (no model, for tests); local models in another precision by its name behind (builtin:int8)"
)
"""The forms of a spec, for messages and help texts."""

_WORDS = ("builtin", "fake")

_BUILTIN_BATCH, _BATCH = 32, 8
"""Prompts at once. Larger models keep up to 1 MB a token of each."""


def make_generator(  # noqa: PLR0913 - one place for whatever a back end takes
    spec: str,
    *,
    adapter: str | Path | None = None,
    device: str | None = None,
    dtype: str | None = None,
    batch_size: int | None = None,
    timeout_s: float = 60.0,
    retries: int = 4,
    api_key_env: str = "OPENAI_API_KEY",
    progress: Callable[[str, float], None] | None = None,
) -> Generator:
    """The generator that a spec names. Loads the model where there is one to load.

    Args:
        spec: One of `FORMS`.
        adapter: For local models: folder of a LoRA adapter that was trained on this model.
        device: For local models, such as "cpu" or "cuda:0"; None takes a GPU where there is one.
        dtype: For local models: float32, bfloat16, float16, int8 or auto; None chooses (see `load_causal_lm`).
            `SPEC:DTYPE` says it too.
        batch_size: Prompts generated together by local models, requests at once for servers. None is 32 for the
            built-in model, whose cache is small (37 kB a token in fp32), else 8.
        timeout_s: For servers: longest wait for a connection or the next bytes of an answer.
        retries: For servers: further tries after a failure that may pass.
        api_key_env: Name of the environment variable that holds the server's key.
        progress: Called with a step and the share done (0 to 1) while the built-in model is prepared.

    Raises:
        ConfigError: a spec of no known form, a model that cannot be loaded, an adapter of another one, or a
            precision for what is no local model.
        MissingDependencyError: the back end's library is not installed.
    """
    local, dtype = split_dtype(spec, dtype)
    batch_size = batch_size or default_batch_size(local)
    if adapter is not None:
        from dmnrag.llm.adapters import open_adapted

        return open_adapted(
            local, Path(adapter), name=spec, batch_size=batch_size, device=device, dtype=dtype, progress=progress
        )
    if spec == "fake":
        from dmnrag.llm.fake import FakeGenerator

        return FakeGenerator()
    if local == "builtin":
        from dmnrag.llm.builtin import open_builtin

        return open_builtin(name=spec, device=device, dtype=dtype, batch_size=batch_size, progress=progress)
    if spec.startswith("openai:"):
        from dmnrag.llm.openai_compatible import EndpointSettings, OpenAIGenerator

        model, url = _server(spec)
        endpoint = EndpointSettings(
            url=url, timeout_s=timeout_s, retries=retries, concurrency=batch_size, api_key_env=api_key_env
        )
        return OpenAIGenerator(model, endpoint)
    return _local(local, spec, device, dtype, batch_size)


def default_batch_size(spec: str) -> int:
    """Prompts together, or requests at once, where nobody says; `spec` without a precision behind it."""
    return _BUILTIN_BATCH if spec == "builtin" else _BATCH


def split_dtype(spec: str, dtype: str | None = None) -> tuple[str, str | None]:
    """A local model's spec without the precision behind it, and the precision that it or `dtype` names.

    Raises:
        ConfigError: the two differ, or the spec is of a server or the fake, which have no precision here.
    """
    from dmnrag.llm.loading import DTYPES

    head, _, tail = spec.rpartition(":")
    named = tail if head and tail in DTYPES else None
    if named is None:
        return spec, dtype
    if head.partition(":")[0] in ("openai", "fake"):
        raise ConfigError(f"LLM {spec!r}: a precision ({named}) is for models that are loaded here, leave it out")
    if dtype not in (None, named):
        raise ConfigError(f"LLM {spec!r} names the precision {named}, and {dtype} is given too: leave one out")
    return head, named


def check_spec(spec: str) -> None:
    """Refuse, without opening anything, a spec that cannot be meant: an empty one, or a misspelt fixed word.

    Raises:
        ConfigError: offers the nearest.
    """
    if spec.startswith("openai:"):
        _server(spec)
    if spec in _WORDS or spec.startswith("openai:"):
        return
    near = get_close_matches(spec.lower(), (*_WORDS, "openai"), n=1, cutoff=0.75)
    if not spec.strip() or near:
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"no LLM {spec!r}: allowed are {FORMS}.{hint}")


def _server(spec: str) -> tuple[str, str]:
    """Model and URL of openai:MODEL@URL."""
    model, _, url = spec.removeprefix("openai:").partition("@")
    if not model or not url.startswith(("http://", "https://")):
        raise ConfigError(f"LLM {spec!r} is incomplete: write openai:MODEL@URL. Allowed are {FORMS}")
    return model, url


def _local(spec: str, name: str, device: str | None, dtype: str | None, batch_size: int) -> Generator:
    check_spec(spec)
    from dmnrag.llm.loading import load_causal_lm
    from dmnrag.llm.transformers_lm import TransformersGenerator

    try:
        model, tokenizer = load_causal_lm(spec, device=device, dtype=dtype)
        return TransformersGenerator(model, tokenizer, name=name, batch_size=batch_size)
    except ConfigError as error:
        raise ConfigError(f"{error}. Allowed LLMs are {FORMS}") from error
