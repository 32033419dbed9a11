"""Where the cluster is and who asks: from options, the environment or a file.

Secrets stay out of `repr`, logs and error texts: no message here shows the value of one. Knows nothing of
the client library. The environment variables are `DMNRAG_ES_` and the name of a setting in capitals
(`DMNRAG_ES_URLS=https://a:9200,https://b:9200`), and `DMNRAG_ES_CONFIG`, the path of a TOML or JSON file.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dmnrag.errors import ConfigError

ENVIRONMENT_PREFIX = "DMNRAG_ES_"
CONFIG_VARIABLE = "DMNRAG_ES_CONFIG"

_PASSABLE = re.compile(r"[!-~]+")
"""Visible ASCII: what an HTTP header holds without harm."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How to reach a cluster."""

    urls: tuple[str, ...]
    """One or more nodes of one cluster, `https://host:9200`; where one does not answer the next is asked."""
    api_key: str | None = field(default=None, repr=False)
    """As the server gives it: the encoded form, or `id:key`."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_cert: str | None = None
    """PEM file of the authority that signed the server's certificate; None takes the system's authorities."""
    fingerprint: str | None = None
    """SHA-256 of the server's certificate, in place of an authority."""
    verify_tls: bool = True
    """False accepts any certificate: whoever stands between reads the password and every question."""
    request_timeout_s: float = 15.0
    """One attempt; what takes longer is tried again, at another node where there is one."""
    deadline_s: float = 60.0
    """All attempts at one request together; then it is an error."""
    concurrency: int = 4
    """Requests on the way at once."""

    def __post_init__(self) -> None:
        if not self.urls:
            raise ConfigError(
                f"no Elasticsearch server is named: give --es-url, or set {ENVIRONMENT_PREFIX}URLS, for example "
                "https://localhost:9200"
            )
        for url in self.urls:
            _check_url(url)
        _check_identity(self)
        _check_certificates(self)
        for name, lowest in (("request_timeout_s", 0.001), ("deadline_s", 0.001), ("concurrency", 1)):
            value = getattr(self, name)
            if not lowest <= value <= 1e6:
                raise ConfigError(f"Elasticsearch setting {name} is {value!r}: allowed are numbers from {lowest}")

    @property
    def encrypted(self) -> bool:
        """Whether every node is reached by TLS."""
        return all(url.startswith("https:") for url in self.urls)

    @classmethod
    def load(
        cls,
        options: Mapping[str, Any] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        file: Path | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> "ConnectionSettings":
        """Settings from three places; a value in an option wins over the environment, that over the file.

        Args:
            options: values by name, as the caller has them; None stands for not given.
            environment: variables; the process's own where None.
            file: TOML or JSON with the names of this class; where None the one that `DMNRAG_ES_CONFIG` names.
            defaults: values by name for what stands in none of the three.

        Raises:
            ConfigError: an unknown name or unusable value, or a file that cannot be read.
        """
        variables = os.environ if environment is None else environment
        values = dict(defaults or {}) | _of_file(variables, file)
        identities = [_of_environment(variables), {k: v for k, v in (options or {}).items() if v is not None}]
        for given in identities:
            # A key in one place and a password in another are not meant together.
            if "api_key" in given:
                values = {k: v for k, v in values.items() if k not in ("user", "password")}
            elif "user" in given:
                values.pop("api_key", None)
            values |= given
        return cls(**{name: _typed(name, value) for name, value in ({"urls": ()} | values).items()})


def check_borrowed_urls(settings: ConnectionSettings) -> None:
    """Refuse to send a secret in clear to URLs that the environment and its file do not name, but an index folder does.

    A folder may come from somebody else, and a key goes to whatever server its manifest says.

    Raises:
        ConfigError: says what to set.
    """
    own = _of_file(os.environ, None) | _of_environment(os.environ)
    secret = settings.api_key is not None or settings.user is not None
    if not secret or "urls" in own or all(map(_keeps_secrets, settings.urls)):
        return
    raise ConfigError(
        f"the index folder names {', '.join(settings.urls)}, and a key or password would go there unencrypted: where "
        f"that is your cluster, set {ENVIRONMENT_PREFIX}URLS to it, better to its https:// URL"
    )


def _keeps_secrets(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")


def _of_file(variables: Mapping[str, str], file: Path | None) -> dict[str, Any]:
    named = file or (Path(variables[CONFIG_VARIABLE]) if variables.get(CONFIG_VARIABLE) else None)
    return _read_file(named) if named else {}


def _of_environment(variables: Mapping[str, str]) -> dict[str, Any]:
    names = {f"{ENVIRONMENT_PREFIX}{name.upper()}": name for name in _PARSERS}
    return {name: variables[variable] for variable, name in names.items() if variables.get(variable)}


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"the Elasticsearch settings {path} cannot be read: {error.strerror}") from error
    except ValueError:  # the parser's own message may show a piece of the file
        raise ConfigError(f"the Elasticsearch settings {path} are not TOML or JSON in UTF-8") from None
    if not isinstance(values, dict):
        raise ConfigError(f"the Elasticsearch settings {path} must be names with values")
    return values


def _typed(name: str, value: Any) -> Any:
    if name not in _PARSERS:
        near = get_close_matches(name, _PARSERS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"there is no Elasticsearch setting {name!r}: allowed are {', '.join(_PARSERS)}{hint}")
    try:
        return _PARSERS[name](value)
    except (TypeError, ValueError):  # the value may be a secret
        raise ConfigError(f"Elasticsearch setting {name} has a value of the wrong kind") from None


def _urls(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    return tuple(part.strip().rstrip("/") for part in parts if part.strip())


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value.strip()


def _password(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "urls": _urls,
    "api_key": _text,
    "user": _text,
    "password": _password,
    "ca_cert": _text,
    "fingerprint": lambda value: _text(value).replace(":", "").lower(),
    "verify_tls": _flag,
    "request_timeout_s": float,
    "deadline_s": float,
    "concurrency": int,
}
assert set(_PARSERS) == {f.name for f in fields(ConnectionSettings)}


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        secret = parts.username is not None or parts.password is not None
    except ValueError:
        usable, secret = False, "@" in url
    if secret:
        raise ConfigError(
            "an Elasticsearch URL holds a user or password: URLs are shown in messages, so give them as user "
            f"and password ({ENVIRONMENT_PREFIX}USER, {ENVIRONMENT_PREFIX}PASSWORD)"
        )
    if not usable or parts.query or parts.fragment:
        raise ConfigError(f"{url!r} is not the URL of a server: needed is https://host:port or http://host:port")


def _check_identity(settings: ConnectionSettings) -> None:
    if settings.api_key is not None and (settings.user is not None or settings.password is not None):
        raise ConfigError("an API key and a user were given for Elasticsearch: give one of them")
    if (settings.user is None) != (settings.password is None):
        raise ConfigError("a user and a password for Elasticsearch belong together: give both or neither")
    if settings.api_key is not None and not _PASSABLE.fullmatch(settings.api_key):
        raise ConfigError("the API key for Elasticsearch is empty or holds characters that no key has")
    if settings.user is not None and (not settings.user or ":" in settings.user):
        raise ConfigError("the user for Elasticsearch must be a name without a colon")


def _check_certificates(settings: ConnectionSettings) -> None:
    if settings.ca_cert is not None and not Path(settings.ca_cert).is_file():
        raise ConfigError(f"the CA certificate {settings.ca_cert} is not a file")
    if settings.fingerprint is not None and not _SHA256.fullmatch(settings.fingerprint):
        raise ConfigError(
            "the certificate fingerprint must be the 64 hexadecimal digits of a SHA-256 "
            "(openssl x509 -fingerprint -sha256 -noout -in FILE)"
        )
    if (settings.ca_cert or settings.fingerprint) and not (settings.encrypted and settings.verify_tls):
        raise ConfigError(
            "a CA certificate or fingerprint was given, but nothing is checked against it: use https:// URLs "
            "and leave verify_tls on"
        )
