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
    "or 'fake' (no model, for tests)"
)
"""The forms of a spec, for messages and help texts."""


def make_generator(  # noqa: PLR0913 - one place for whatever a back end takes
    spec: str,
    *,
    adapter: str | Path | None = None,
    device: str | None = None,
    dtype: str | None = None,
    batch_size: int = 8,
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
        dtype: For local models: float32, bfloat16, float16 or auto; None chooses (see `load_causal_lm`).
        batch_size: Prompts generated together by local models, requests at once for servers.
        timeout_s: For servers: longest wait for a connection or the next bytes of an answer.
        retries: For servers: further tries after a failure that may pass.
        api_key_env: Name of the environment variable that holds the server's key.
        progress: Called with a step and the share done (0 to 1) while the built-in model is prepared.

    Raises:
        ConfigError: a spec of no known form, a model that cannot be loaded, or an adapter of another one.
        MissingDependencyError: the back end's library is not installed.
    """
    if adapter is not None:
        from dmnrag.llm.adapters import open_adapted

        return open_adapted(spec, Path(adapter), batch_size=batch_size, device=device, dtype=dtype, progress=progress)
    kind, _, rest = spec.partition(":")
    if spec == "fake":
        from dmnrag.llm.fake import FakeGenerator

        return FakeGenerator()
    if spec == "builtin":
        from dmnrag.llm.builtin import open_builtin

        return open_builtin(device=device, dtype=dtype, batch_size=batch_size, progress=progress)
    if kind == "openai":
        from dmnrag.llm.openai_compatible import EndpointSettings, OpenAIGenerator

        model, _, url = rest.partition("@")
        if not model or not url.startswith(("http://", "https://")):
            raise ConfigError(f"LLM {spec!r} is incomplete: write openai:MODEL@URL. Allowed are {FORMS}")
        endpoint = EndpointSettings(
            url=url, timeout_s=timeout_s, retries=retries, concurrency=batch_size, api_key_env=api_key_env
        )
        return OpenAIGenerator(model, endpoint)
    return _local(spec, device, dtype, batch_size)


def _local(spec: str, device: str | None, dtype: str | None, batch_size: int) -> Generator:
    near = get_close_matches(spec.lower(), ("builtin", "fake", "openai"), n=1, cutoff=0.75)
    if not spec.strip() or near:
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"no LLM {spec!r}: allowed are {FORMS}.{hint}")
    from dmnrag.llm.transformers_lm import TransformersGenerator

    try:
        return TransformersGenerator.open(spec, device=device, dtype=dtype, batch_size=batch_size)
    except ConfigError as error:
        raise ConfigError(f"{error}. Allowed LLMs are {FORMS}") from error
