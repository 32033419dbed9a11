"""What the server or the connection says when something fails, in the words of this package.

One place decides what may pass if it is tried again, and which error a caller sees. Texts are built from
the server's reasons and from URLs, which hold no secrets (`settings`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmnrag.errors import (
    ClusterAccessError,
    ClusterBlockedError,
    ClusterError,
    ClusterIndexError,
    ClusterUnreachableError,
    ConfigError,
)

CLIENT_LINE = "pip install 'elasticsearch[orjson]>=8.19,<9'"
"""The client that serves servers 8 and 9."""

_LOST = 0
"""In place of a status: no answer came."""
_CLOSED = "closed"
"""The connection was taken and then closed."""
_REFUSED = "refused"
"""There was no connection."""
_NO_COPY = ("no_shard_available_action_exception", "unavailable_shards_exception", "no_shard_available")
_NO_INDEX = ("index_not_found_exception", "index_closed_exception", "aliases_not_found_exception")
_SHOWN = 300
"""Characters of a reason: some hold the whole document."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One failure, of a request or of one item in it."""

    status: int
    """HTTP status; 0 where no answer came."""
    kind: str
    """The server's name of it, `index_not_found_exception`."""
    reason: str

    @property
    def of_block(self) -> bool:
        """An index or cluster block that someone must lift."""
        return self.kind == "cluster_block_exception" and self.status in (403, 429)

    @property
    def passing(self) -> bool:
        """Whether trying again may help."""
        if self.of_block:
            return False
        return self.status in (_LOST, 408, 429) or self.status >= 500 or self.kind == "shard_not_found_exception"

    @property
    def of_index(self) -> bool:
        """The index or alias is not there, or closed."""
        return self.kind in _NO_INDEX

    @property
    def of_access(self) -> bool:
        """The user or key is unknown, or lacks a right."""
        return self.status in (401, 403) and not self.of_block

    def __str__(self) -> str:
        reason = self.reason if len(self.reason) <= _SHOWN else self.reason[:_SHOWN] + "..."
        return " ".join(reason.split()) or self.kind

    def to_error(self, what: str) -> Exception:
        """The error for a caller; `what` says what was being done, `Elasticsearch (URL): search of x`."""
        if self.kind == "media_type_header_exception":
            return ConfigError(
                f"{what} failed: the installed client speaks a newer protocol than the server understands ({self}); "
                f"install the client that serves servers 8 and 9: {CLIENT_LINE}"
            )
        if self.of_block or self.of_access or self.of_index:
            return self._to_refusal(what)
        if self.passing:
            return self._to_lasting(what)
        if self.status == 413:
            return ClusterError(
                f"{what} failed: the server, or a proxy before it, takes no request of that size (413); raise its "
                "limit (http.max_content_length), or shorten the longest documents"
            )
        return ClusterError(f"{what} failed: {self} ({self.status} {self.kind})")

    def _to_refusal(self, what: str) -> ClusterError:
        if self.of_block:
            return ClusterBlockedError(f"{what} failed: {_block_cure(self)} ({self})")
        if self.status == 401:
            return ClusterAccessError(
                f"{what} failed: the server does not know this user or key (401: {self}); check the API key, or user "
                "and password"
            )
        if self.status == 403:
            return ClusterAccessError(
                f"{what} failed: this user or key lacks a right (403: {self}); `dmnrag doctor --es-url` lists what "
                "is needed"
            )
        return ClusterIndexError(
            f"{what} failed: the index or alias is not there, or was deleted or closed meanwhile ({self}); open it "
            "again, or build it again"
        )

    def _to_lasting(self, what: str) -> ClusterError:
        if self.kind in _NO_COPY or "all shards failed" in self.reason or "primary shard is not active" in self.reason:
            return ClusterBlockedError(
                f"{what} failed: a part of the index has no active copy, its health is red ({self}); start the node "
                "that holds it, or restore the index from a snapshot"
            )
        if self.kind == _CLOSED:
            return ClusterUnreachableError(
                f"{what} failed: the server closed the connection without an answer ({self}); where it expects TLS, "
                "its URL begins with https://"
            )
        if self.kind == _REFUSED:
            return ClusterUnreachableError(
                f"{what} failed: nobody listens there (connection refused); is the server running there?"
            )
        if self.status == _LOST:
            return ClusterUnreachableError(f"{what} failed: no answer in time ({self}); is the server running there?")
        return ClusterUnreachableError(
            f"{what} failed: the server went on refusing ({self.status}: {self}); it is overloaded or without a master"
        )


def of_item(item: Mapping[str, Any]) -> Fault:
    """The fault of an answer, or of an item of one, that holds `error` and `status`."""
    error, status = item.get("error"), int(item.get("status", 500))
    if not isinstance(error, Mapping):
        return Fault(status, "", str(error))
    kind, reason = str(error.get("type", "")), str(error.get("reason") or "")
    deeper = _deeper(error)
    if deeper is not None:
        kind, reason = str(deeper.get("type", kind)), f"{reason}: {deeper.get('reason')}"
        if status == 404:
            # The index is there, but a shard or its view is not where it just was: its node was lost or came back.
            status = 503
    elif caused := error.get("caused_by"):
        reason = f"{reason}: {caused.get('reason')}"
    return Fault(status, kind, reason)


def _deeper(error: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a shard said, where the error only counts the shards that failed."""
    if error.get("type") != "search_phase_execution_exception":
        return None
    roots: Sequence[Any] = error.get("root_cause") or ()
    if not roots:
        roots = [shard.get("reason") for shard in error.get("failed_shards") or ()]
    return roots[0] if roots and isinstance(roots[0], Mapping) else None


def of_exception(error: Exception) -> Fault | None:
    """The fault that one of the client's exceptions stands for; None where it is none of them."""
    from elastic_transport import ConnectionError as LostConnection
    from elastic_transport import ConnectionTimeout, SerializationError, TlsError
    from elasticsearch import ApiError

    if isinstance(error, TlsError):
        return None
    if isinstance(error, ConnectionTimeout):
        return Fault(_LOST, "timeout", "the connection timed out")
    if isinstance(error, LostConnection):
        text = str(error.message)
        kinds = {"Connection aborted": _CLOSED, "Connection refused": _REFUSED}
        return Fault(_LOST, next((kind for words, kind in kinds.items() if words in text), "connection"), text)
    if isinstance(error, SerializationError):
        return Fault(_LOST, "answer", "what answers there does not speak JSON as Elasticsearch does")
    if isinstance(error, ApiError):
        body = error.body if isinstance(error.body, Mapping) else {"error": str(error.body)}
        return of_item({"error": body.get("error", error.message), "status": error.meta.status})
    return None


def tls_error(what: str, error: Any, *, by_fingerprint: bool) -> ClusterUnreachableError:
    """TLS that could not be agreed on, with what to do about it."""
    text = str(error.message)
    if "WRONG_VERSION_NUMBER" in text or "record layer" in text:
        cure = "the server answers without TLS: use http:// if that is meant"
    elif by_fingerprint:
        cure = "its certificate has another fingerprint: check it with `openssl s_client`"
    elif "hostname" in text.lower() or "ip address" in text.lower():
        cure = "its certificate is for another name: use the name that stands in it"
    else:
        cure = "give the certificate of its authority (ca_cert) or the fingerprint of its own (fingerprint)"
    return ClusterUnreachableError(f"{what} failed: TLS with the server fails ({text}); {cure}")


def _block_cure(fault: Fault) -> str:
    if "/12/" in fault.reason:
        return (
            "a disk of the cluster is fuller than its flood-stage watermark, so the server made the index read-only; "
            "free space or add a node, and the block goes by itself"
        )
    return "the index is blocked; lift the block in its settings (index.blocks)"
