"""Translates what goes wrong with an LLM's server into `EndpointError`: host, status, what to do. Never a key."""

from typing import Any
from urllib.parse import urlsplit

from dmnrag.errors import EndpointError

_SERVER_TEXT_LIMIT = 300
"""Characters of the server's own message that are worth showing."""

_OF_THE_REQUEST = frozenset({400, 413, 422})
"""What a working server says to a request that it cannot take; the next one may be fine."""

_ADVICE = {
    400: "the server refuses the request: check model name, prompt length and parameters",
    401: "the key is missing or wrong: set the environment variable {key_env}",
    403: "the key has no right to this model: check {key_env} and the account",
    404: "no such model or path: check the model's name, and that the URL ends where the server's API begins (/v1)",
    413: "the request is too large: lower k or max_tokens",
    422: "the server refuses a parameter: leave out those it does not know (top_k, repetition_penalty, seed)",
    429: "too many requests even after retries: lower the number of requests at once, or wait",
}


def transport_errors() -> tuple[type[Exception], ...]:
    """Errors of the HTTP library under the client that the client itself lets through while streaming."""
    from importlib import import_module

    found: list[type[Exception]] = []
    for name in ("httpx", "httpx2"):  # Which one depends on the client's version.
        try:
            found.append(import_module(name).HTTPError)
        except ModuleNotFoundError:
            continue
    return tuple(found)


def host_of(url: str) -> str:
    """Host and port, without path, user or query."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def endpoint_error(error: Exception, *, url: str, key: str, key_env: str, timeout_s: float) -> EndpointError:
    """The error to raise instead of one of the client's."""
    import openai

    where = f"LLM server {host_of(url)}"
    if isinstance(error, openai.APIStatusError):
        message = f"{where} answered {error.status_code}: {_status(error, key, key_env)}"
        return EndpointError(message, answered=error.status_code in _OF_THE_REQUEST)
    if isinstance(error, openai.APITimeoutError):
        return EndpointError(
            f"{where} gave no answer within {timeout_s:g} s, at any try: "
            "check that it is not overloaded, or raise timeout_s"
        )
    if isinstance(error, (openai.APIConnectionError, *transport_errors())):
        reason = _safe(str(error.__cause__ or error), key)
        return EndpointError(f"{where} cannot be reached ({reason}): check that it runs and that the URL is right")
    if type(error) is openai.APIError:  # an event of a stream that says so
        return EndpointError(f"{where} reported an error in the middle of its answer: {_safe(str(error), key)}")
    return EndpointError(f"{where} answered with something that is not a chat completion ({_safe(str(error), key)})")


def unusable(url: str, what: str) -> EndpointError:
    """A reply that arrived whole and holds no answer."""
    return EndpointError(f"LLM server {host_of(url)} {what}")


def _status(error: Any, key: str, key_env: str) -> str:
    status = int(error.status_code)
    advice = _ADVICE.get(status, "the server has an error of its own" if status >= 500 else "unexpected status")
    advice = advice.format(key_env=key_env)
    if status in (401, 403):
        return advice  # Servers like to repeat the key here, in part or whole.
    body = error.body if isinstance(error.body, dict) else {}
    said = body.get("message") or body.get("error") or body.get("detail")  # the last one is FastAPI's
    return f"{advice}; it said: {_safe(str(said), key)}" if said else advice


def _safe(text: str, key: str) -> str:
    # Before the cut, which may go through the key and would leave its beginning.
    text = text.replace(key, "***") if key else text
    return " ".join(text.split())[:_SERVER_TEXT_LIMIT]
