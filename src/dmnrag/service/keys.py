"""API keys: who may ask, of which domains, how often. Keys are kept as hashes and never shown.

A TOML file has one table per key:

    [[key]]
    name = "desk"                    # for limits, audit and deletion; the owner of what is stored
    key = "9f2c..."                  # or sha256 = "...": the hex SHA-256 of the key
    domains = ["内科"]                # optional: sees documents with one of these labels, and no others
    rate_per_minute = 30             # optional

The environment variable DMNRAG_API_KEYS adds keys as `name:key,name2:key2`.
"""

import hashlib
import hmac
import logging
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dmnrag.data.labels import normalise_label
from dmnrag.errors import ConfigError

ENVIRONMENT = "DMNRAG_API_KEYS"

MIN_KEY_CHARACTERS = 16
"""Random hexadecimal digits of that number hold 64 bits: not to be guessed over a network."""

_KEY = re.compile(r"[!-~]+")
"""Visible ASCII: what a header can carry as it is."""
_NAME = re.compile(r"[\w.@-]{1,64}")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_FIELDS = ("name", "key", "sha256", "domains", "rate_per_minute")

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Key:
    """What a key allows; the key itself is not here."""

    name: str
    domains: frozenset[str] | None = None
    """Labels whose documents it may see. None: all."""
    rate_per_minute: int | None = None
    """None: the service's own limit."""


class KeyRing:
    """All keys of a service. Immutable, so any thread may ask."""

    def __init__(self, keys: Iterable[tuple[Key, bytes]] = ()) -> None:
        """Keys with the SHA-256 digests of what is presented for them.

        Raises:
            ConfigError: two keys of one name, or one key under two names.
        """
        self._keys = tuple(keys)
        names = [key.name for key, _ in self._keys]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"several API keys are named {twice[0]!r}: give each its own name")
        owners: dict[bytes, str] = {}
        for key, digest in self._keys:
            if (other := owners.setdefault(digest, key.name)) != key.name:
                raise ConfigError(f"the API keys {other!r} and {key.name!r} are the same: give each its own")

    @classmethod
    def load(cls, file: Path | None, environment: Mapping[str, str]) -> "KeyRing":
        """Keys of a file and of the environment together.

        A file that other users of the machine may read is taken, with a warning in the log.

        Raises:
            ConfigError: a file that is not there, holds no key or something else; an unusable or doubled key.
                No message holds a key.
        """
        return cls([*(() if file is None else _read_file(file)), *_from_environment(environment.get(ENVIRONMENT, ""))])

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(key.name for key, _ in self._keys)})"

    @property
    def open(self) -> bool:
        """True where there are no keys at all: everyone may ask."""
        return not self._keys

    def find(self, presented: str | None) -> Key | None:
        """The key that was presented; None: unknown. Takes as long whatever is presented, of equal length."""
        if presented is None:
            return None
        digest = _digest(presented)
        found = None
        for key, known in self._keys:  # to the end, so that time does not tell how far it came
            if hmac.compare_digest(digest, known):
                found = key
        return found


def bearer(header: str | None) -> str | None:
    """The key in an `Authorization: Bearer KEY` header; None where there is none of that form."""
    scheme, _, value = (header or "").strip().partition(" ")
    return (value.strip() or None) if scheme.lower() == "bearer" else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _read_file(path: Path) -> list[tuple[Key, bytes]]:
    try:
        readable_by_others = path.stat().st_mode & 0o044
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"the keys file {path} cannot be read: {error.strerror}") from error
    except ValueError:  # not TOML, or not UTF-8; the parser's own message may quote the line, and so a key
        raise ConfigError(f"the keys file {path} is not a TOML file in UTF-8") from None
    if readable_by_others:
        _LOG.warning("the keys file %s can be read by other users of this machine: chmod 600 %s", path, path)
    _refuse_unknown(values, ("key",), f"the keys file {path}")
    tables = values.get("key")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"the keys file {path} holds no key: write a table [[key]] with name and key for each")
    return [_from_table(table, f"{path}, key {number}") for number, table in enumerate(tables, start=1)]


def _from_table(table: Mapping[str, Any], where: str) -> tuple[Key, bytes]:
    _refuse_unknown(table, _FIELDS, where)
    name = _checked_name(table.get("name"), where)
    if ("key" in table) == ("sha256" in table):
        raise ConfigError(f"{where} ({name}): give either key or sha256")
    if "key" in table:
        digest = _digest(_checked_key(table["key"], f"{where} ({name})"))
    elif isinstance(table["sha256"], str) and _SHA256.fullmatch(table["sha256"]):
        digest = bytes.fromhex(table["sha256"])
    else:
        raise ConfigError(f"{where} ({name}): sha256 is not 64 hexadecimal digits (printf %s KEY | sha256sum)")
    rate = table.get("rate_per_minute")
    if rate is not None and (not isinstance(rate, int) or isinstance(rate, bool) or rate < 1):
        raise ConfigError(f"{where} ({name}): rate_per_minute is {rate!r}: allowed are whole numbers from 1")
    return Key(name, _domains(table.get("domains"), f"{where} ({name})"), rate), digest


def _domains(labels: Any, where: str) -> frozenset[str] | None:
    """Labels in the spelling that the index has them in."""
    if labels is None:
        return None
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) and label for label in labels):
        raise ConfigError(f"{where}: domains is not a list of labels; leave it out for a key that sees all")
    return frozenset(map(normalise_label, labels))


def _from_environment(text: str) -> list[tuple[Key, bytes]]:
    """Entries are named by number: what stands in one may be a key in the wrong place."""
    if not text.strip():
        return []
    keys = []
    for number, entry in enumerate(text.split(","), start=1):
        where = f"{ENVIRONMENT}, entry {number}"
        name, colon, key = entry.strip().partition(":")
        if not colon or not _NAME.fullmatch(name):
            raise ConfigError(f"{where}: allowed are entries name:key with a comma between two")
        keys.append((Key(name), _digest(_checked_key(key, where))))
    return keys


def _checked_name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: needs a name of 1 to 64 letters, digits and the signs _ . @ -")
    return name


def _checked_key(key: Any, where: str) -> str:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise ConfigError(f"{where}: the key is not a text of ASCII characters without spaces")
    if len(key) < MIN_KEY_CHARACTERS:
        raise ConfigError(
            f"{where}: the key has {len(key)} characters, {MIN_KEY_CHARACTERS} are needed;"
            " `openssl rand -hex 24` makes one"
        )
    return key


def _refuse_unknown(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in table:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            # A long one may be a key in the wrong place, which must not be shown.
            shown = repr(name) if len(name) < MIN_KEY_CHARACTERS else f"of {len(name)} characters"
            raise ConfigError(f"{where}: unknown name {shown}; allowed are {', '.join(known)}.{hint}")
